"""What a peer is told when the store could not do what it asked for."""

from __future__ import annotations

import pytest

from edge.errors import StoreBroken, StoreBusy, StoreError, StoreFull, UnitFault
from edge.server.store_errors import stanza_error


@pytest.mark.parametrize(
    ("error", "condition"),
    [
        (StoreFull("full"), "resource-constraint"),
        (StoreBusy("busy"), "resource-constraint"),
        (UnitFault("a fault of ours"), "internal-server-error"),
        (StoreBroken("the disk"), "internal-server-error"),
        (StoreError("else"), "internal-server-error"),
    ],
)
def test_all_of_it_may_be_tried_again_and_nothing_of_ours_is_told(
    error: StoreError, condition: str
) -> None:
    told = stanza_error(error)
    assert (told.type, told.condition) == ("wait", condition)
    assert str(error) not in told.text
