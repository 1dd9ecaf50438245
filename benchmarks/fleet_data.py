"""Events and segments of a simulated fleet, in segments of a chosen size.

The events are those of `fieldpost-sim fleet` without faults. Real gateways also seal by time; here
each segment has the same number of events, so that sizes can be compared.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple

from benchmarks.report import Settings
from firmware_sim.fleet.faults import FAULTS
from firmware_sim.fleet.logs import logs
from firmware_sim.fleet.plan import Plan, make_plans
from firmware_sim.fleet.rows import Timed, numbered
from firmware_sim.fleet.sensors import readings
from firmware_sim.fleet.settings import FleetSettings
from firmware_sim.fleet.simulate import write_fleet
from firmware_sim.fleet.system_events import system_events
from sync.segment import Event, SegmentHeader, digest_of, encode, identity_path

START: Final = 1_790_000_000_000
"""Start of the simulated time: 2026-09-21, in ms since 1970 UTC."""

READINGS: Final = 20_000
"""Readings per gateway and day: eight sensors, each every 30 seconds."""

SEAL_S: Final = 3_600.0
"""Seconds after which a gateway of a fleet with faults seals. The default of 300 would make twelve
times as many files, which does not affect the reports."""


class PooledSegment(NamedTuple):
    """A segment in a pool: its path there, the time it is sealed in seconds, and its events."""

    path: str
    moment: float
    events: int


def fleet(gateways: int, days: int, readings_a_day: int = READINGS) -> FleetSettings:
    """Return a fleet without faults, always the same."""
    return FleetSettings(gateways, days, 1, START, readings_a_day, faults=frozenset())


def write_simulated(settings: Settings, root: Path, gateways: int, days: int) -> dict[str, Any]:
    """Write the segments of a fleet with all faults below `root / SEGMENTS`; return its truth."""
    fleet_settings = FleetSettings(
        gateways,
        days,
        1,
        START,
        readings=round(settings.choose(4_000, 100)),
        seal=settings.choose(SEAL_S, 6 * SEAL_S),
        faults=frozenset(FAULTS),
    )
    return write_fleet(fleet_settings, root)


def events_of(settings: FleetSettings, lane: str, count: int) -> list[Event]:
    """Return the first events of a lane of the fleet's first gateway."""
    timed = islice(_lane(make_plans(settings)[0], lane), count)
    return numbered(1, (event for _, event in timed))


def header(plan: Plan, lane: str, first: int, last: int, previous: bytes) -> SegmentHeader:
    """Return the header of a segment that is sealed when the simulation starts."""
    run = plan.life.runs[0]
    return SegmentHeader(
        gateway=plan.name,
        epoch=run.epoch,
        lane=lane,
        first_seq=first,
        last_seq=last,
        previous=previous,
        boot=run.boot,
        sealed_at=plan.settings.start,
        service_seconds=500_000.0,
        clock=True,
        firmware="image-7",
        software=run.version,
        config_hash=bytes(range(32)),
        disk_used=40_000_000,
    )


def write_pool(settings: FleetSettings, size: int, root: Path) -> list[PooledSegment]:
    """Write the readings of a fleet as segments of `size` events; return them in order of arrival.

    The files' modification times are those of arrival. Readings that do not fill a segment are
    dropped. One process per core writes.
    """
    plans = make_plans(settings)
    work = partial(_write, root, size)
    with ProcessPoolExecutor(mp_context=multiprocessing.get_context("spawn")) as pool:
        segments = [filed for some in pool.map(work, plans) for filed in some]
    return sorted(segments, key=lambda filed: (filed.moment, filed.path))


def place(pool: Path, files: Iterable[PooledSegment], root: Path) -> None:
    """Link segments of a pool into a landing."""
    folders = set()
    for filed in files:
        target = root / filed.path
        if target.parent not in folders:
            target.parent.mkdir(parents=True, exist_ok=True)
            folders.add(target.parent)
        os.link(pool / filed.path, target)


def _write(root: Path, size: int, plan: Plan) -> list[PooledSegment]:
    segments: list[PooledSegment] = []
    for moment, path, data in _sealed(plan, "readings", size):
        target = root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
        arrived = START * 1_000_000 + round(moment * 1e9)
        os.utime(target, ns=(arrived, arrived))
        segments.append(PooledSegment(path, moment, size))
    return segments


def _sealed(plan: Plan, lane: str, size: int) -> Iterator[tuple[float, str, bytes]]:
    timed, first, previous = _lane(plan, lane), 1, bytes(32)
    while len(rows := list(islice(timed, size))) == size:
        head = header(plan, lane, first, first + size - 1, previous)
        data = encode(head, numbered(first, (event for _, event in rows)))
        yield rows[-1][0], f"{identity_path(head.identity)}.seg", data
        first, previous = first + size, digest_of(data)


def _lane(plan: Plan, lane: str) -> Iterator[Timed]:
    if lane == "readings":
        return readings(plan)
    return logs(plan, faulty=False) if lane == "logs" else system_events(plan)
