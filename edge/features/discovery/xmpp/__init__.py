"""Service discovery and entity capabilities in XMPP."""
