"""`fieldpost doctor`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from edge.cli import folder_option, report_errors, to_terminal
from edge.cli.uplink import certificate_ends, sealed_at, trouble, unmarked
from edge.config.load import Config
from edge.ops import doctor as admin
from edge.ops.checks.finding import VERDICTS, WRONG, Finding
from edge.ops.checks.shipping import Way
from edge.ops.doctor import Asked
from sync.common.enrolment import EnrolmentError, read_enrolment
from sync.common.text import columns


@click.command()
@folder_option
@click.option("--deep", is_flag=True, help="Look at each entry of the database: minutes, if large.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@report_errors
def doctor(folder: Path, deep: bool, as_json: bool) -> None:
    """Look what is wrong with the gateway, whether it runs or not; status 1 if something is.

    Each finding is ok, a notice (look at it some day) or wrong (it does not work, or soon will
    not), with what to do about it. Nothing is changed.
    """
    asked = Asked(lambda settings: _way(folder, settings), sealed_at, deep)
    found = list(admin.examine(folder, asked))
    worst = max((finding.verdict for finding in found), key=VERDICTS.index)
    if as_json:
        rows = [finding._asdict() for finding in found]
        click.echo(json.dumps({"verdict": worst, "findings": rows}))
    else:
        click.echo("\n".join(map(to_terminal, _lines(found))))
    if worst == WRONG:
        sys.exit(1)


def _lines(found: Sequence[Finding]) -> Iterator[str]:
    rows = [(finding.verdict, finding.name, finding.text) for finding in found]
    for finding, line in zip(found, columns(rows), strict=True):
        yield line
        if finding.remedy:
            yield f"        -> {finding.remedy}"


def _way(folder: Path, settings: Config) -> Way:
    options = settings.uplink
    if options.folder:
        remedy = (
            "mount it, and create the marker file once:"
            " see 'Into a folder' in docs/how-to/ship-to-the-centre.md"
        )
        return Way(options.folder, unmarked(folder, options.folder), remedy=remedy)
    if not options.enrolment:
        return Way("")
    try:
        enrolment = read_enrolment(folder / options.enrolment)
        ends = certificate_ends(enrolment)
    except (EnrolmentError, OSError) as error:
        return Way(options.enrolment, trouble(options.enrolment, error))
    return Way(enrolment.url, None, None if ends is None else round(ends.timestamp() * 1000))
