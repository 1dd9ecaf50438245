"""Report the state of the uplink, and export segments to a folder."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final, NamedTuple

from edge.config import load
from edge.config.load import Config
from edge.engine.store import database
from edge.engine.store.database import Transaction
from edge.errors import SetupError, StoreError
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
from sync.common.enrolment import Enrolment, EnrolmentError, read_enrolment
from sync.common.text import os_error
from sync.segment import Identity, SegmentError, identity_path, read_header
from sync.uplink.folder_transport import MARKER, FolderTransport, check_marked, parse_folder
from sync.uplink.http_client import HttpsLimits
from sync.uplink.https_transport import HttpsTransport
from sync.uplink.interfaces import WaitingSegment
from sync.uplink.renewal import validity_of
from sync.uplink.responses import AccessDenial, Acknowledgement, Conflict, TemporaryFailure

FOLDER_TIMEOUT: Final = 5.0
"""Seconds in which the folder of `uplink.folder` must answer.

A network share whose server is gone never answers.
"""

CENTRE_TIMEOUT: Final = 10.0
"""Maximum seconds for a query to the centre, including the connection."""

_ENROL_AGAIN: Final = "enrol the gateway again with `fieldpost-fleet gateway add`"
_MARK_FOLDER: Final = "mount the folder and mark it, see docs/how-to/ship-to-the-centre.md"


class Route(NamedTuple):
    """The configured route to the centre.

    `target` is the URL or the folder (the enrolment file if that cannot be used; empty without a
    route), `problem` why the route cannot be used, and `remedy` what to do about it. The begin and
    the end of the certificate's validity are in ms since 1970 UTC.
    """

    target: str
    is_folder: bool = False
    problem: str | None = None
    remedy: str = _ENROL_AGAIN
    enrolment: Enrolment | None = None
    certificate_begin: int | None = None
    certificate_end: int | None = None


class CentreAnswer(NamedTuple):
    """The result of a test query to the centre: its problem, if any, and whether it was refused."""

    problem: str | None
    refused: bool = False


class Epoch(NamedTuple):
    """An epoch: when and why it began, and the number of its waiting segments.

    `began` is in ms since 1970 UTC, 0 if unknown.
    """

    epoch: str
    began: int
    reason: str
    segments: int


class Lane(NamedTuple):
    """The state of a lane; the fields not explained here are those of `uplink_view.LaneStatus`.

    `oldest` is when the oldest waiting segment was sealed (ms since 1970 UTC). `share` is the part
    of the backlog, in bytes, that is guaranteed to the lane.
    """

    lane: str
    last: int
    sealed: int
    settled: int
    segments: int
    bytes: int
    oldest: int | None
    share: int


class UplinkStatus(NamedTuple):
    """The state of the uplink.

    `rejected` are segments that the centre rejected for good, `lost` the ranges of dropped events
    of which it has not been told yet. `last_upload` is in ms since 1970 UTC. `quota` is the maximum
    size of the backlog in bytes. `hours_until_full` is the time in which the backlog becomes full
    if nothing is uploaded; it is `None` until the rate was measured for an hour.
    """

    gateway: str
    epochs: list[Epoch]
    lanes: list[Lane]
    unsealed: UnsealedEvents
    rejected: list[SetAsideSegments]
    lost: list[UndeclaredRange]
    last_upload: int | None
    last_notice: Notice | None
    quota: int
    hours_until_full: float | None

    @property
    def failure(self) -> Notice | None:
        """Return the last notice if it reports a failure that no later upload resolved."""
        notice = self.last_notice
        if notice is None or notice.name in uplink_view.POSITIVE_NOTICES:
            return None
        return None if notice.time < (self.last_upload or 0) else notice


class Export(NamedTuple):
    """The numbers of segments that were written, existed already, or conflicted.

    A segment conflicts with a file of the same name and other contents.
    """

    written: int = 0
    present: int = 0
    conflicts: int = 0


def read(folder: Path) -> UplinkStatus:
    """Return the state of the uplink of the gateway in `folder`; raises `FieldpostError`."""
    settings = load.load(folder)
    with reading(folder) as tx:
        return read_status(tx, settings)


def read_status(tx: Transaction, settings: Config) -> UplinkStatus:
    """Return the state of the uplink."""
    lanes = [_lane(tx, settings, lane) for lane in uplink_view.lane_status(tx)]
    room = settings.limits.backlog_bytes - sum(lane.bytes for lane in lanes)
    waiting = uplink_view.epochs(tx)
    return UplinkStatus(
        settings.gateway.domain,
        [
            Epoch(epoch.epoch, epoch.began, epoch.reason, waiting.get(epoch.epoch, 0))
            for epoch in epochs.latest(tx)
        ],
        lanes,
        uplink_view.unsealed(tx),
        uplink_view.set_aside_segments(tx),
        uplink_view.undeclared_ranges(tx),
        uplink_view.last_upload_time(tx),
        uplink_view.last_notice(tx),
        settings.limits.backlog_bytes,
        _hours_until_full(tx, room),
    )


def route(folder: Path, settings: Config) -> Route:
    """Return the configured route to the centre and check that it can be used."""
    options = settings.uplink
    if options.folder:
        problem = _folder_problem(folder, options.folder)
        return Route(options.folder, is_folder=True, problem=problem, remedy=_MARK_FOLDER)
    if not options.enrolment:
        return Route("")
    try:
        enrolment = read_enrolment(folder / options.enrolment)
        valid = validity_of(enrolment.certificate) if enrolment.certificate else None
    except FileNotFoundError:
        problem = f"{options.enrolment} does not exist"
        remedy = "create it at the centre with `fieldpost-fleet gateway add`"
        return Route(options.enrolment, problem=problem, remedy=remedy)
    except OSError as error:
        return Route(options.enrolment, problem=f"{options.enrolment}: {error.strerror or error}")
    except EnrolmentError as error:
        return Route(options.enrolment, problem=f"{options.enrolment}: {error}")
    if enrolment.gateway != settings.gateway.domain:
        text = f"is for {enrolment.gateway}, but this gateway is {settings.gateway.domain}"
        return Route(options.enrolment, problem=f"{options.enrolment} {text}")
    found = Route(enrolment.url, enrolment=enrolment)
    if valid is None:
        return found
    begin, end = round(valid.begins * 1000), round(valid.ends * 1000)
    return found._replace(certificate_begin=begin, certificate_end=end)


def probe(route: Route, epoch: str) -> CentreAnswer | None:
    """Query the centre about `epoch` to check access; `None` if no usable centre is configured."""
    if route.enrolment is None or route.problem is not None:
        return None
    return asyncio.run(_probe(route.enrolment, epoch))


async def _probe(enrolment: Enrolment, epoch: str) -> CentreAnswer:
    try:
        transport = HttpsTransport(enrolment, HttpsLimits(total=CENTRE_TIMEOUT))
    except EnrolmentError as error:
        return CentreAnswer(str(error))
    try:
        answer = await transport.high_watermarks(enrolment.gateway, epoch)
    finally:
        await transport.close()
    if isinstance(answer, TemporaryFailure | AccessDenial):
        return CentreAnswer(answer.text, refused=isinstance(answer, AccessDenial))
    return CentreAnswer(None)


def export(folder: Path, target: Path, *, every: bool) -> Export:
    """Write the waiting segments, or with `every` all stored segments, into the folder `target`.

    The folder is created and marked as one for segments. A file that exists is not replaced. Raises
    `FieldpostError` and `OSError`.
    """
    target.mkdir(exist_ok=True)
    (target / MARKER).touch()
    return asyncio.run(_export(folder, target, every=every))


async def _export(folder: Path, target: Path, *, every: bool) -> Export:
    gateway, transport = load.load(folder).gateway.domain, FolderTransport(target)
    result = Export()
    for row in _segments(folder, every=every):
        identity = Identity(gateway, row.epoch, row.lane, row.first, row.last)
        outcome = await transport.put(WaitingSegment(identity, row.digest, row.data))
        match outcome:
            case Acknowledgement(new=True):
                result = result._replace(written=result.written + 1)
            case Acknowledgement():
                result = result._replace(present=result.present + 1)
            case Conflict():
                result = result._replace(conflicts=result.conflicts + 1)
            case _:
                raise SetupError(
                    f"{identity_path(identity)} cannot be written to {target}: {outcome.text};"
                    f" {result.written} segments were written before"
                )
    return result


def unsealed(folder: Path) -> int:
    """Return the number of events that are not sealed yet."""
    with reading(folder) as tx:
        return uplink_view.unsealed(tx).events


def waiting_since(found: UplinkStatus) -> int | None:
    """Return since when the oldest event or segment waits for the centre, in ms since 1970 UTC;
    `None` if none waits."""
    moments = [found.unsealed.since, *(lane.oldest for lane in found.lanes)]
    return min((moment for moment in moments if moment is not None), default=None)


def _lane(tx: Transaction, settings: Config, lane: uplink_view.LaneStatus) -> Lane:
    shares = segments.lane_shares(settings.uplink.readings_share, settings.uplink.logs_share)
    share = round(shares[lane.lane] * settings.limits.backlog_bytes)
    oldest = None if lane.oldest is None else _sealed_at(uplink_view.data(tx, lane.oldest))
    return Lane(*lane[:-1], oldest, share)


def _hours_until_full(tx: Transaction, room: int) -> float | None:
    for count in uplink_view.SAMPLE_SIZES:
        sample = uplink_view.sample(tx, count)
        if sample is not None:
            seconds = (_sealed_at(sample.newest) - _sealed_at(sample.oldest)) / 1000
            hours = eviction.hours_until_full(room, sample.size, seconds)
            if hours is not None:
                return hours
    return None


def _sealed_at(data: bytes) -> int:
    try:
        return read_header(data).sealed_at
    except SegmentError as error:
        raise StoreError(f"a segment in the database is damaged: {error}") from error


def _folder_problem(base: Path, folder: str, timeout: float = FOLDER_TIMEOUT) -> str | None:
    """Return why no segment can be written to the configured folder, or `None`.

    A thread does the check, because a network share whose server is gone blocks for ever.
    """
    found: list[str] = [f"{folder} has not answered for {timeout:g} s"]

    def check() -> None:
        try:
            check_marked(parse_folder(folder, base))
        except OSError as error:
            found[:] = [os_error(error)]
        except ValueError as error:
            found[:] = [f"{folder} is {error}"]
        else:
            found.clear()

    thread = threading.Thread(target=check, daemon=True)
    thread.start()
    thread.join(timeout)
    return found[0] if found else None


def _segments(folder: Path, *, every: bool) -> Iterator[SegmentRow]:
    """Yield the waiting segments, or with `every` all stored segments, oldest first.

    Each is read in a separate transaction, so that a slow target does not block the running
    gateway; segments that are sealed meanwhile are included.
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
