"""The event log in XMPP: payloads, the gateway as a destination, and notifications."""
