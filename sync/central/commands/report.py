"""`fieldpost-fleet report`: makes the fleet's report from the tables."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sync.central.folders import FleetFolder
from sync.central.options import fleet_dir

if TYPE_CHECKING:
    from sync.central.reports.gather import Findings

_SHOWN = (
    "gateways",
    "segments",
    "events",
    "expected",
    "received",
    "missing",
    "declared",
    "unexplained",
    "duplicates",
    "forks",
    "bad_segments",
)


@click.command()
@fleet_dir
@click.option(
    "--out",
    required=True,
    type=click.Path(path_type=Path, file_okay=False),
    help="The folder to write index.html, report.json and a CSV for each table into.",
)
@click.option("--json", "as_json", is_flag=True, help="Print report.json instead of the totals.")
@click.option("--verbose", is_flag=True, help="Show Spark's own messages.")
def command(folder: Path, out: Path, *, as_json: bool, verbose: bool) -> None:
    """Make the report of all that is in the tables: a page, CSV and JSON.

    Spark's messages of the last run are in DIR/tables/report.log, unless --verbose shows them.
    """
    from sync.central.rendering.page import report_document, write_report

    found = _gather(folder, verbose=verbose)
    page = write_report(found, out)
    if as_json:
        click.echo((out / "report.json").read_text(encoding="utf-8"), nl=False)
        return
    document: dict[str, Any] = report_document(found)
    for line in _lines(document["totals"]):
        click.echo(line)
    wrong = sum(problem["weight"] == "wrong" for problem in document["problems"])
    click.echo(f"{'problems':<16}{wrong:>12}")
    click.echo(f"page {page}")


def _gather(folder: Path, *, verbose: bool) -> Findings:
    from sync.central.manifest import LocalCommits
    from sync.central.reports.gather import gather
    from sync.central.session import spark_session, spark_told
    from sync.central.tables import read_events, read_segments

    fleet = FleetFolder(folder)
    fleet.require()
    tables = fleet.tables.resolve()
    manifests = LocalCommits(tables).manifests()
    log = None if verbose else tables / "report.log"
    with spark_told(log), spark_session("fieldpost-report") as spark:
        events = read_events(spark, tables, manifests)
        segments = read_segments(spark, tables, manifests)
        return gather(events, segments, datetime.now(UTC))


def _lines(totals: dict[str, Any]) -> list[str]:
    lines = [f"{name.replace('_', ' '):<16}{totals[name]:>12}" for name in _SHOWN]
    for lane, kinds in totals["lanes"].items():
        lines += [f"{lane + '/' + kind:<16}{number:>12}" for kind, number in kinds.items()]
    return lines
