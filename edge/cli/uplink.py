"""`fieldpost uplink`: how it stands, and taking segments to the centre by hand."""

from __future__ import annotations

import asyncio
import datetime
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click

from edge.cli import folder_option, report_errors, to_terminal
from edge.config import load
from edge.errors import SetupError, StoreError
from edge.features.eventlog.store.uplink_view import UnsealedEvents
from edge.ops import current_time
from edge.ops import uplink as admin
from edge.ops.uplink import Lane, Uplink
from sync.common.enrolment import Enrolment, EnrolmentError, read_enrolment
from sync.common.text import columns, duration, os_error, plural
from sync.segment import Identity, SegmentError, identity_path, read_header
from sync.uplink import Acknowledgement, Conflict, FolderTransport, WaitingSegment
from sync.uplink.folder_transport import MARKER, check_marked, parse_folder
from sync.uplink.renewal import validity_of

PATIENCE: Final = 5.0
"""Seconds that a folder to ship into has to show itself."""

_NOTHING: Final = "-"
"""In place of what is not known, or of what there is none."""


@click.group()
def uplink() -> None:
    """The way to the centre: how it stands, and segments to be taken there by hand."""


@uplink.command()
@folder_option
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@report_errors
def status(folder: Path, as_json: bool) -> None:
    """Print how far each lane is sealed and shipped, what waits, and what was lost."""
    found, ways = admin.read(folder, sealed_at), _ways(folder)
    lines = json.dumps(_object(found) | {"to": ways}) if as_json else "\n".join(_lines(found, ways))
    click.echo(lines)


@uplink.command()
@click.argument("target", metavar="FOLDER", type=click.Path(path_type=Path, file_okay=False))
@folder_option
@click.option("--all", "every", is_flag=True, help="Also what the centre has, and was set aside.")
@report_errors
def export(target: Path, folder: Path, every: bool) -> None:
    """Write the segments that wait into FOLDER, for `fieldpost-fleet import`.

    Nothing changes here, and the gateway may be running: what was taken to the centre so is shipped
    again, and the centre knows it by its digest. What is in FOLDER already stays as it is.
    """
    _prepare(target)
    written, there, others = asyncio.run(_export(folder, target, every=every))
    total = plural(written, "segment")
    click.echo(to_terminal(f"{total} written to {target}, {there} were there"))
    if unsealed := admin.unsealed(folder):
        events = plural(unsealed, "event is", "events are")
        click.echo(
            f"{events} in no segment yet, and not among them: a running gateway seals what it has"
            " in time, and when it is stopped"
        )
    if others:
        total = plural(others, "segment has", "segments have")
        raise SetupError(f"{total} other bytes there; ours are written beside")


def _prepare(target: Path) -> None:
    """Make the folder, and mark it as one for segments."""
    target.mkdir(exist_ok=True)
    (target / MARKER).touch()


async def _export(folder: Path, target: Path, *, every: bool) -> tuple[int, int, int]:
    """Write segments; returns how many are new, were there, and contradict what is there."""
    gateway, transport = admin.gateway(folder), FolderTransport(target)
    written = there = others = 0
    for row in admin.rows(folder, every=every):
        identity = Identity(gateway, row.epoch, row.lane, row.first, row.last)
        outcome = await transport.put(WaitingSegment(identity, row.digest, row.data))
        match outcome:
            case Acknowledgement(new=new):
                written += new
                there += not new
            case Conflict():
                others += 1
            case _:
                raise SetupError(
                    f"{identity_path(identity)} cannot be written: {outcome.text}; {written} were"
                )
    return written, there, others


def sealed_at(data: bytes) -> int:
    """Tell when a segment was sealed, in ms since 1970 UTC; raises `StoreError`."""
    try:
        return read_header(data).sealed_at
    except SegmentError as error:
        raise StoreError(f"a segment in the database is damaged: {error}") from error


def _ways(folder: Path) -> dict[str, str]:
    """Tell where segments go, and until when the certificate is good; never a secret."""
    options = load.load(folder).uplink
    if options.folder:
        why = unmarked(folder, options.folder)
        return {"folder": options.folder} | ({} if why is None else {"trouble": why})
    if not options.enrolment:
        return {}
    try:
        enrolment = read_enrolment(folder / options.enrolment)
        ends = certificate_ends(enrolment)
    except (EnrolmentError, OSError) as error:
        return {"trouble": trouble(options.enrolment, error)}
    told = {"url": enrolment.url, "gateway": enrolment.gateway}
    if ends is not None:
        told["certificate_ends"] = ends.isoformat(timespec="seconds").replace("+00:00", "Z")
    return told


