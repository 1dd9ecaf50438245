"""`fieldpost-fleet quarantine`: inspect, re-admit or delete segments that the ingest refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any

import click

from sync.cli.options import storage_options
from sync.cli.printing import print_line
from sync.common.errors import FleetError
from sync.common.text import plural
from sync.storage.locations import StorageOptions

if TYPE_CHECKING:  # heavy imports, made where they are used
    from sync.ingest.inspect_file import FileInspection
    from sync.ingest.quarantine import Quarantine, QuarantinedFile


@click.group()
def command() -> None:
    """Inspect, re-admit or delete segments that the ingest refused."""


def _with_quarantine(run: Callable[..., None]) -> Callable[..., None]:
    """Add the options of `storage_options` to a command, which gets the quarantine instead."""

    @storage_options
    @wraps(run)
    def command(options: StorageOptions, **others: Any) -> None:
        from sync.ingest.quarantine import Quarantine

        run(Quarantine(options.open()), **others)

    return command


@command.command("list")
@_with_quarantine
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
def list_files(quarantine: Quarantine, *, as_json: bool) -> None:
    """List quarantined files with the reason of each, oldest first."""
    for file in quarantine.files():
        if as_json:
            click.echo(json.dumps(_document(file)))
        else:
            day = file.arrived.strftime("%Y-%m-%d %H:%M")
            print_line(f"{day}  {file.reason:<9}  {file.size:>9}  {file.shown}")


@command.command()
@click.argument("file")
@_with_quarantine
@click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON object.")
def show(quarantine: Quarantine, file: str, *, as_json: bool) -> None:
    """Show why FILE was refused, its header if readable, and its first bytes."""
    [quarantined] = quarantine.find([file])
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
@_with_quarantine
@click.option("--reason", help="Re-admit all files that were refused for this reason.")
def readmit(quarantine: Quarantine, files: tuple[str, ...], *, reason: str | None) -> None:
    """Move FILES back to the landing, so that the next ingest examines them again.

    Exit status 1 if a file could not be moved.
    """
    if bool(files) == bool(reason):
        raise click.UsageError("give either FILES or --reason, not both")
    if reason is None:
        chosen = quarantine.find(files)
    else:
        chosen = [file for file in quarantine.files() if file.reason == reason]
    moved, refused = quarantine.readmit(chosen)
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
@_with_quarantine
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
def drop(quarantine: Quarantine, files: tuple[str, ...], *, yes: bool) -> None:
    """Delete FILES from the quarantine permanently."""
    chosen = quarantine.find(files)
    if not yes:
        click.confirm(f"Delete {plural(len(chosen), 'file')} permanently?", abort=True)
    for file in chosen:
        quarantine.drop(file)
        print_line(f"dropped {file.shown}")


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
