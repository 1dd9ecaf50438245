"""A landing as bad links and wrong clocks fill it, and the truth about what is in it.

Segments come in disorder and twice, under their own name and under others, bodies are cut off,
clocks are years behind or ahead. No two contradict each other.
"""

from __future__ import annotations

import shutil
from collections import Counter
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import NamedTuple

from sync.common.fleet_folder import FleetFolder, segment_path
from sync.segment import Event, Identity, decode
from sync.tables.delta import SCHEMAS
from sync.tables.log_journal import JOURNAL
from tests.helpers.fleet_tables import NOON, Lane, put, some_events

CLOCKS = {"now.example": NOON, "behind.example": 86_400_000, "ahead.example": 4_070_908_800_000}
"""Gateways, and what their clocks say first: 2025, the second day of 1970, the first of 2099."""

LANES = ("logs", "system")
HELD_BACK = 0.3
CUT = 0.25
OTHER_NAME = 0.25
ONCE_MORE = 0.15
LONG_AGO = 0.05

DAY_S = 86_400.0


class Row(NamedTuple):
    """What the tables must have of an event, in numbers and words alone."""

    gateway: str
    epoch: str
    lane: str
    seq: int
    time: int
    name: str | None
    text: str | None
    level: str | None
    latency_ms: int | None
    tags: tuple[tuple[str, str], ...]


class RoughLanding:
    """Seals segments of some lanes and lands them; `sealed` are all, with their bytes."""

    def __init__(self, fleet: FleetFolder, dice: Random) -> None:
        self._fleet = fleet
        self._dice = dice
        self._lanes = [Lane(gateway=name, lane=lane) for name in CLOCKS for lane in LANES]
        self._times = dict(CLOCKS)
        self._held: list[tuple[Identity, bytes]] = []
        self._copies = 0
        self.sealed: list[tuple[Identity, bytes]] = []
        self.cut: set[str] = set()

    def fill(self, *, all_of_it: bool = False) -> None:
        """Seal a segment of each lane, and land most of what has not landed, in any order."""
        for lane in self._lanes:
            count = self._dice.randint(1, 6)
            self._held.append(lane.seal(some_events(count, start=self._times[lane.gateway])))
            self.sealed.append(self._held[-1])
        for name in self._times:
            self._times[name] += self._dice.randrange(DAY_MS // 2)
        self._dice.shuffle(self._held)
        keep = 0 if all_of_it else round(HELD_BACK * len(self._held))
        landing, self._held = self._held[keep:], self._held[:keep]
        for segment in landing:
            self._land(*segment)

    def _land(self, identity: Identity, data: bytes) -> None:
        path = self._fleet.landing / segment_path(identity)
        if self._dice.random() < CUT:
            part = data[: self._dice.randrange(1, len(data))]
            self._put(self._beside(path, "cut"), part)
            self.cut.add(sha256(part).hexdigest())
        self._put(path, data)
        if self._dice.random() < OTHER_NAME:
            self._put(self._beside(path, "again"), data)
        if self._dice.random() < ONCE_MORE:
            self._acknowledgement_lost()

    def _acknowledgement_lost(self) -> None:
        """Land a segment once more under its own name, wherever the first one is by now."""
        identity, data = self._dice.choice(self.sealed)
        if any(each[0] == identity for each in self._held):
            return
        self._put(self._fleet.landing / segment_path(identity), data)

    def _beside(self, path: Path, word: str) -> Path:
        self._copies += 1
        return path.with_name(f"{path.stem}.{word}{self._copies}.seg")

    def _put(self, path: Path, data: bytes) -> None:
        """Let a file appear whole, as all do that land; some of them are told to be months old."""
        long_ago = 90 if self._dice.random() < LONG_AGO else 0
        age = DAY_S * (long_ago + self._dice.random())
        whole = put(path.with_suffix(".tmp"), data, at=NOON / 1000 + 365 * DAY_S - age)
        whole.replace(path)

    def rows(self) -> Counter[Row]:
        """Give what the tables must have, each event once."""
        return Counter(
            row_of(identity.gateway, identity.epoch, identity.lane, event)
            for identity, data in self.sealed
            for event in decode(data).events
        )

    def digests(self) -> Counter[str]:
        """Give the digests of all segments, each once."""
        return Counter(data[-32:].hex() for _, data in self.sealed)


DAY_MS = round(DAY_S * 1000)


def row_of(gateway: str, epoch: str, lane: str, event: Event) -> Row:
    tags = tuple(sorted(event.tags.items()))
    shown = (event.name, event.text, event.level, event.latency_ms)
    return Row(gateway, epoch, lane, event.seq, event.time, *shown, tags)


def lose_all_but_the_tables(fleet: FleetFolder) -> None:
    """Remove everything in the tables' folder except the two tables and their journal."""
    for path in fleet.tables.iterdir():
        if path.is_file() and path.name != JOURNAL:
            path.unlink()
        elif path.is_dir() and path.name not in SCHEMAS:
            shutil.rmtree(path)
