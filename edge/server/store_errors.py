"""Conversion of store errors to stanza errors and to the names of refusal rules."""

from __future__ import annotations

from typing import Final

from edge.errors import StoreBusy, StoreError, StoreFull
from edge.xmpp.errors import StanzaError

DISK_FULL: Final = "the gateway's disk is full"

_TEXTS: Final = {"database_bytes": "the limit database_bytes is reached"}


def stanza_error(error: StoreError) -> StanzaError:
    """Return the stanza error for a store error; its type `wait` lets the peer try again."""
    if isinstance(error, StoreFull):
        return StanzaError("resource-constraint", _TEXTS.get(error.rule, DISK_FULL))
    if isinstance(error, StoreBusy):
        return StanzaError("resource-constraint", "the gateway's database is busy")
    return StanzaError("internal-server-error", type="wait")


def refusal_rule(error: StoreError) -> str:
    """Return the rule under which a request that failed with `error` counts as refused."""
    if isinstance(error, StoreFull):
        return error.rule
    return "database_busy" if isinstance(error, StoreBusy) else "database"
