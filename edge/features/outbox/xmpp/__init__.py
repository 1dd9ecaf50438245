"""The outbox in XMPP: delivery to devices, and reports of failures to senders."""
