from __future__ import annotations

import asyncio
import math
import random
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from edge import background_tasks
from edge.config import annotated_file, load
from edge.config.limits import REJECTED_SEGMENT_BYTES, Limits
from edge.config.load import Config
from edge.config.options import Flash, Uplink
from edge.engine.limits.flash_meter import WriteMeter
from edge.engine.rules.service_time import Run
from edge.engine.store import events
from edge.engine.store.database import Transaction
from edge.engine.store.events import LANES, LOGS, READINGS, SYSTEM, NewEvent
from edge.engine.store.group_commit import Store
from edge.errors import StoreBroken, StoreError, StoreFull
from edge.features.eventlog.rules.epoch import Hardware
from edge.features.eventlog.rules.levels import LEVELS, NEVER, at_least
from edge.features.eventlog.store import epochs, segments
from edge.ops.data import events as admin
from edge.ops.machine import hardware
from edge.server.refusal_counters import RefusalCounters
from edge.uplink import setup
from edge.uplink.backlog import (
    NOT_SEALED,
    GatewayFacts,
    StoreBacklog,
    begin_epoch,
    disk_used,
)
from sync.segment import Segment, decode, digest_of
from sync.uplink.batcher import BatchLimits
from sync.uplink.interfaces import BacklogUnavailable, HighWatermark, Notice, SendOrder
from sync.uplink.sealer import Sealer
from tests.helpers.backlog import FixedState
from tests.helpers.store import DOMAIN, EPOCH, Clock, append, new_database, opened

CONFIG = load.parse(annotated_file.render(DOMAIN).encode())


class Gateway(NamedTuple):
    """A gateway's folder, its store, and the store's clock."""

    folder: Path
    store: Store
    clock: Clock


@pytest.fixture
async def gw(tmp_path: Path) -> AsyncIterator[Gateway]:
    clock = Clock()
    async with opened(new_database(tmp_path), clock) as store:
        yield Gateway(tmp_path, store, clock)


def with_limits(limits: Limits) -> Config:
    return Config(gateway=CONFIG.gateway, limits=limits)


def backlog_of(gw: Gateway, settings: Config = CONFIG) -> StoreBacklog:
    return StoreBacklog(gw.store, settings, FixedState())


def sealer(
    gw: Gateway, settings: Config = CONFIG, count: int = 10, backlog: StoreBacklog | None = None
) -> Sealer:
    backlog = backlog or backlog_of(gw, settings)
    return Sealer(
        DOMAIN,
        backlog,
        GatewayFacts(gw.folder, gw.clock, "boot", "Linux", "fieldpost 1", bytes(32)),
        BatchLimits(count, 300.0, 1024 * 1024),
        clock=lambda: gw.clock().service,
        on_sealed=lambda: None,
        send_notice=backlog.log_notice,
    )


def some_events(seed: int, count: int) -> list[tuple[str, NewEvent]]:
    """Make events of every lane, with and without each of their fields."""
    rng = random.Random(seed)

    def maybe(value: Any) -> Any:
        return rng.choice((value, None))

    def make_event(number: int) -> NewEvent:
        return NewEvent(
            kind=rng.choice(("reading", "log", "system")),
            source=maybe("pump1@gw.example/fw"),
            topic=maybe("plant/boiler"),
            name=maybe(f"n{number}"),
            value=maybe(rng.uniform(-1e6, 1e6)),
            unit=maybe("°C"),
            level=maybe("Warning"),
            text=maybe("text\n<&>"),
            qos=maybe(rng.randrange(3)),
            latency_ms=maybe(rng.randrange(10**6)),
            tags=maybe({"node": "n", "ä": "\U0001f321"}),
        )

    return [(rng.choice(LANES), make_event(number)) for number in range(count)]


async def write(gw: Gateway, written: Sequence[tuple[str, NewEvent]]) -> None:
    for lane, event in written:
        gw.clock.service += 0.25
        await gw.store.run(lambda tx, lane=lane, event=event: events.append(tx, lane, event))  # type: ignore[misc]


