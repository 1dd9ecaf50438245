"""Presence, rosters and presence subscriptions (RFC 6121)."""
