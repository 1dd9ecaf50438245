"""Presence and rosters in XMPP."""
