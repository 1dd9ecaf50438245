"""What the store could not do, as the peer is told of it."""

from __future__ import annotations

from edge.errors import StoreBusy, StoreError, StoreFull
from edge.wire.errors import StanzaError


def stanza_error(error: StoreError) -> StanzaError:
    """Tell what the store could not do as an error that the peer may retry after."""
    if isinstance(error, StoreFull | StoreBusy):
        return StanzaError("resource-constraint", "the gateway's disk has no room just now")
    return StanzaError("internal-server-error", type="wait")
