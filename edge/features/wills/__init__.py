"""Wills: messages that the gateway publishes for a session that is lost."""
