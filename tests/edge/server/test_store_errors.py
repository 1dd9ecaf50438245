from __future__ import annotations

import pytest

from edge.errors import StoreBroken, StoreBusy, StoreError, StoreFull, UnitFault
from edge.server.store_errors import DISK_FULL, refusal_rule, stanza_error


@pytest.mark.parametrize(
    ("error", "rule", "condition", "text"),
    [
        (StoreFull("detail"), "disk", "resource-constraint", DISK_FULL),
        (StoreFull("detail", "database_bytes"), "database_bytes", "resource-constraint",
         "the limit database_bytes is reached"),
        (StoreBusy("detail"), "database_busy", "resource-constraint",
         "the gateway's database is busy"),
        (StoreBroken("detail"), "database", "internal-server-error", ""),
        (UnitFault("detail"), "database", "internal-server-error", ""),
        (StoreError("detail"), "database", "internal-server-error", ""),
    ],
)  # fmt: skip
def test_every_store_error_may_be_retried_and_reveals_no_detail(
    error: StoreError, rule: str, condition: str, text: str
) -> None:
    reply = stanza_error(error)
    assert (refusal_rule(error), reply.condition, reply.type) == (rule, condition, "wait")
    assert reply.text == text
