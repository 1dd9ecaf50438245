from __future__ import annotations

import pytest

from edge.engine.dispatch.outputs import EndReason
from edge.errors import StoreBroken, StoreBusy, StoreError, StoreFull, UnitFault
from edge.server.refusal_counters import RefusalCounters
from edge.server.xmpp.errors import DISK_FULL, event_name, stanza_error, stream_error


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
    counters, reply = RefusalCounters(), stanza_error(error)
    counters.add_store_error(error)
    assert counters.take() == {rule: 1}
    assert (reply.condition, reply.type) == (condition, "wait")
    assert reply.text == text


@pytest.mark.parametrize("reason", EndReason)
def test_every_end_has_a_stream_error_and_a_name_in_the_event_log(reason: EndReason) -> None:
    error = stream_error(reason)
    own_names = {EndReason.REPLACED: "replaced", EndReason.EVICTED: "evicted"}
    assert event_name(reason) == own_names.get(reason, error.condition)
