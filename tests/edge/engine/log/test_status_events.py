from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from edge import background_tasks
from edge.config.limits import Limits
from edge.config.options import Flash
from edge.engine.limits.flash_meter import WriteMeter
from edge.engine.log import event_counters, status_events
from edge.engine.log.status_events import ROOM
from edge.engine.rules.quota import ExceededLimit
from edge.engine.rules.service_time import Run
from edge.engine.rules.space_rules import DATABASE_REMEDY, MESSAGE_ROOM
from edge.engine.store import database, events, space
from edge.engine.store.database import Transaction
from edge.engine.store.events import NewEvent, StoredEvent
from edge.server.refusal_counters import RefusalCounters
from tests.helpers.store import Clock, Gateway, new_database, opened

EXCEEDED = ExceededLimit("database_bytes", 7)


def test_a_migration_is_logged_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = new_database(tmp_path)
    gateway = Gateway(path)
    gateway.tx(status_events.log_migration)
    assert gateway.events() == [], "a new database"
    gateway.close()
    steps = database.migrations()
    newest = steps[-1][0]
    for more in (1, 2):  # two upgrades, and no start between them
        steps.append((newest + more, f"CREATE TABLE more{more} (x)"))
        monkeypatch.setattr(database, "migrations", lambda: steps)
        database.connect(path).close()
    gateway = Gateway(path)
    for _ in range(2):
        gateway.tx(status_events.log_migration)
    (event,) = gateway.events("system")
    assert (event.kind, event.name, event.level) == ("store", "migrated", "Notice")
    assert (event.value, event.tags) == (newest + 2.0, {"from": str(newest)})
    gateway.close()
    steps.append((newest + 3, "CREATE TABLE more3 (x)"))
    gateway = Gateway(path)
    gateway.tx(status_events.log_migration)
    assert gateway.events("system")[-1].tags == {"from": str(newest + 2)}
    gateway.close()


def test_the_begin_and_end_of_a_full_database_are_logged(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    free_bytes = 2 * ROOM
    sizes: list[int] = []

    def exceeded_limit(_tx: Transaction, size: int, _limits: Limits) -> ExceededLimit | None:
        sizes.append(size)
        return EXCEEDED if size > free_bytes else None

    monkeypatch.setattr(space, "exceeded_limit", exceeded_limit)

    def log_fullness() -> list[StoredEvent]:
        before = len(gateway.events("system"))
        gateway.tx(lambda tx: status_events.log_fullness(tx, Limits()))
        gateway.clock.service += 60
        return gateway.events("system")[before:]

    assert log_fullness() == []
    free_bytes = MESSAGE_ROOM - 1
    (full,) = log_fullness()
    assert (full.kind, full.name, full.level) == ("store", "full", "Warning")
    assert full.tags == {"rule": "database_bytes", "limit": "7"}
    assert full.text is not None
    assert full.text.endswith("new messages are refused; " + DATABASE_REMEDY)
    assert log_fullness() == []
    free_bytes = ROOM - 1
    assert log_fullness() == [], "less than ROOM is not a recovery"
    free_bytes = ROOM
    (recovered,) = log_fullness()
    assert (recovered.kind, recovered.name, recovered.level) == ("store", "room", "Notice")
    assert (recovered.value, recovered.unit) == (180.0, "s")
    assert log_fullness() == []
    assert sizes == [MESSAGE_ROOM, MESSAGE_ROOM, ROOM, ROOM, ROOM, MESSAGE_ROOM]


@pytest.mark.parametrize("full", [False, True])
async def test_a_heartbeat_logs_counters_if_they_fit_and_a_stop_always(
    tmp_path: Path, full: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if full:
        monkeypatch.setattr(space, "exceeded_limit", lambda *_: EXCEEDED)
    async with opened(new_database(tmp_path), Clock()) as store:
        run = Run("boot-1", 0.0)
        sources = background_tasks.HeartbeatSources(
            store, RefusalCounters(), run, Limits(), WriteMeter(store, Flash())
        )

        async def log_and_read(name: str, work: Callable[[Transaction], None]) -> list[str | None]:
            await store.run(work)
            await background_tasks.write_heartbeat(sources, NewEvent("system", name=name))
            rows = await store.run(lambda tx: events.read(tx, events.SYSTEM, 0, 100, 2**20))
            return [row.name for row in rows]

        def count_begin(tx: Transaction) -> None:
            event_counters.count(tx, "session", "began", "a@gw.example")

        names = await log_and_read("heartbeat", count_begin)
        assert names == (["heartbeat"] if full else ["began", "heartbeat"])
        assert (await log_and_read(background_tasks.STOP, count_begin))[-2:] == ["began", "stop"]
