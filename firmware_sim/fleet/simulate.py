"""Simulate a fleet: write its segments, and compute the results that its reports must show.

The layout below `segments/` is that of the centre's landing, with arrival times as mtimes. Names of
repeated, contradicting and damaged files have a word before `.seg`: `again`, `copy`, or the damage.

Only one gateway's arrivals are in memory at a time in each process, without their bytes.
"""

from __future__ import annotations

import json
import multiprocessing
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Final, NamedTuple

from firmware_sim.errors import SimulationFailed
from firmware_sim.fleet.logs import logs
from firmware_sim.fleet.plan import Plan, make_plans
from firmware_sim.fleet.planted_faults import planted
from firmware_sim.fleet.rows import Timed, event_at
from firmware_sim.fleet.sealing import EVICTED, EvictedRange, LaneSealer
from firmware_sim.fleet.sensors import readings
from firmware_sim.fleet.settings import FleetSettings
from firmware_sim.fleet.shipping import Delivery, Shipper
from firmware_sim.fleet.system_events import system_events
from firmware_sim.fleet.times import iso
from firmware_sim.fleet.truth import GatewayTruth, Rollout, VersionRun

SEGMENTS: Final = "segments"
TRUTH: Final = "truth.json"

VERSION: Final = 1
"""Version of `truth.json`: increased when a key changes its meaning or is removed."""

_PER_PROCESS: Final = 100  # gateways for which a further process is worth its start
_AFTER_MS: Final = 60_000  # after the end all that was sent has arrived, and nobody is silent yet


class Outcome(NamedTuple):
    """The truth about a gateway: its object in `truth.json`, and its part of the fleet's.

    `kinds` counts events by lane and kind. `versions` are its software versions, the last is
    `current`. `planted` are the rows of its faults.
    """

    gateway: dict[str, Any]
    kinds: Counter[tuple[str, str]]
    versions: dict[str, VersionRun]
    current: str
    planted: list[dict[str, Any]]