def trouble(enrolment: str, error: EnrolmentError | OSError) -> str:
    """Say why an enrolment, as the configuration names it, is none."""
    if isinstance(error, FileNotFoundError):
        return f"{enrolment} does not exist: `fieldpost-fleet gateway add` makes it, at the centre"
    return f"{enrolment}: {(error.strerror if isinstance(error, OSError) else None) or error}"


def unmarked(base: Path, folder: str, patience: float = PATIENCE) -> str | None:
    """Say why nothing can be shipped into the folder of the configuration; `None` if it can.

    It is looked at aside: a share whose server is gone answers nothing, for ever.
    """
    found: list[str] = [f"{folder} has not answered for {patience:g} s"]

    def look() -> None:
        try:
            check_marked(parse_folder(folder, base))
        except OSError as error:
            found[:] = [os_error(error)]
        except ValueError as error:
            found[:] = [f"{folder} is {error}"]
        else:
            found.clear()

    looking = threading.Thread(target=look, daemon=True)
    looking.start()
    looking.join(patience)
    return found[0] if found else None


def certificate_ends(enrolment: Enrolment) -> datetime.datetime | None:
    """Tell when the certificate of an enrolment ends, if it has one; raises `EnrolmentError`."""
    if not enrolment.certificate:
        return None
    return datetime.datetime.fromtimestamp(validity_of(enrolment.certificate).ends, datetime.UTC)


def _object(found: Uplink) -> dict[str, object]:
    whole: dict[str, object] = found._asdict()
    for name in ("epochs", "lanes", "aside", "dropped"):
        whole[name] = [row._asdict() for row in getattr(found, name)]
    whole["unsealed"] = found.unsealed._asdict()
    whole["told"] = None if found.told is None else found.told._asdict()
    return whole


def _lines(found: Uplink, ways: dict[str, str]) -> Iterator[str]:
    yield from map(to_terminal, columns(_facts(found, ways)))
    header = ("lane", "last", "sealed", "settled", "waiting", "bytes", "share", "oldest")
    rows = [header, *(_row(lane) for lane in found.lanes)]
    yield from ("", *columns(rows, right=range(1, 8)), "")
    for epoch in found.epochs:
        began = _when(epoch.began or None)
        yield to_terminal(f"epoch {epoch.epoch}  {epoch.reason}  {began}  {epoch.segments} waiting")
    for aside in found.aside:
        yield to_terminal(
            f"aside {aside.lane}  {plural(aside.segments, 'segment')}, {aside.bytes} bytes:"
            f" {aside.reason}"
        )
    for gone in found.dropped:
        yield to_terminal(f"lost  {gone.lane}  {gone.first}-{gone.last}: {gone.reason}")


def _facts(found: Uplink, ways: dict[str, str]) -> list[tuple[str, str]]:
    waiting = sum(lane.bytes for lane in found.lanes)
    full = ""
    if found.hours is not None:
        full = f"; full in {duration(3600 * found.hours)} if nothing is taken"
    return [
        ("gateway", found.gateway),
        ("to", " ".join(f"{key}={text}" for key, text in ways.items()) or "nowhere: kept here"),
        ("last taken", _when(found.taken)),
        ("last notice", _notice(found)),
        ("waiting", f"{waiting} of {found.bound} bytes{full}"),
        ("unsealed", _unsealed(found.unsealed)),
    ]


def _notice(found: Uplink) -> str:
    """Tell of the last notice, and whether it is over: of most of them only the next one tells."""
    told = found.told
    if told is None:
        return _NOTHING
    since = "; segments were taken since" if told.time < (found.taken or 0) else ""
    return f"{_when(told.time)} ({_ago(told.time)}) {told.name}: {told.text}{since}"


def _unsealed(found: UnsealedEvents) -> str:
    events = plural(found.events, "event")
    first = "" if found.since is None else f", the first {_ago(found.since)}"
    return f"{events}{first}; sealed while the gateway runs, and when it stops"


def _row(lane: Lane) -> tuple[str, ...]:
    age = _NOTHING
    if lane.oldest is not None:
        age = duration(max(0, current_time.now().wall - lane.oldest) / 1000)
    used = f"{100 * lane.bytes / lane.share:.0f} %"
    figures = (lane.last, lane.sealed, lane.settled, lane.segments, lane.bytes)
    return lane.lane, *map(str, figures), used, age


def _ago(time: int) -> str:
    """Tell how long ago a moment is (ms since 1970 UTC), by this machine's clock."""
    seconds = (current_time.now().wall - time) / 1000
    return f"{duration(seconds)} ago" if seconds >= 0 else "ahead of this clock"


def _when(time: int | None) -> str:
    """Write a moment (ms since 1970 UTC)."""
    if time is None:
        return _NOTHING
    stamp = datetime.datetime.fromtimestamp(time / 1000, datetime.UTC)
    return stamp.isoformat(timespec="seconds").replace("+00:00", "Z")
