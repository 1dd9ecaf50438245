"""A landing with the effects of bad links and wrong clocks, and the expected content of the tables.

Segments arrive out of order and twice, under their own name and under others; bodies are truncated;
clocks are years behind or ahead. No two segments contradict each other.
"""

from __future__ import annotations

import shutil
from base64 import b64encode
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
"""Gateways and the first times of their clocks: 2025, the second day of 1970, the first of 2099."""

LANES = ("logs", "system")
HELD_BACK = 0.3
CUT = 0.25
OTHER_NAME = 0.25
ONCE_MORE = 0.15
LONG_AGO = 0.05

DAY_S = 86_400.0


class Row(NamedTuple):
    """The values of an event that the tables must have, as plain types."""

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


class FaultyLanding:
    """Seals segments of some lanes and lands them; `sealed` has all of them, with their bytes.

    With `padding`, each event has so many bytes of random text, which cannot be compressed.
    """

    def __init__(self, fleet: FleetFolder, chance: Random, padding: int = 0) -> None:
        self._fleet = fleet
        self._chance = chance
        self._padding = padding
        self._lanes = [Lane(gateway=name, lane=lane) for name in CLOCKS for lane in LANES]
        self._times = dict(CLOCKS)
        self._pending: list[tuple[Identity, bytes]] = []
        self._copies = 0
        self.sealed: list[tuple[Identity, bytes]] = []
        self.truncated_sums: set[str] = set()

    def fill(self, *, all_of_it: bool = False) -> None:
        """Seal a segment of each lane, and land most of the pending segments, in any order."""
        for lane in self._lanes:
            count = self._chance.randint(1, 6)
            events = some_events(count, start=self._times[lane.gateway])
            self._pending.append(lane.seal(list(map(self._padded, events))))
            self.sealed.append(self._pending[-1])
        for name in self._times:
            self._times[name] += self._chance.randrange(DAY_MS // 2)
        self._chance.shuffle(self._pending)
        keep = 0 if all_of_it else round(HELD_BACK * len(self._pending))
        landing, self._pending = self._pending[keep:], self._pending[:keep]
        for segment in landing:
            self._land(*segment)

    def _padded(self, event: Event) -> Event:
        random = b64encode(self._chance.randbytes(self._padding)).decode()
        return event._replace(text=f"{event.text}{random}")

    def _land(self, identity: Identity, data: bytes) -> None:
        path = self._fleet.landing / segment_path(identity)
        if self._chance.random() < CUT:
            part = data[: self._chance.randrange(1, len(data))]
            self._put(self._sibling(path, "cut"), part)
            self.truncated_sums.add(sha256(part).hexdigest())
        self._put(path, data)
        if self._chance.random() < OTHER_NAME:
            self._put(self._sibling(path, "again"), data)
        if self._chance.random() < ONCE_MORE:
            self._land_again()

    def _land_again(self) -> None:
        """Land a segment again under its own name, as if its acknowledgement was lost."""
        identity, data = self._chance.choice(self.sealed)
        if any(each[0] == identity for each in self._pending):
            return
        self._put(self._fleet.landing / segment_path(identity), data)

    def _sibling(self, path: Path, label: str) -> Path:
        self._copies += 1
        return path.with_name(f"{path.stem}.{label}{self._copies}.seg")

    def _put(self, path: Path, data: bytes) -> None:
        """Write a file atomically, as the receiver does; date some files months back."""
        old_days = 90 if self._chance.random() < LONG_AGO else 0
        age = DAY_S * (old_days + self._chance.random())
        temporary = put(path.with_suffix(".tmp"), data, at=NOON / 1000 + 365 * DAY_S - age)
        temporary.replace(path)

    def rows(self) -> Counter[Row]:
        """Return the rows that the tables must have, each event once."""
        return Counter(
            row_of(identity.gateway, identity.epoch, identity.lane, event)
            for identity, data in self.sealed
            for event in decode(data).events
        )

    def digests(self) -> Counter[str]:
        """Return the digests of all segments, each once."""
        return Counter(data[-32:].hex() for _, data in self.sealed)


DAY_MS = round(DAY_S * 1000)


def row_of(gateway: str, epoch: str, lane: str, event: Event) -> Row:
    tags = tuple(sorted(event.tags.items()))
    fields = (event.name, event.text, event.level, event.latency_ms)
    return Row(gateway, epoch, lane, event.seq, event.time, *fields, tags)


def remove_all_but_tables(fleet: FleetFolder) -> None:
    """Remove everything in the tables' folder except the two tables and their journal."""
    for path in fleet.tables.iterdir():
        if path.is_file() and path.name != JOURNAL:
            path.unlink()
        elif path.is_dir() and path.name not in SCHEMAS:
            shutil.rmtree(path)
