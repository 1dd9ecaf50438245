"""XMPP on the transport core: the connections, sessions and log-ins of devices, and a component."""
