"""What can go wrong, and whose fault it is.

`FieldpostError` is the root of all that the gateway raises on purpose. Faults of a peer on the
wire are not here: they are `StreamError` and `StanzaError` in `edge.xmpp.errors`, and are answered
to the peer.
"""

from __future__ import annotations


class FieldpostError(Exception):
    """Something that the operator or the installation has to mend; its text is one line."""


class ConfigError(FieldpostError):
    """The configuration is missing, unreadable or wrong."""


class SetupError(FieldpostError):
    """The gateway's folder is not what the command needs."""


class StoreError(FieldpostError):
    """The database did not do what it was asked to; nothing of the unit of work took effect."""


class StoreFull(StoreError):
    """The disk or the configured size of the database is exhausted: `rule` names which."""

    def __init__(self, text: str, rule: str = "disk") -> None:
        super().__init__(text)
        self.rule = rule


class StoreBusy(StoreError):
    """Another process held the database for longer than the busy time-out."""


class UnitFault(StoreError):
    """A unit of work raised what it should not have: a fault of the gateway's own."""


class StoreBroken(StoreError):
    """The database or the disk under it can no longer be trusted: the process must end."""
