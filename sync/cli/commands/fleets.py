"""`fieldpost-fleet fleets`: write one page about several fleets."""

from __future__ import annotations

import re
from datetime import UTC, datetime, tzinfo
from typing import Final

import click

from sync.cli.options import time_zone
from sync.common.errors import FleetError
from sync.storage.locations import open_storage

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
    type=click.Path(file_okay=False),
    metavar="DIR|URI",
    help="Folder for index.html, a path or a URI such as s3://BUCKET/reports. In it is a folder "
    "NAME with the report of each fleet.",
)
@time_zone
@click.argument("names", nargs=-1, required=True, metavar="NAME...", callback=_names)
def command(out: str, names: tuple[str, ...], zone: tzinfo) -> None:
    """Write a page with the totals and problems of the fleets NAME.

    The page is made from the report of each fleet, to which it links. The report of a fleet must be
    in the folder NAME of --out: `fieldpost-fleet report --out OUT/NAME` writes it there.

    The page says of a fleet that it has no report, or that its report is old. If a report is
    missing or damaged, the command fails after the page is written.
    """
    from sync.pages.files import INDEX
    from sync.pages.fleets import check_folder, fleets_page, read_fleet

    storage = open_storage(out, public=True)
    check_folder(storage)
    fleets = [read_fleet(storage, name) for name in names]
    storage.replace(INDEX, fleets_page(fleets, datetime.now(UTC), zone).encode())
    click.echo(f"page {out.rstrip('/')}/{INDEX}")
    lacking = [f"{fleet.name}: {fleet.lack}" for fleet in fleets if fleet.lack]
    if lacking:
        raise FleetError(" ".join(lacking))
