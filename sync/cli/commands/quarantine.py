"""`fieldpost-fleet quarantine`: inspect, re-admit or delete segments that the ingest refused."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sync.cli.options import fleet_dir
from sync.cli.printing import print_line
from sync.common.errors import FleetError
from sync.common.fleet_folder import FleetFolder
from sync.common.text import plural

if TYPE_CHECKING:  # heavy imports, made where they are used
    from sync.ingest.inspect_file import FileInspection
    from sync.ingest.quarantine import Quarantine, QuarantinedFile


@click.group()
def command() -> None:
    """Inspect, re-admit or delete segments that the ingest refused."""


@command.command("list")
@fleet_dir
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
def list_files(folder: Path, *, as_json: bool) -> None:
    """List quarantined files with the reason of each, oldest first."""
    for file in _quarantine(folder).files():
        if as_json:
            click.echo(json.dumps(_document(file)))
        else:
            day = file.arrived.strftime("%Y-%m-%d %H:%M")
            print_line(f"{day}  {file.reason:<9}  {file.size:>9}  {file.shown}")


@command.command()
@click.argument("file")
@fleet_dir
@click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON object.")
def show(file: str, folder: Path, *, as_json: bool) -> None:
    """Show why FILE was refused, its header if readable, and its first bytes."""
    quarantine = _quarantine(folder)
    quarantined = quarantine.find(file)
    inspected = quarantine.inspect(quarantined)
    if as_json:
        click.echo(json.dumps(_document(quarantined) | _inspection(inspected)))
        return
    for name, value in (
        _document(quarantined) | {"path": quarantined.shown} | _inspection(inspected)
    ).items():
        if name == "header":
            for key, text in value.items():
                print_line(f"  {key:<10}{text}")
        elif value is not None:
            print_line(f"{name:<12}{value}")


@command.command()
@click.argument("files", nargs=-1)
@fleet_dir
@click.option("--reason", help="Re-admit all files that were refused for this reason.")
def readmit(files: tuple[str, ...], folder: Path, *, reason: str | None) -> None:
    """Move FILES back to the landing, so that the next ingest examines them again.

    Exit status 1 if a file could not be moved.
    """
    if bool(files) == bool(reason):
        raise click.UsageError("give either FILES or --reason, not both")
    quarantine = _quarantine(folder)
    moved, refused = quarantine.readmit(_chosen(quarantine, files, reason))
    for path in moved:
        print_line(f"re-admitted {path}")
    for text in refused:
        print_line(f"not re-admitted {text}", err=True)
    if refused:
        raise FleetError(f"{plural(len(refused), 'file')} could not be moved")
    if not moved:
        click.echo("nothing to re-admit")


@command.command()
@click.argument("files", nargs=-1, required=True)
@fleet_dir
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
def drop(files: tuple[str, ...], folder: Path, *, yes: bool) -> None:
    """Delete FILES from the quarantine permanently."""
    quarantine = _quarantine(folder)
    chosen = _chosen(quarantine, files, None)
    if not yes:
        click.confirm(f"Delete {plural(len(chosen), 'file')} permanently?", abort=True)
    for file in chosen:
        quarantine.drop(file)
        print_line(f"dropped {file.shown}")


def _quarantine(folder: Path) -> Quarantine:
    from sync.ingest.quarantine import Quarantine

    fleet = FleetFolder(folder)
    fleet.require()
    return Quarantine(fleet)


def _chosen(
    quarantine: Quarantine, files: Sequence[str], reason: str | None
) -> list[QuarantinedFile]:
    if reason is not None:
        return [file for file in quarantine.files() if file.reason == reason]
    return list(dict.fromkeys(map(quarantine.find, files)))


def _document(file: QuarantinedFile) -> dict[str, Any]:
    return file._asdict() | {"arrived": file.arrived.isoformat(timespec="seconds")}


def _inspection(inspected: FileInspection) -> dict[str, Any]:
    fault = f"{inspected.reason}: {inspected.detail}"
    return {
        "sha256": inspected.sha256,
        "version": inspected.version,
        "now": "readable by this version" if inspected.reason is None else fault,
        "header": inspected.header,
        "first": inspected.first,
    }
