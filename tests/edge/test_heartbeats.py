from __future__ import annotations

from pathlib import Path

import pytest

from edge import background_tasks
from edge.config.limits import Limits
from edge.config.options import Flash
from edge.engine.limits.flash_meter import WriteMeter
from edge.engine.log import refusals
from edge.engine.rules.service_time import Run
from edge.engine.store.events import SYSTEM, NewEvent, read
from edge.engine.store.group_commit import Store
from edge.errors import StoreError
from edge.server import refusal_counters
from edge.server.refusal_counters import RefusalCounters
from tests.helpers.store import Clock, new_database, opened

LIMITS = Limits()
RUN = Run("boot-1", 0.0)


async def write_heartbeat(store: Store, counters: RefusalCounters, name: str = "heartbeat") -> None:
    meter = WriteMeter(store, Flash())
    sources = background_tasks.HeartbeatSources(store, counters, RUN, LIMITS, meter)
    await background_tasks.write_heartbeat(sources, NewEvent("system", name=name))


async def logged_refusals(store: Store) -> list[tuple[str | None, str | None, float | None]]:
    rows = await store.run(lambda tx: list(read(tx, SYSTEM, 0, 1000, 2**20)))
    return [(row.source, row.name, row.value) for row in rows if row.kind == "limit"]


def test_refusals_are_counted_by_source() -> None:
    counters = RefusalCounters()
    counters.add("tls", source="192.0.2.1")
    counters.add("tls", 2, "192.0.2.1")
    counters.add("tls", source="2001:db8::/64")
    counters.add("tls")
    assert counters.take() == {"tls": 1}
    assert counters.take_sources() == {("192.0.2.1", "tls"): 3, ("2001:db8::/64", "tls"): 1}
    assert (counters.take(), counters.take_sources()) == ({}, {})


def test_further_sources_count_as_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refusal_counters, "SOURCES", 2)
    counters = RefusalCounters()
    for number in range(5):
        counters.add("tls", number + 1, f"192.0.2.{number}")
    counters.add("tls", source="192.0.2.0")
    counters.add("authentication", source="192.0.2.0")
    assert counters.take_sources() == {
        ("192.0.2.0", "tls"): 2,
        ("192.0.2.1", "tls"): 2,
        (refusals.OTHER_SOURCE, "tls"): 12,
        (refusals.OTHER_SOURCE, "authentication"): 1,
    }


def test_counts_that_are_put_back_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    counters = RefusalCounters()
    for number in range(4):
        counters.add("tls", source=f"192.0.2.{number}")
    counts, sources = counters.take(), counters.take_sources()
    counters.add("sessions")
    monkeypatch.setattr(refusal_counters, "SOURCES", 2)
    counters.put_back(counts, sources)
    assert counters.take() == {"sessions": 1}
    assert sum(counters.take_sources().values()) == 4
    assert len(sources) == 4


async def test_a_heartbeat_logs_refusals_once_per_window(tmp_path: Path) -> None:
    clock, counters = Clock(), RefusalCounters()
    async with opened(new_database(tmp_path), clock) as store:
        counters.add("authentication", 3, "192.0.2.1")
        counters.add("certificate_files")
        await write_heartbeat(store, counters)
        assert await logged_refusals(store) == [
            ("192.0.2.1", "authentication", 3.0),
            (None, "certificate_files", 1.0),
        ]
        counters.add("authentication", 2, "192.0.2.1")
        await write_heartbeat(store, counters)
        assert len(await logged_refusals(store)) == 2
        counters.add("authentication", 5, "192.0.2.1")
        await write_heartbeat(store, counters, background_tasks.STOP)
        assert (await logged_refusals(store))[2:] == [("192.0.2.1", "authentication", 7.0)]


@pytest.mark.parametrize(
    ("rule", "limit"),
    [
        ("connections", {"limit": "200"}), ("authentication_limit", {"limit": "20"}),
        ("authenticate_time", {"limit": "30"}), ("authentication", {}), ("not-well-formed", {}),
        ("database_bytes", {"limit": str(LIMITS.database_bytes)}),
    ],
)  # fmt: skip
async def test_a_refusal_names_its_limit(tmp_path: Path, rule: str, limit: dict[str, str]) -> None:
    counters = RefusalCounters()
    counters.add(rule, source="192.0.2.1")
    async with opened(new_database(tmp_path)) as store:
        await write_heartbeat(store, counters)
        (row, _beat) = await store.run(lambda tx: read(tx, SYSTEM, 0, 10, 2**20))
        assert row.tags == limit


async def test_counts_that_cannot_be_logged_are_kept(tmp_path: Path) -> None:
    counters = RefusalCounters()
    counters.add("tls", source="192.0.2.1")
    counters.add("database")
    async with opened(new_database(tmp_path)) as store:
        pass
    with pytest.raises(StoreError):
        await write_heartbeat(store, counters)
    assert counters.take() == {"database": 1}
    assert counters.take_sources() == {("192.0.2.1", "tls"): 1}
