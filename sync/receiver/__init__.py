"""The central HTTPS receiver: it authenticates gateways and lands their segments."""
