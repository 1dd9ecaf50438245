"""`fieldpost-fleet import`: take segments from folders or sticks into the landing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sync.cli.options import fleet_dir
from sync.cli.printing import tell
from sync.common.fleet_folder import FleetFolder
from sync.common.text import printable

if TYPE_CHECKING:
    from sync.receiver.segment_import import Importer, ImportResult


@click.command()
@click.argument(
    "paths",
    nargs=-1,
    required=True,
    type=click.Path(path_type=Path, exists=True),
    metavar="PATH...",
)
@fleet_dir
@click.option(
    "--any", "anyone", is_flag=True, help="Take segments of gateways that are not enrolled too."
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
def command(paths: tuple[Path, ...], folder: Path, *, anyone: bool, as_json: bool) -> None:
    """Take the segments at and below each PATH, in any layout and order, as often as you like.

    Files stay where they are. Exit status 1 if one of them could not be taken.
    """
    from sync.receiver.segment_import import ImportOutcome, segments_below

    fleet = FleetFolder(folder)
    fleet.require()
    importer = _importer(fleet, anyone=anyone)
    counts: Counter[ImportOutcome] = Counter()
    try:
        for each in chain.from_iterable(map(segments_below, paths)):
            taken = importer.take(each)
            counts[taken.fate] += 1
            if taken.text:
                tell(_json_line(taken) if as_json else _line(taken), err=not as_json)
    finally:  # what is taken stays taken, also where the disk is full
        click.echo(_summary({fate.value: counts[fate] for fate in ImportOutcome}, as_json=as_json))
    if counts[ImportOutcome.BAD]:
        raise click.exceptions.Exit(1)


def _importer(fleet: FleetFolder, *, anyone: bool) -> Importer:
    from sync.receiver.disk_quota import DiskQuota
    from sync.receiver.landing import AsideLimits, Landing
    from sync.receiver.limits import ReceiverLimits
    from sync.receiver.segment_import import TEMPORARIES, Importer

    limits = ReceiverLimits()
    landing = Landing(fleet, TEMPORARIES, AsideLimits(limits.aside_files, limits.aside_bytes))
    landing.clean()
    welcome = (lambda _: True) if anyone else _enrolled(fleet)
    return Importer(landing, welcome, DiskQuota(fleet, limits.reserve_bytes).require)


def _enrolled(fleet: FleetFolder) -> Callable[[str], bool]:
    """Tell whether a gateway is enrolled and not revoked, by the records of this moment."""
    from sync.receiver.gateways import GatewayRegistry

    survey = GatewayRegistry(fleet).survey()
    names = {record.gateway for record in survey.records if record.revoked is None}
    return names.__contains__


def _line(taken: ImportResult) -> str:
    return f"{taken.fate.value}  {taken.path}  {taken.reason}: {taken.text}"


def _json_line(taken: ImportResult) -> str:
    import msgspec

    path = printable(str(taken.path))  # which may hold any bytes, and JSON holds text
    shown = {**taken._asdict(), "path": path, "fate": taken.fate.value}
    return msgspec.json.encode(shown).decode()


def _summary(counts: dict[str, int], *, as_json: bool) -> str:
    import msgspec

    if as_json:
        return msgspec.json.encode(counts).decode()
    return "  ".join(f"{name} {count}" for name, count in counts.items())
