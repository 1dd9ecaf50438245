"""`fieldpost config`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from edge.cli import folder as folder_option
from edge.cli import shown, telling
from edge.config.annotated_file import written
from edge.ops import config_check as admin
from edge.ops.config_check import Changed, Checked


@click.group()
def config() -> None:
    """The configuration, `fieldpost.toml`."""


@config.command()
@folder_option
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@telling
def check(folder: Path, as_json: bool) -> None:
    """Check every option, and print what differs from the defaults; status 1 if there is a fault.

    A running gateway is not asked: it has what the file said when it was started.
    """
    found = admin.check(folder)
    click.echo(json.dumps(_object(found)) if as_json else "\n".join(map(shown, _lines(found))))
    if found.faults:
        sys.exit(1)


def _object(found: Checked) -> dict[str, object]:
    return {
        "faults": [fault._asdict() for fault in found.faults],
        "changed": {
            each.option: {"value": each.value, "default": each.default} for each in found.changed
        },
    }


def _lines(found: Checked) -> Iterator[str]:
    for fault in found.faults:
        yield f"wrong: {fault.option}: {fault.text}" if fault.option else f"wrong: {fault.text}"
    yield from map(_line, found.changed)
    if not found.faults:
        yield "nothing is wrong"


def _line(each: Changed) -> str:
    text = f"{each.option} = {written(each.value)}"
    return text if each.default is None else f"{text} (default: {written(each.default)})"
