"""Options that several `fieldpost-fleet` commands share."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, tzinfo
from functools import wraps
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import click

from sync.common.fleet_folder import FLEET_DIR_VARIABLE
from sync.storage.locations import StorageOptions

DAYS = click.IntRange(min=1, max=100_000)
"""An age in days: at most some 270 years, so that the day is a valid date."""


def _dir_option(meaning: str, *, required: bool) -> Callable[..., Any]:
    return click.option(
        "--dir",
        "folder",
        envvar=FLEET_DIR_VARIABLE,
        required=required,
        type=click.Path(path_type=Path, file_okay=False, readable=False),
        help=meaning,
        show_envvar=True,
    )


fleet_dir = _dir_option("Folder of the centre (fleet folder).", required=True)

landing_uri = click.option(
    "--landing",
    metavar="URI",
    help="Folder of arrived segments (landing), if not in the fleet folder, such as "
    "s3://BUCKET/fleet/landing; archive and quarantine are beside it.",
)

tables_uri = click.option(
    "--tables",
    metavar="URI",
    help="Folder of the tables, if not in the fleet folder, such as s3://BUCKET/fleet/tables.",
)


def _zone(_ctx: click.Context, _option: click.Parameter, name: str) -> tzinfo:
    try:
        return UTC if name == "UTC" else ZoneInfo(name)
    except (LookupError, ValueError, OSError):
        msg = f"{name} is no time zone; use a name such as Europe/Berlin or America/New_York"
        raise click.BadParameter(msg) from None


time_zone = click.option(
    "--time-zone",
    "zone",
    default="UTC",
    metavar="NAME",
    callback=_zone,
    help="Time zone of the times on the pages, such as Europe/Berlin. Days are UTC days, and times "
    "in CSV and JSON are in UTC.  [default: UTC]",
)


def storage_options(run: Callable[..., None]) -> Callable[..., None]:
    """Add `--dir`, `--landing` and `--tables` to a command, which gets them as `StorageOptions`."""

    @wraps(run)
    def command(
        folder: Path | None, landing: str | None, tables: str | None, **others: Any
    ) -> None:
        run(StorageOptions(folder, landing, tables), **others)

    for option in (
        tables_uri,
        landing_uri,
        _dir_option(
            "Folder of the centre (fleet folder). Not needed if --landing and --tables are given.",
            required=False,
        ),
    ):
        command = option(command)
    return command
