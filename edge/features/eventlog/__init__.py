"""The event log: events of devices and of the gateway, sealed into segments and shipped."""
