"""What the store could not do, as the peer and the event log are told of it."""

from __future__ import annotations

import pytest

from edge.errors import StoreBroken, StoreBusy, StoreError, StoreFull
from edge.server.store_errors import rule, stanza_error

NO_ROOM = "the gateway's disk has no room just now"


@pytest.mark.parametrize(
    ("error", "name", "condition", "text"),
    [
        (StoreFull("x"), "disk", "resource-constraint", NO_ROOM),
        (
            StoreFull("x", "database_bytes"),
            "database_bytes",
            "resource-constraint",
            "database_bytes is reached",
        ),
        (StoreBusy("x"), "database_busy", "resource-constraint", NO_ROOM),
        (StoreBroken("x"), "database", "internal-server-error", ""),
        (StoreError("x"), "database", "internal-server-error", ""),
    ],
)
def test_what_is_told(error: StoreError, name: str, condition: str, text: str) -> None:
    told = stanza_error(error)
    assert (rule(error), told.condition, told.type) == (name, condition, "wait")
    assert told.text == text
