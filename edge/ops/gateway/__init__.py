"""The running gateway: its control socket, its status, its uplink, and the operator's requests."""
