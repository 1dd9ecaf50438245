from __future__ import annotations

from pathlib import Path

from edge.engine.store import message_counts
from edge.engine.store.database import Transaction
from edge.engine.store.message_counts import DELIVERED, REFUSED, MessageCounts
from tests.helpers.store import new_database, opened


async def test_counts_are_passed_on_after_the_commit_without_failed_units(tmp_path: Path) -> None:
    counted: list[MessageCounts] = []
    async with opened(new_database(tmp_path)) as store:
        store.on_counted = counted.append

        def unit(tx: Transaction) -> None:
            message_counts.count(tx, 1, DELIVERED)
            message_counts.count(tx, 1, DELIVERED)

        def failing(tx: Transaction) -> None:
            message_counts.count(tx, 2, REFUSED)
            raise ZeroDivisionError

        outcomes: list[object] = []
        for work in (unit, failing, unit):
            store.submit(work, outcomes.append)
        await store.run(lambda _tx: None)
    assert len(outcomes) == 3
    total: dict[tuple[int, str], int] = {}
    for counts in counted:
        for key, times in counts.items():
            total[key] = total.get(key, 0) + times
    assert {key: times for key, times in total.items() if times} == {(1, DELIVERED): 4}
