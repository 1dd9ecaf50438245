"""What the store could not do, as the peer is told of it."""

from __future__ import annotations

from typing import Final

from edge.errors import StoreBusy, StoreError, StoreFull
from edge.xmpp.errors import StanzaError

NO_ROOM: Final = "the gateway's disk has no room just now"

FULL: Final = {"database_bytes": "database_bytes is reached"}


def stanza_error(error: StoreError) -> StanzaError:
    """Tell what the store could not do as an error that the peer may retry after."""
    if isinstance(error, StoreFull):
        return StanzaError("resource-constraint", FULL.get(error.rule, NO_ROOM))
    if isinstance(error, StoreBusy):
        return StanzaError("resource-constraint", NO_ROOM)
    return StanzaError("internal-server-error", type="wait")


def rule(error: StoreError) -> str:
    """Name what refused, for those who count it."""
    if isinstance(error, StoreFull):
        return error.rule
    return "database_busy" if isinstance(error, StoreBusy) else "database"
