"""The devices of a gateway: their accounts, status, failed log-ins and possessions."""
