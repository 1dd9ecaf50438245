"""Segments and fleet folders for tests of the tables: small, and made by the real encoder."""

from __future__ import annotations

import contextlib
import os
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import cbor2

from sync.common.fleet_folder import FleetFolder, segment_path
from sync.ingest import archive
from sync.segment import (
    Dropped,
    Event,
    Identity,
    SegmentError,
    SegmentHeader,
    digest_of,
    encode,
    read_header,
)
from sync.storage.local import LocalStorage

EPOCH = "01JD0000000000000000000000"
LATER_EPOCH = "01JE0000000000000000000000"
NOON = 1_763_726_400_000
"""2025-11-21 12:00:00 UTC, in milliseconds."""

YEAR_MS = 365 * 86_400_000

NO_DIGEST = bytes(32)


@dataclass
class Lane:
    """Seals events of one lane into chained segments, as a gateway does."""

    gateway: str = "gw.example"
    lane: str = "logs"
    epoch: str = EPOCH
    next_seq: int = 1
    previous: bytes = field(default=NO_DIGEST)

    def seal(
        self, events: Sequence[Event], dropped: tuple[Dropped, ...] = ()
    ) -> tuple[Identity, bytes]:
        """Seal the events, renumbered from the lane's next number, and advance the lane."""
        first = self.next_seq
        numbered = [event._replace(seq=first + at) for at, event in enumerate(events)]
        last = first + len(numbered) - 1
        header = SegmentHeader(
            gateway=self.gateway,
            epoch=self.epoch,
            lane=self.lane,
            first_seq=first,
            last_seq=last,
            previous=self.previous,
            boot="boot-1",
            sealed_at=numbered[-1].time,
            service_seconds=60.0,
            clock=True,
            firmware="image-1",
            software="0.1.0",
            config_hash=bytes(range(32)),
            disk_used=1_000_000,
            dropped=dropped,
        )
        data = encode(header, numbered)
        self.next_seq = last + 1
        self.previous = digest_of(data)
        return Identity(self.gateway, self.epoch, self.lane, first, last), data

    def skip(self, count: int) -> None:
        """Skip `count` numbers, as a gateway does after it dropped a range."""
        self.next_seq += count


def some_events(count: int, *, start: int = NOON, step_ms: int = 1000) -> list[Event]:
    """Make `count` assured log events, `step_ms` apart."""
    return [
        Event(
            seq=1,
            time=start + at * step_ms,
            clock=True,
            kind="log",
            source="pump1@gw.example/fw",
            name=f"event-{at}",
            level="Informational",
            text="ünïcode",
            qos=2,
            latency_ms=at,
            tags={"facility": "pump"} if at % 2 else {},
        )
        for at in range(count)
    ]


def as_version(
    data: bytes, version: tuple[int, int], header: dict[str, Any], body: dict[str, Any]
) -> bytes:
    """Rewrite a segment in another version, with further fields in its header and its body."""
    prefix = struct.Struct(">4sBBH")
    magic, _, _, length = prefix.unpack_from(data)
    head = cbor2.loads(data[prefix.size : prefix.size + length]) | header
    columns = cbor2.loads(zlib.decompress(data[prefix.size + length : -32])) | body
    packed = cbor2.dumps(head)
    whole = prefix.pack(magic, *version, len(packed)) + packed
    whole += zlib.compress(cbor2.dumps(columns))
    return whole + sha256(whole).digest()


def fleet_folder(root: Path) -> FleetFolder:
    folder = FleetFolder(root)
    folder.create()
    return folder


def land(folder: FleetFolder, sealed: tuple[Identity, bytes], at: float | None = None) -> Path:
    """Put a segment into the landing, with `at` (seconds since 1970) as its time of arrival.

    By default, that is a second after it was sealed or, if its clock was wrong, now: the day of an
    event depends on both times.
    """
    identity, data = sealed
    if at is None:
        with contextlib.suppress(SegmentError):  # a segment of another version
            sealed_at = read_header(data).sealed_at
            at = sealed_at / 1000 + 1 if abs(sealed_at - NOON) < 2 * YEAR_MS else None
    return put(folder.landing / segment_path(identity), data, at)


def waiting_segments(folder: FleetFolder) -> set[str]:
    """Return the segments that wait for the ingest, by their paths below the fleet folder."""
    return set(archive.waiting_files(LocalStorage(folder.root)))


def put(path: Path, data: bytes, at: float | None = None) -> Path:
    """Write a file and create the folders above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    if at is not None:
        os.utime(path, (at, at))
    return path
