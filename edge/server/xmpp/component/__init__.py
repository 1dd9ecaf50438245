"""The gateway as a component of another XMPP server (XEP-0114), in place of the listener."""
