"""`fieldpost-fleet import`: import exported segments from folders, such as USB sticks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sync.cli.options import fleet_dir, landing_uri
from sync.cli.printing import print_line
from sync.common.fleet_folder import FleetFolder
from sync.common.text import printable
from sync.storage.locations import StorageOptions

if TYPE_CHECKING:  # a heavy import, made where it is used
    from sync.receiver.segment_import import ImportResult


@click.command()
@click.argument(
    "paths",
    nargs=-1,
    required=True,
    type=click.Path(path_type=Path, exists=True),
    metavar="PATH...",
)
@fleet_dir
@landing_uri
@click.option(
    "--any", "anyone", is_flag=True, help="Also import segments of gateways that are not enrolled."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
def command(
    paths: tuple[Path, ...], folder: Path, landing: str | None, *, anyone: bool, as_json: bool
) -> None:
    """Import exported segments from files and folders.

    Imports all segments at and below each PATH, in any layout. Files are not changed, and importing
    them again has no effect. Exit status 1 if a file was refused.
    """
    import msgspec

    from sync.receiver.disk_quota import DiskQuota
    from sync.receiver.landing import Landing, Outcome
    from sync.receiver.limits import ReceiverLimits
    from sync.receiver.segment_import import import_file, segments_below

    fleet = FleetFolder(folder)
    fleet.require()
    options = StorageOptions(folder, landing, None)
    options.check()
    segments, limits = options.open_segments(), ReceiverLimits()
    place = Landing(segments, limits)
    quota = DiskQuota(fleet.incoming, segments, 0 if landing else limits.reserve_bytes)
    is_accepted = (lambda _: True) if anyone else _enrolled(fleet)
    counts: Counter[Outcome] = Counter()
    try:
        for each in chain.from_iterable(map(segments_below, paths)):
            result = import_file(each, place, is_accepted, quota.require)
            counts[result.outcome] += 1
            if result.text:
                print_line(_json_line(result) if as_json else _line(result), err=not as_json)
    finally:  # imported segments stay imported, even if the disk is full now
        numbers = {each.value: counts[each] for each in Outcome}
        text = "  ".join(f"{name} {count}" for name, count in numbers.items())
        click.echo(msgspec.json.encode(numbers).decode() if as_json else text)
    if counts[Outcome.BAD]:
        raise click.exceptions.Exit(1)


def _enrolled(fleet: FleetFolder) -> Callable[[str], bool]:
    from sync.receiver.gateways import GatewayRegistry

    survey = GatewayRegistry(fleet).survey()
    names = {record.gateway for record in survey.records if record.revoked is None}
    return names.__contains__


def _line(result: ImportResult) -> str:
    return f"{result.outcome.value}  {result.path}  {result.reason}: {result.text}"


def _json_line(result: ImportResult) -> str:
    import msgspec

    fields = {
        "path": printable(str(result.path)),  # a path may hold bytes that are not text
        "fate": result.outcome.value,
        "reason": result.reason,
        "text": result.text,
    }
    return msgspec.json.encode(fields).decode()
