"""Discovery: what the gateway offers, and which QoS support the sessions of devices have."""
