"""The `fieldpost reload` command."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import click
import msgspec

from edge.cli import echo_found, folder_option, json_option
from edge.errors import SetupError
from edge.ops.gateway import control
from edge.ops.gateway.control import ReloadReport


@click.command()
@folder_option
@json_option("Print one JSON object.")
def reload(folder: Path, as_json: bool) -> None:
    """Make the running gateway apply its changed configuration.

    Reads fieldpost.toml, the certificates, the revocation list and the enrolment again. All
    files are checked first: if there is a mistake, nothing changes, and the exit status is 1.
    Options that need a restart are named.
    """
    report = control.reload(folder)
    if report is None:
        raise SetupError(f"the gateway in {folder} is not running; `fieldpost run` starts it")
    echo_found([msgspec.to_builtins(report)], _lines(report), as_json=as_json)
    if report.faults:
        sys.exit(1)


def _lines(report: ReloadReport) -> Iterator[str]:
    for fault in report.faults:
        yield f"wrong: {fault}"
    if report.faults:
        yield "nothing was changed"
        return
    for option in report.changed:
        yield f"changed: {option}"
    for option in report.restart:
        yield f"needs a restart: {option}"
    if not report.changed:
        yield "no option was changed; the certificates and the revocation list were read again"
