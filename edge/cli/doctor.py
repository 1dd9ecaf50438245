"""The `fieldpost doctor` command."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from edge.cli import echo_found, folder_option, json_option
from edge.ops.checks.doctor import diagnose
from edge.ops.checks.finding import VERDICTS, WRONG, Finding
from sync.common.text import columns


@click.command()
@folder_option
@click.option(
    "--deep", is_flag=True, help="Check every database entry; a large database takes minutes."
)
@json_option("Print one JSON object.")
def doctor(folder: Path, deep: bool, as_json: bool) -> None:
    """Diagnose a running or stopped gateway. Nothing is changed.

    Each finding is `ok`, `notice` (not urgent) or `wrong` (something fails, or soon will),
    followed by what to do. Exit status 1 means that something is wrong.
    """
    findings = list(diagnose(folder, deep=deep))
    worst = max((finding.verdict for finding in findings), key=VERDICTS.index)
    whole = {"verdict": worst, "findings": [finding._asdict() for finding in findings]}
    echo_found([whole], _lines(findings), as_json=as_json)
    if worst == WRONG:
        sys.exit(1)


def _lines(findings: Sequence[Finding]) -> Iterator[str]:
    rows = [(finding.verdict, finding.name, finding.text) for finding in findings]
    for finding, line in zip(findings, columns(rows), strict=True):
        yield line
        if finding.remedy:
            yield f"        -> {finding.remedy}"
