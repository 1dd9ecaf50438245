"""Messages to devices: they wait in an outbox per account and are delivered with QoS."""
