"""The errors that the gateway raises on purpose.

`FieldpostError` is for faults of the installation and of the gateway, `ServiceError` for requests
that a service refuses. Malformed XML and unusable stanzas are `edge.xmpp.errors`.
"""

from __future__ import annotations

from enum import Enum
from typing import Generic, TypeVar

R = TypeVar("R", bound=Enum)


class FieldpostError(Exception):
    """A fault that the operator has to mend; its text is one line."""


class ConfigError(FieldpostError):
    """The configuration is missing, unreadable or wrong."""


class SetupError(FieldpostError):
    """The gateway's folder, or something in it, is not in the state that the command needs."""


class StoreError(FieldpostError):
    """The database failed; nothing of the unit of work took effect."""


class StoreFull(StoreError):
    """The disk or the database is full; `rule` is `disk` or the option of the reached limit."""

    def __init__(self, text: str, rule: str = "disk") -> None:
        super().__init__(text)
        self.rule = rule


class StoreBusy(StoreError):
    """Another process held the database's lock for longer than `database.BUSY_TIMEOUT`."""


class UnitFault(StoreError):
    """A unit of work raised an unexpected exception: a bug of the gateway."""


class StoreBroken(StoreError):
    """The database or its disk can no longer be trusted: the process must end."""


class StoreDamaged(StoreBroken):
    """The database file is damaged or lost: a backup must be restored."""


class ServiceError(Exception, Generic[R]):
    """A service refuses a request.

    Each feature has a subclass with its own reasons. The feature's `xmpp` module registers the
    stanza error for each (`Hooks.error_mapping`).

    Attributes:
        reason: why the request is refused, as a member of the feature's enum.
        text: details for people, perhaps empty.
        rule: the name under which the refusal is logged, if the reason has a name of its own.
    """

    def __init__(self, reason: R, text: str = "", rule: str | None = None) -> None:
        super().__init__(text or str(reason.value))
        self.reason = reason
        self.text = text
        self.rule = rule
