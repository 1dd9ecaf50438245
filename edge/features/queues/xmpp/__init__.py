"""Queues over XMPP."""
