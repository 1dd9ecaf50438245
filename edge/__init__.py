"""The gateway: an XMPP broker that holds messages in SQLite and loses none."""

__version__ = "0.2.0"
