"""The `fieldpost uplink` commands."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click

from edge.cli import echo_found, folder_option, json_option
from edge.command_errors import to_terminal
from edge.config import load
from edge.errors import SetupError
from edge.features.eventlog.store.uplink_view import UnsealedEvents
from edge.ops import current_time
from edge.ops.gateway import uplink as ops
from edge.ops.gateway.uplink import Lane, Route, UplinkStatus
from sync.common.text import columns, duration, plural, utc_time

_NONE: Final = "-"


@click.group()
def uplink() -> None:
    """Show the state of the uplink, or export segments."""


@uplink.command()
@folder_option
@json_option("Print one JSON object.")
def status(folder: Path, as_json: bool) -> None:
    """Show the state of the uplink and of each lane.

    A lane is a part of the event log: `readings`, `logs` or `system`. Its events are numbered.
    `last` is the number of the latest event, `sealed` of the latest one in a segment, and `settled`
    of the latest one that no longer waits for the centre. `waiting`, `bytes` and `oldest` describe
    the waiting segments, and `share` is their size in percent of the part of the backlog that is
    guaranteed to the lane.
    """
    found, route = ops.read(folder), ops.route(folder, load.load(folder))
    echo_found([_object(found, route)], _lines(found, route), as_json=as_json)


@uplink.command()
@click.argument("target", metavar="FOLDER", type=click.Path(path_type=Path, file_okay=False))
@folder_option
@click.option(
    "--all",
    "every",
    is_flag=True,
    help="Include segments that the centre acknowledged or rejected.",
)
def export(target: Path, folder: Path, every: bool) -> None:
    """Write waiting segments into FOLDER.

    Carry them to the centre and import them there with `fieldpost-fleet import`. The gateway may be
    running. Nothing is changed on it: it uploads the same segments later, and the centre recognises
    them. Existing files in FOLDER are not replaced.
    """
    result = ops.export(folder, target, every=every)
    total = plural(result.written, "segment")
    click.echo(to_terminal(f"{total} written to {target}, {result.present} already there"))
    if unsealed := ops.unsealed(folder):
        events = plural(unsealed, "event is", "events are")
        click.echo(
            f"{events} not exported: a running gateway seals events into segments after"
            " `uplink.segment_age`, and when it stops"
        )
    if result.conflicts:
        files = plural(result.conflicts, "file has", "files have")
        raise SetupError(
            f"{files} the name of a segment but other contents; nothing was replaced, and the"
            " segments were written under other names"
        )


def _object(found: UplinkStatus, route: Route) -> dict[str, object]:
    return {
        "gateway": found.gateway,
        "epochs": [row._asdict() for row in found.epochs],
        "lanes": [row._asdict() for row in found.lanes],
        "unsealed": found.unsealed._asdict(),
        "aside": [row._asdict() for row in found.rejected],
        "dropped": [row._asdict() for row in found.lost],
        "taken": found.last_upload,
        "told": None if found.last_notice is None else found.last_notice._asdict(),
        "bound": found.quota,
        "hours": found.hours_until_full,
        "to": _route(route),
    }


def _route(route: Route) -> dict[str, str]:
    """Return the route without its secrets."""
    if not route.target:
        return {}
    enrolment = route.enrolment
    if enrolment is None:
        folder = {"folder": route.target} if route.is_folder else {}
        return folder | ({} if route.problem is None else {"trouble": route.problem})
    fields = {"url": enrolment.url, "gateway": enrolment.gateway}
    if route.certificate_end is not None:
        fields["certificate_ends"] = utc_time(route.certificate_end)
    return fields


def _lines(found: UplinkStatus, route: Route) -> Iterator[str]:
    yield from columns(_facts(found, route))
    header = ("lane", "last", "sealed", "settled", "waiting", "bytes", "share", "oldest")
    rows = [header, *(_row(lane) for lane in found.lanes)]
    yield from ("", *columns(rows, right=range(1, 8)), "")
    for epoch in found.epochs:
        began = _when(epoch.began or None)
        waiting = plural(epoch.segments, "segment")
        yield f"epoch {epoch.epoch}  {epoch.reason}  {began}  {waiting} waiting"
    for rejected in found.rejected:
        count = plural(rejected.segments, "segment")
        yield f"rejected {rejected.lane}  {count}, {rejected.bytes} bytes: {rejected.reason}"
    for lost in found.lost:
        yield f"lost {lost.lane}  {lost.first}-{lost.last}: {lost.reason}"


def _facts(found: UplinkStatus, route: Route) -> list[tuple[str, str]]:
    waiting = sum(lane.bytes for lane in found.lanes)
    full = ""
    if found.hours_until_full is not None:
        full = f"; full in {duration(3600 * found.hours_until_full)} without an upload"
    to = " ".join(f"{key}={text}" for key, text in _route(route).items())
    return [
        ("gateway", found.gateway),
        ("to", to or "no uplink configured"),
        ("last upload", _when(found.last_upload)),
        ("last notice", _notice(found)),
        ("backlog", f"{waiting} of {found.quota} bytes{full}"),
        ("unsealed", _unsealed(found.unsealed)),
    ]


def _notice(found: UplinkStatus) -> str:
    notice = found.last_notice
    if notice is None:
        return _NONE
    resolved = "; resolved by a later upload" if notice.time < (found.last_upload or 0) else ""
    return f"{_when(notice.time)} ({_ago(notice.time)}) {notice.name}: {notice.text}{resolved}"


def _unsealed(found: UnsealedEvents) -> str:
    events = plural(found.events, "event")
    oldest = "" if found.since is None else f", the oldest logged {_ago(found.since)}"
    return f"{events}{oldest}; sealed by the running gateway, and when it stops"


def _row(lane: Lane) -> tuple[str, ...]:
    age = _NONE
    if lane.oldest is not None:
        age = duration(max(0, current_time.now().wall - lane.oldest) / 1000)
    used = f"{100 * lane.bytes / lane.share:.0f} %"
    figures = (lane.last, lane.sealed, lane.settled, lane.segments, lane.bytes)
    return lane.lane, *map(str, figures), used, age


def _ago(time: int) -> str:
    seconds = (current_time.now().wall - time) / 1000
    return f"{duration(seconds)} ago" if seconds >= 0 else "in the future of this clock"


def _when(time: int | None) -> str:
    return _NONE if time is None else utc_time(time)