def as_tuples(rows: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Convert events of the store or of a segment to plain tuples."""
    return [(*row[:-1], dict(row[-1])) for row in rows]


async def unsealed(gw: Gateway) -> dict[str, list[tuple[Any, ...]]]:
    def query(tx: Transaction) -> dict[str, list[tuple[Any, ...]]]:
        return {lane: as_tuples(events.read(tx, lane, 0, 100_000, 10**9)) for lane in LANES}

    return await gw.store.read(query)


async def ship(gw: Gateway, settings: Config = CONFIG) -> list[Segment]:
    """Acknowledge all waiting segments, oldest first, and return them."""
    backlog = backlog_of(gw, settings)
    shipped_segments: list[Segment] = []
    while (waiting := await backlog.next_waiting()) is not None:
        segment = decode(waiting.data)
        assert segment.digest == waiting.digest == digest_of(waiting.data)
        assert segment.header.identity == waiting.identity
        shipped_segments.append(segment)
        await backlog.acknowledge(waiting.digest)
    return shipped_segments


NO_EVENTS: dict[str, list[tuple[Any, ...]]] = {lane: [] for lane in LANES}


def check_chain(chain: list[Segment]) -> dict[str, list[tuple[Any, ...]]]:
    """Check that segments of the first epoch are chained; return their events by lane."""
    by_lane: dict[str, list[tuple[Any, ...]]] = {lane: [] for lane in LANES}
    previous = dict.fromkeys(LANES, bytes(32))
    for header, events_of, digest in chain:
        assert (header.epoch, header.previous) == (EPOCH, previous[header.lane])
        previous[header.lane] = digest
        by_lane[header.lane] += as_tuples(events_of)
    return by_lane


async def test_every_event_is_in_one_segment_unchanged(gw: Gateway) -> None:
    await write(gw, some_events(seed=1, count=120))
    expected = await unsealed(gw)
    assert await sealer(gw).flush() >= 12
    assert await unsealed(gw) == NO_EVENTS
    sealed = await ship(gw)
    for segment in sealed:
        header = segment.header
        assert (header.gateway, header.dropped, header.boot) == (DOMAIN, (), "boot")
        assert (header.software, header.service_seconds) == ("fieldpost 1", gw.clock.service)
        assert header.disk_used > 0
    assert check_chain(sealed) == expected


async def test_lanes_report_their_unsealed_events(gw: Gateway) -> None:
    backlog = backlog_of(gw)
    await write(gw, [(LOGS, NewEvent("log")), (LOGS, NewEvent("log"))])
    lanes = {state.lane: state for state in await backlog.lanes()}
    assert set(lanes) == set(LANES)
    assert (lanes[LOGS].events, lanes[LOGS].oldest) == (2, gw.clock.service - 0.25)
    assert (lanes[READINGS].events, lanes[READINGS].oldest) == (0, None)
    assert all(state.urgent is None for state in lanes.values())
    await gw.store.run(lambda tx: events.set_urgent(tx, at_least("Error")))
    await write(gw, [(LOGS, NewEvent("log", level="Alert"))])
    lanes = {state.lane: state for state in await backlog.lanes()}
    assert (lanes[LOGS].urgent, lanes[SYSTEM].urgent) == (gw.clock.service, None)
    await sealer(gw).flush()
    assert all((state.oldest, state.urgent) == (None, None) for state in await backlog.lanes())


def test_at_least_returns_a_level_and_those_above() -> None:
    assert at_least("Debug") == LEVELS
    assert at_least("Alert") == ("Alert", "Emergency")
    assert at_least(NEVER) == ()


async def test_eviction_events_do_not_cause_endless_eviction(gw: Gateway) -> None:
    settings = with_limits(Limits(backlog_bytes=40_000))
    backlog = backlog_of(gw, settings)
    single_event_sealer = sealer(gw, settings, count=1)
    await write(gw, [(READINGS, NewEvent("reading"))] * 120)
    for _ in range(10):
        await single_event_sealer.flush()
    assert all(state.events == 0 for state in await backlog.lanes())
    names = {event.name for segment in await ship(gw) for event in segment.events}
    assert "evicted" in names


@pytest.mark.parametrize("flood_level", ["Informational", "Critical"])
async def test_a_flood_of_one_device_evicts_no_alarm_of_another(
    gw: Gateway, flood_level: str
) -> None:
    """An earlier event of the other device, which is no alarm, stays, too."""
    settings = with_limits(Limits(backlog_bytes=2**20))
    await gw.store.run(lambda tx: events.set_urgent(tx, at_least("Critical")))
    seal = sealer(gw, settings, count=4)

    async def log(device: str, text: str, level: str) -> None:
        source = f"{device}@{DOMAIN}/fw"
        await write(gw, [(LOGS, NewEvent("log", source, text=text, level=level))])

    await log("pump2", "started", "Informational")
    await seal.flush()
    noise = random.Random(1)
    for number in range(80):
        if number == 10:
            await log("pump2", "boiler is dry", "Critical")
        await log("pump1", noise.randbytes(15_000).hex(), flood_level)
        if number % 4 == 3:
            await seal.flush()
    await seal.flush()
    kept = [e for segment in await ship(gw) for e in segment.events if segment.header.lane == LOGS]
    assert {"started", "boiler is dry"} <= {event.text for event in kept}
    flood = [event for event in kept if event.source == f"pump1@{DOMAIN}/fw"]
    assert 0 < len(flood) < 80


async def stop(gw: Gateway, settings: Config = CONFIG) -> StoreBacklog:
    """Seal and stop as the gateway does; return the backlog."""
    backlog, meter = backlog_of(gw, settings), WriteMeter(gw.store, Flash())
    sources = background_tasks.HeartbeatSources(
        gw.store, RefusalCounters(), Run("boot-1", 0.0), settings.limits, meter
    )
    await setup.seal_and_stop(sources, sealer(gw, settings, backlog=backlog), backlog)
    return backlog


async def test_stop_with_a_full_backlog_ends_with_the_closing_event(gw: Gateway) -> None:
    settings = with_limits(Limits(backlog_bytes=4000))
    for _ in range(20):
        await write(gw, [(READINGS, NewEvent("reading"))])
        await sealer(gw, settings).flush()
    await write(gw, [(lane, NewEvent("log")) for lane in LANES])
    await stop(gw, settings)
    assert await unsealed(gw) == NO_EVENTS
    system = [segment for segment in await ship(gw) if segment.header.lane == SYSTEM]
    assert (system[-1].events[-1].kind, system[-1].events[-1].name) == ("system", "stop")


async def test_nothing_is_logged_after_the_closing_event(gw: Gateway) -> None:
    backlog = await stop(gw)
    last = await backlog.next_waiting()
    assert last is not None
    for late_call in (
        backlog.log_notice(Notice("shipping", "all is well")),
        backlog.set_aside(last.digest, "conflict"),
        backlog.begin_epoch("centre-differs"),
    ):
        with pytest.raises(BacklogUnavailable, match="is stopping"):
            await late_call
    assert await unsealed(gw) == NO_EVENTS
    assert await backlog.next_waiting() == last
    await backlog.acknowledge(last.digest)
    assert await backlog.next_waiting() is None


async def test_new_epoch_seals_all_earlier_events(gw: Gateway) -> None:
    await write(gw, some_events(seed=4, count=60))
    expected = await unsealed(gw)
    await sealer(gw, count=7).flush()
    await write(gw, some_events(seed=6, count=60))
    for lane, later in (await unsealed(gw)).items():
        expected[lane] += later
    settings = Config(gateway=CONFIG.gateway, uplink=Uplink(segment_events=9))
    backlog = backlog_of(gw, settings)
    new_epoch = await backlog.begin_epoch("another-board")
    assert await backlog.epoch() == new_epoch > EPOCH
    zero = HighWatermark(0, bytes(32))
    assert await backlog.high_watermarks() == dict.fromkeys(LANES, zero)
    rows = await unsealed(gw)
    assert (rows[READINGS], rows[LOGS]) == ([], [])
    (first,) = rows[SYSTEM]
    assert (first[0], first[3], first[6], first[9]) == (1, "uplink", "epoch", "Warning")
    assert first[-1] == {"reason": "another-board", "before": EPOCH}
    assert check_chain(await ship(gw)) == expected
    latest = [(epoch.epoch, epoch.reason) for epoch in await gw.store.read(epochs.latest)]
    assert latest == [(new_epoch, "another-board"), (EPOCH, "created")]


async def test_start_on_other_hardware_or_as_a_copy_begins_an_epoch(
    gw: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def start(board: str | None, card: str | None) -> list[str]:
        monkeypatch.setattr(hardware, "read", lambda _folder: Hardware(board, card))
        await setup.begin_epoch_if_needed(gw.folder, gw.store, CONFIG, FixedState())
        latest = await gw.store.read(epochs.latest)
        return [str(epoch.reason) for epoch in reversed(latest)]

    reasons = ["created"]
    assert await start(None, None) == reasons
    assert await start("b1", None) == reasons, "the first time it is remembered"
    assert await start(None, "c1") == reasons
    reasons += ["another-card"]
    assert await start("b1", "c2") == reasons
    assert await start("b1", "c2") == reasons
    reasons += ["another-board"]
    assert await start("b2", "c3") == reasons
    await gw.store.run(epochs.mark_copy)
    reasons += ["restored"]
    for _ in range(2):
        assert await start("b2", "c3") == reasons
    rows = (await unsealed(gw))[SYSTEM]
    assert [(row[0], row[6], row[-1]["reason"]) for row in rows] == [(1, "epoch", "restored")]


async def test_events_around_a_new_epoch_are_numbered_correctly(gw: Gateway) -> None:
    state = await FixedState().state()

    def unit(tx: Transaction) -> None:
        events.append(tx, LOGS, NewEvent("log", text="old"))
        begin_epoch(tx, CONFIG, state, "restored")
        events.append(tx, LOGS, NewEvent("log", text="new"))
        events.append(tx, SYSTEM, NewEvent("system", name="start"))

    await gw.store.run(unit)
    rows = await unsealed(gw)
    assert [(row[0], row[10]) for row in rows[LOGS]] == [(1, "new")]
    assert [(row[0], row[6]) for row in rows[SYSTEM]] == [(1, "epoch"), (2, "start")]
    (segment,) = await ship(gw)
    assert [event.text for event in segment.events] == ["old"]


async def test_draft_of_an_earlier_epoch_is_not_sealed(gw: Gateway) -> None:
    backlog = backlog_of(gw)
    await write(gw, [(LOGS, NewEvent("log"))])
    draft = await backlog.draft(LOGS, 10, 10_000)
    assert draft is not None
    await backlog.begin_epoch("restored")
    await write(gw, [(LOGS, NewEvent("log"))] * 2)
    assert not await backlog.seal(draft, b"data", bytes(32))
    assert len((await unsealed(gw))[LOGS]) == 2


async def test_unsealable_events_are_reported_at_the_end_of_an_epoch(gw: Gateway) -> None:
    await write(gw, [(READINGS, NewEvent("reading", value=math.inf))] * 3)
    new_epoch = await backlog_of(gw).begin_epoch("restored")
    rows = await unsealed(gw)
    assert rows[READINGS] == []
    assert await ship(gw) == []
    tags = {"epoch": EPOCH, "lane": READINGS, "first": "1", "last": "3", "reason": NOT_SEALED}
    assert [(row[6], row[7], row[-1]) for row in rows[SYSTEM]] == [
        ("epoch", None, {"reason": "restored", "before": EPOCH}),
        ("evicted", 3.0, tags),
    ]
    assert new_epoch != EPOCH


async def test_backlog_returns_high_watermarks_and_digests(gw: Gateway) -> None:
    backlog = backlog_of(gw)
    await write(gw, [(LOGS, NewEvent("log"))] * 5)
    await sealer(gw, count=2).flush()
    oldest, newest = await backlog.next_waiting(), await backlog.next_waiting(SendOrder.NEWEST)
    assert oldest is not None
    assert newest is not None
    assert (oldest.identity.first_seq, newest.identity.last_seq) == (1, 5)
    assert (await backlog.high_watermarks())[LOGS] == HighWatermark(5, newest.digest)
    known = [await backlog.digest_at(EPOCH, LOGS, number) for number in range(7)]
    assert known == [None, oldest.digest, oldest.digest, *[known[4]] * 2, newest.digest, None]
    assert len({*known}) == 4
    await ship(gw)
    await gw.store.run(lambda tx: segments.acknowledge(tx, bytes(32), 0))
    known = [await backlog.digest_at(EPOCH, LOGS, number) for number in range(7)]
    assert known == [None] * 5 + [newest.digest, None]
    assert await backlog.digest_at(EPOCH, SYSTEM, 0) == bytes(32)
    assert await backlog.digest_at("01JY0000000000000000000000", LOGS, 5) is None


async def test_rejected_segment_is_kept_and_reported(gw: Gateway) -> None:
    backlog = backlog_of(gw)
    await write(gw, [(LOGS, NewEvent("log"))])
    await sealer(gw).flush()
    waiting = await backlog.next_waiting()
    assert waiting is not None
    for _ in range(2):
        await backlog.set_aside(waiting.digest, "other bytes are there")
    assert await backlog.next_waiting() is None
    (event,) = (await unsealed(gw))[SYSTEM]
    reason = "other bytes are there"
    assert event[3:8] == ("uplink", None, None, "set_aside", None)
    assert event[10] == f"segment {waiting.digest.hex()[:16]}: {reason}"
    tags = {"epoch": EPOCH, "lane": LOGS, "first": "1", "last": "1", "reason": reason}
    assert event[-1] == tags
    assert len(waiting.data) < REJECTED_SEGMENT_BYTES


async def test_waiting_for_an_empty_backlog_ends(gw: Gateway) -> None:
    backlog = backlog_of(gw)
    await asyncio.wait_for(backlog.empty(), 10)
    await write(gw, [(LOGS, NewEvent("log"))] * 2)
    await sealer(gw, count=1).flush()
    task = asyncio.ensure_future(backlog.empty())
    for settle in (backlog.acknowledge, lambda digest: backlog.set_aside(digest, "refused")):
        waiting = await backlog.next_waiting()
        assert waiting is not None
        assert not task.done()
        await settle(waiting.digest)
    await asyncio.wait_for(task, 10)


async def test_notices_become_events(gw: Gateway) -> None:
    backlog = backlog_of(gw)
    for name in ("shipping", "lane-stuck"):
        await backlog.log_notice(Notice(name, f"about {name}"))
    rows = (await unsealed(gw))[SYSTEM]
    assert [(row[3], row[6], row[9], row[10]) for row in rows] == [
        ("uplink", "shipping", "Informational", "about shipping"),
        ("uplink", "lane-stuck", "Warning", "about lane-stuck"),
    ]


async def test_store_errors_make_the_backlog_unavailable(tmp_path: Path) -> None:
    def fail(error: StoreError) -> Any:
        def unit(_tx: Transaction) -> None:
            raise error

        return unit

    async with opened(new_database(tmp_path)) as store:
        backlog = StoreBacklog(store, CONFIG, FixedState())
        with pytest.raises(BacklogUnavailable, match="no room"):
            await backlog._run(fail(StoreFull("no room")))
        for run_unit in (backlog._run, backlog._read):
            with pytest.raises(StoreBroken):
                await run_unit(fail(StoreBroken("gone")))
    for call in (backlog.lanes(), backlog.acknowledge(bytes(32))):
        with pytest.raises(BacklogUnavailable, match="is closed"):
            await call


def test_disk_used_covers_the_whole_folder(tmp_path: Path) -> None:
    before = disk_used(tmp_path)
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "file").write_bytes(b"x" * 100_000)
    assert 100_000 <= disk_used(tmp_path) - before <= 130_000
    (tmp_path / "dangling").symlink_to(tmp_path / "nothing")
    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    assert disk_used(tmp_path) >= 100_000


def read(tmp_path: Path) -> dict[tuple[str, str], list[tuple[Any, ...]]]:
    by_lane: dict[tuple[str, str], list[tuple[Any, ...]]] = {}
    for epoch, lane, event in admin.read(tmp_path):
        by_lane.setdefault((epoch, lane), []).append((*event[:-1], dict(event[-1])))
    return by_lane


async def test_log_reads_the_same_before_and_after_sealing(
    gw: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admin, "PAGE", 7)
    await write(gw, some_events(seed=2, count=80))
    expected = {(EPOCH, lane): rows for lane, rows in (await unsealed(gw)).items()}
    assert await asyncio.to_thread(read, gw.folder) == expected
    await sealer(gw).flush()
    assert await asyncio.to_thread(read, gw.folder) == expected
    await write(gw, some_events(seed=3, count=30))
    for lane, rows in (await unsealed(gw)).items():
        expected[EPOCH, lane] += rows
    assert await asyncio.to_thread(read, gw.folder) == expected
    await ship(gw)
    assert await asyncio.to_thread(read, gw.folder) == expected, "recent segments are kept"


async def test_log_is_read_over_several_epochs(gw: Gateway) -> None:
    await write(gw, [(LOGS, NewEvent("log", text="old"))] * 3)
    await sealer(gw, count=2).flush()
    await write(gw, [(LOGS, NewEvent("log", text="old"))])
    new_epoch = await backlog_of(gw).begin_epoch("restored")
    await write(gw, [(LOGS, NewEvent("log", text="new"))] * 2)
    for _ in range(2):
        by_lane = await asyncio.to_thread(read, gw.folder)
        assert list(by_lane) == [(EPOCH, LOGS), (new_epoch, SYSTEM), (new_epoch, LOGS)]
        texts = {key[0]: [row[10] for row in rows] for key, rows in by_lane.items()}
        assert texts == {EPOCH: ["old"] * 4, new_epoch: ["new"] * 2}
        await sealer(gw).flush()


@pytest.mark.parametrize("ends", [False, True])
async def test_sealing_or_a_new_epoch_during_reading_skips_and_repeats_nothing(
    gw: Gateway, monkeypatch: pytest.MonkeyPatch, ends: bool
) -> None:
    """The epoch in which the reading began is read to its end."""
    monkeypatch.setattr(admin, "PAGE", 3)
    await gw.store.run(lambda tx: append(tx, LOGS, 5, NewEvent("log")))
    reading = admin.read(gw.folder)
    rows = [next(reading) for _ in range(3)]
    if ends:
        await backlog_of(gw).begin_epoch("restored")
    else:
        await sealer(gw).flush()
    await gw.store.run(lambda tx: append(tx, LOGS, 2, NewEvent("log")))
    rows += reading
    numbers = range(1, 6 if ends else 8)
    assert [(row.epoch, row.event.seq) for row in rows] == [(EPOCH, seq) for seq in numbers]


async def test_lanes_are_merged_by_time(gw: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admin, "PAGE", 3)
    lanes = [SYSTEM, LOGS, READINGS, READINGS, LOGS, SYSTEM, LOGS] * 4
    for half in (lanes[:17], lanes[17:]):
        await sealer(gw).flush()
        for lane in half:
            gw.clock.service += 0.5
            await gw.store.run(lambda tx, lane=lane: append(tx, lane, 1, NewEvent("log")))  # type: ignore[misc]
    reading = admin.read(gw.folder)
    rows = [next(reading) for _ in range(20)]
    await sealer(gw).flush()
    rows += reading
    assert [row.lane for row in rows] == lanes
    times = [row.event.time for row in rows]
    assert times == sorted(set(times))


async def test_simultaneous_events_are_ordered_by_lane_and_number(gw: Gateway) -> None:
    for lane in (SYSTEM, READINGS, LOGS):
        await gw.store.run(lambda tx, lane=lane: append(tx, lane, 2, NewEvent("log")))  # type: ignore[misc]
    order = [(row.lane, row.event.seq) for row in admin.read(gw.folder)]
    assert order == [(lane, seq) for lane in (LOGS, READINGS, SYSTEM) for seq in (1, 2)]


async def test_clock_set_back_hides_no_event(gw: Gateway) -> None:
    for step in (100, -50, 10):
        gw.clock.wall_offset += step
        await gw.store.run(lambda tx: append(tx, LOGS, 1, NewEvent("log")))
        await gw.store.run(lambda tx: append(tx, SYSTEM, 1, NewEvent("log")))
    by_lane = await asyncio.to_thread(read, gw.folder)
    numbers = {lane: [row[0] for row in rows] for (_, lane), rows in by_lane.items()}
    assert numbers == {LOGS: [1, 2, 3], SYSTEM: [1, 2, 3]}
