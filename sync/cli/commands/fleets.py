"""`fieldpost-fleet fleets`: write one page about several fleets."""

from __future__ import annotations

import re
from datetime import UTC, datetime, tzinfo
from pathlib import Path
from typing import Final

import click

from sync.cli.options import time_zone
from sync.common.errors import FleetError

_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*", re.ASCII)


def _names(
    _ctx: click.Context, _argument: click.Parameter, names: tuple[str, ...]
) -> tuple[str, ...]:
    for name in names:
        if _NAME.fullmatch(name) is None:
            raise click.BadParameter(f"{name} is not the name of a folder in --out")
    return tuple(sorted(set(names)))


@click.command()
@click.option(
    "--out",
    required=True,
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder for index.html. In it is a folder NAME with the report of each fleet.",
)
@time_zone
@click.argument("names", nargs=-1, required=True, metavar="NAME...", callback=_names)
def command(out: Path, names: tuple[str, ...], zone: tzinfo) -> None:
    """Write a page with the totals and problems of the fleets NAME.

    The page is made from the report of each fleet, to which it links. The report of a fleet must be
    in the folder NAME of --out: `fieldpost-fleet report --out OUT/NAME` writes it there.

    The page says of a fleet that it has no report, or that its report is old. If a report is
    missing or damaged, the command fails after the page is written.
    """
    from sync.common.durable_files import replace_file
    from sync.pages.files import READABLE
    from sync.pages.fleets import check_folder, fleets_page, read_fleet
    from sync.storage.local import LocalStorage

    storage = LocalStorage(out.resolve())
    check_folder(storage)
    fleets = [read_fleet(storage, name) for name in names]
    page = out / "index.html"
    replace_file(page, fleets_page(fleets, datetime.now(UTC), zone).encode(), READABLE)
    click.echo(f"page {page}")
    lacking = [f"{fleet.name}: {fleet.lack}" for fleet in fleets if fleet.lack]
    if lacking:
        raise FleetError(" ".join(lacking))
