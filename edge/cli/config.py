"""The `fieldpost config` commands."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import click

from edge.cli import echo_found, folder_option, json_option
from edge.config.annotated_file import to_toml
from edge.ops.checks import config_check
from edge.ops.checks.config_check import ChangedOption, Report


@click.group()
def config() -> None:
    """Check the configuration, `fieldpost.toml`."""


@config.command()
@folder_option
@json_option("Print one JSON object.")
def check(folder: Path, as_json: bool) -> None:
    """Report mistakes and changed options.

    Lists every mistake in fieldpost.toml, also a component's secret or an enrolment that does not
    exist, and the options that differ from their defaults. Exit status 1 means that there is a
    mistake. A running gateway keeps its options until `fieldpost reload` or a restart.
    """
    report = config_check.check(folder)
    echo_found([_object(report)], _lines(report), as_json=as_json)
    if report.faults:
        sys.exit(1)


def _object(report: Report) -> dict[str, object]:
    return {
        "faults": [fault._asdict() for fault in report.faults],
        "changed": {
            each.option: {"value": each.value, "default": each.default} for each in report.changed
        },
    }


def _lines(report: Report) -> Iterator[str]:
    for fault in report.faults:
        yield f"wrong: {fault}"
    yield from map(_line, report.changed)
    if not report.faults:
        yield "no mistakes found"


def _line(each: ChangedOption) -> str:
    text = f"{each.option} = {to_toml(each.value)}"
    return text if each.default is None else f"{text} (default: {to_toml(each.default)})"
