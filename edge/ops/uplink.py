"""How the uplink stands, and the segments that are here, for operators.

All of it is read: a gateway that runs beside is not asked, and nothing is changed. What is in a
segment, and in the enrolment, is for the caller to say.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from edge.config import load
from edge.config.load import Config
from edge.engine import database
from edge.engine.database import Transaction
from edge.features.eventlog.rules import eviction
from edge.features.eventlog.store import epochs, segments, uplink_view
from edge.features.eventlog.store.uplink_view import (
    Notice,
    SegmentRow,
    SetAsideSegments,
    UndeclaredRange,
    UnsealedEvents,
)
from edge.ops import current_time
from edge.ops.transactions import reading


class Epoch(NamedTuple):
    """An epoch, when (ms since 1970 UTC, 0: not known) and why it began, and what waits of it."""

    epoch: str
    began: int
    reason: str
    segments: int


class Lane(NamedTuple):
    """A lane as it stands: see `store.uplink.Lane`.

    `oldest` is when the oldest segment that waits was sealed (ms since 1970 UTC), `share` the bytes
    that it has for certain.
    """

    lane: str
    last: int
    sealed: int
    settled: int
    segments: int
    bytes: int
    oldest: int | None
    share: int


class Uplink(NamedTuple):
    """The uplink as it stands.

    `taken` is when the centre took a segment last (ms since 1970 UTC), `told` the last notice,
    `bound` the bytes that may wait, `hours` in how many of them that is full, if the centre takes
    nothing.
    """

    gateway: str
    epochs: list[Epoch]
    lanes: list[Lane]
    unsealed: UnsealedEvents
    aside: list[SetAsideSegments]
    dropped: list[UndeclaredRange]
    taken: int | None
    told: Notice | None
    bound: int
    hours: float | None


def read(folder: Path, sealed_at: Callable[[bytes], int]) -> Uplink:
    """Return how the uplink of `folder` stands; raises `FieldpostError`.

    `sealed_at` tells when a segment was sealed, in ms since 1970 UTC.
    """
    settings = load.load(folder)
    with reading(folder) as tx:
        lanes = [_lane(tx, settings, lane, sealed_at) for lane in uplink_view.lane_status(tx)]
        room = settings.limits.backlog_bytes - sum(lane.bytes for lane in lanes)
        return Uplink(
            settings.gateway.domain,
            _epochs(tx),
            lanes,
            uplink_view.unsealed(tx),
            uplink_view.set_aside_segments(tx),
            uplink_view.undeclared_ranges(tx),
            uplink_view.last_upload_time(tx),
            uplink_view.last_notice(tx),
            settings.limits.backlog_bytes,
            _hours(tx, room, sealed_at),
        )


def _epochs(tx: Transaction) -> list[Epoch]:
    waiting = uplink_view.epochs(tx)
    return [
        Epoch(epoch.epoch, epoch.began, epoch.reason, waiting.get(epoch.epoch, 0))
        for epoch in epochs.latest(tx)
    ]


def _lane(
    tx: Transaction,
    settings: Config,
    lane: uplink_view.LaneStatus,
    sealed_at: Callable[[bytes], int],
) -> Lane:
    shares = segments.lane_shares(settings.uplink.readings_share, settings.uplink.logs_share)
    share = round(shares[lane.lane] * settings.limits.backlog_bytes)
    oldest = None if lane.oldest is None else sealed_at(uplink_view.data(tx, lane.oldest))
    return Lane(*lane[:-1], oldest, share)


def _hours(tx: Transaction, room: int, sealed_at: Callable[[bytes], int]) -> float | None:
    sample = uplink_view.sample(tx)
    if sample is None:
        return None
    seconds = (sealed_at(sample.newest) - sealed_at(sample.oldest)) / 1000
    return eviction.hours_until_full(room, sample.size, seconds)


def rows(folder: Path, *, every: bool) -> Iterator[SegmentRow]:
    """Yield the segments that wait, oldest first; or `every` one that is here.

    Each is read in a transaction of its own, so that who takes long keeps nothing from the running
    gateway; what is sealed meanwhile comes too.
    """
    at = 0
    with closing(database.connect_reader(folder / database.FILE_NAME)) as connection:
        while True:
            with database.transaction(connection, current_time.now(), "BEGIN") as tx:
                row = uplink_view.first_after(tx, at, every=every)
            if row is None:
                return
            yield row
            at = row.row


def unsealed(folder: Path) -> int:
    """Return how many events are in no segment yet."""
    with reading(folder) as tx:
        return uplink_view.unsealed(tx).events


def gateway(folder: Path) -> str:
    """Return the name of the gateway of `folder`; raises `ConfigError`."""
    return load.load(folder).gateway.domain