@dataclass
class Fleet:
    """A simulated fleet; call `simulate`, then read `truth`."""

    settings: FleetSettings
    gateways: list[dict[str, Any]] = field(default_factory=list)
    planted: list[dict[str, Any]] = field(default_factory=list)
    kinds: Counter[tuple[str, str]] = field(default_factory=Counter)
    rollout: Rollout = field(default_factory=Rollout)

    def simulate(self, write: Callable[[Delivery], None]) -> None:
        """Create all files and pass each to `write`; its exceptions end the simulation."""
        plans = make_plans(self.settings)
        self._add(map(partial(_simulate, write, _is_faulty(plans)), plans))

    def simulate_in(self, root: Path) -> None:
        """Create all files below `root`, in as many processes as are of use.

        Raises OSError if a file cannot be written.
        """
        write = partial(_write, root)
        processes = min(os.cpu_count() or 1, self.settings.gateways // _PER_PROCESS)
        if processes < 2:
            self.simulate(write)
            return
        plans = make_plans(self.settings)
        work = partial(_simulate, write, _is_faulty(plans))
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(processes, mp_context=context) as pool:
            self._add(pool.map(work, plans, chunksize=10))

    def _add(self, outcomes: Iterable[Outcome]) -> None:
        for outcome in outcomes:
            self.gateways.append(outcome.gateway)
            self.kinds += outcome.kinds
            self.rollout.add(outcome.versions, outcome.current)
            self.planted += outcome.planted

    @property
    def as_of(self) -> int:
        """The time of the report, in milliseconds since 1970 UTC."""
        return _as_of(self.settings)

    def truth(self) -> dict[str, Any]:
        """Return the content of `truth.json`: what correct reports of the fleet contain."""
        settings = self.settings
        return {
            "version": VERSION,
            **{name: getattr(settings, name) for name in _STATED},
            "start": iso(settings.start),
            "end": iso(settings.end),
            "as_of": iso(self.as_of),
            "faults": sorted(settings.faults),
            "totals": self._totals(),
            "gateways": self.gateways,
            "versions": self.rollout.as_json(),
            "planted": self.planted,
        }

    def _totals(self) -> dict[str, Any]:
        lanes: dict[str, dict[str, int]] = {}
        for (lane, kind), number in sorted(self.kinds.items()):
            lanes.setdefault(lane, {})[kind] = number
        rows = [row for gateway in self.gateways for row in gateway["lanes"]]
        return {
            "gateways": len(self.gateways),
            **{name: sum(each[name] for each in self.gateways) for name in _COUNTED},
            "events": self.kinds.total(),
            "lanes": lanes,
            **{name: sum(row[name] for row in rows) for name in _SUMMED},
        }


def _as_of(settings: FleetSettings) -> int:
    return settings.end + _AFTER_MS


def _is_faulty(plans: Iterable[Plan]) -> bool:
    return any("version-errors" in plan.faults for plan in plans)


def _simulate(write: Callable[[Delivery], None], faulty: bool, plan: Plan) -> Outcome:
    arrivals = []
    for delivery in _deliveries(plan, faulty=faulty):
        write(delivery)
        arrivals.append(delivery.without_data())
    truth = GatewayTruth(plan.name, _as_of(plan.settings))
    truth.take(arrivals)
    return Outcome(
        truth.as_json(),
        truth.kinds,
        truth.versions(),
        truth.last().sealed.header.software,
        list(planted(plan, truth)),
    )


def _write(root: Path, delivery: Delivery) -> None:
    path = root / delivery.path
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(delivery.data)
    nanoseconds = delivery.arrived * 1_000_000
    os.utime(path, ns=(nanoseconds, nanoseconds))


def write_fleet(settings: FleetSettings, folder: Path) -> dict[str, Any]:
    """Simulate a fleet, write it to `folder`, and return the content of `truth.json`.

    Raises `SimulationFailed` if the folder is not empty, and `OSError` if a file cannot be
    written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise SimulationFailed(f"{folder} is not empty; choose a new folder")
    fleet = Fleet(settings)
    fleet.simulate_in(folder / SEGMENTS)
    truth = fleet.truth()
    (folder / TRUTH).write_text(json.dumps(truth, indent=1, sort_keys=True) + "\n")
    return truth


_STATED: Final = ("seed", "days", "readings", "heartbeat", "seal")
_COUNTED: Final = ("files", "segments", "bad")
_SUMMED: Final = (
    "expected", "received", "missing", "declared", "unexplained", "repeated", "forks",
    "chain_breaks",
)  # fmt: skip


def _deliveries(plan: Plan, *, faulty: bool) -> Iterator[Delivery]:
    """Generate all files that arrive from a gateway and its copy; `faulty` is as for `logs`."""
    yield from _shipped(plan, faulty=faulty)
    window = plan.window("clone")
    if window is not None:
        copy = replace(plan, copied=window[0])
        for delivery in _shipped(copy, faulty=faulty):
            if window[0] <= delivery.sealed.moment < window[1]:
                yield delivery


def _shipped(plan: Plan, *, faulty: bool) -> Iterator[Delivery]:
    shipper = Shipper(plan)
    sealer = LaneSealer(plan, "readings")
    for sealed in sealer.seal_all(readings(plan)):
        yield from shipper.ship(sealed)
    events = [] if sealer.evicted is None else [_eviction_event(plan, sealer.evicted)]
    for sealed in chain(
        LaneSealer(plan, "logs").seal_all(logs(plan, faulty=faulty)),
        LaneSealer(plan, "system").seal_all(system_events(plan, events)),
    ):
        yield from shipper.ship(sealed)


def _eviction_event(plan: Plan, evicted: EvictedRange) -> Timed:
    count = evicted.last_seq - evicted.first_seq + 1
    tags = {"epoch": evicted.epoch, "lane": evicted.lane, "reason": EVICTED}
    tags |= {"first": str(evicted.first_seq), "last": str(evicted.last_seq)}
    return event_at(
        plan, evicted.moment, "uplink", "evicted", value=float(count), level="Warning", tags=tags
    )
