"""`fieldpost-fleet report`: makes the fleet's report from the tables."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

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


class _Asked(NamedTuple):
    """Which part of all there is: days from `since` on (UTC), or all; these gateways, or all."""

    since: date | None
    gateways: tuple[str, ...] | None


def _day(_context: click.Context, _option: click.Parameter, told: str | None) -> date | None:
    """Read a day, or a number of days of which today is the last."""
    if told is None:
        return None
    today = datetime.now(UTC).date()
    try:
        if re.fullmatch(r"[1-9][0-9]{0,4}d", told):
            return today - timedelta(days=int(told[:-1]) - 1)
        return date.fromisoformat(told)
    except (ValueError, OverflowError):
        msg = f"{told} is neither a day (YYYY-MM-DD) nor a number of days (7d)"
        raise click.BadParameter(msg) from None


@click.command()
@fleet_dir
@click.option(
    "--out",
    required=True,
    type=click.Path(path_type=Path, file_okay=False),
    help="The folder to write index.html, report.json and a CSV for each table into.",
)
@click.option(
    "--since",
    metavar="DATE|DAYS",
    callback=_day,
    help="The first day (UTC) to tell of: YYYY-MM-DD, or 7d for the last seven. Default: all. "
    "Completeness is always told of whole epochs.",
)
@click.option(
    "--gateway",
    "gateways",
    multiple=True,
    metavar="NAME",
    help="A gateway to tell of; may be given more than once. Default: all.",
)
@click.option("--json", "as_json", is_flag=True, help="Print report.json instead of the totals.")
@click.option("--verbose", is_flag=True, help="Show Spark's own messages, and more.")
def command(
    folder: Path,
    out: Path,
    since: date | None,
    gateways: tuple[str, ...],
    *,
    as_json: bool,
    verbose: bool,
) -> None:
    """Make the report of what is in the tables: a page, CSV and JSON.

    Only days that events came in for since the last report are computed anew; --verbose tells how
    many that were.

    Spark's messages of the last run are in DIR/tables/report.log, unless --verbose shows them.
    """
    from sync.central.rendering.page import report_document, write_report

    asked = _Asked(since, gateways or None)
    found = _gather(folder, asked, verbose=verbose)
    if verbose:
        told = ", ".join(f"{number} {how}" for how, number in found.days.items())
        click.echo(f"days {told}", err=True)
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


def _gather(folder: Path, asked: _Asked, *, verbose: bool) -> Findings:
    from sync.central.manifest import LocalCommits
    from sync.central.reports.gather import gather, summaries_of
    from sync.central.reports.given import Given
    from sync.central.session import spark_session, spark_told
    from sync.central.summaries import summarise
    from sync.central.tables import read_segments

    fleet = FleetFolder(folder)
    fleet.require()
    tables = fleet.tables.resolve()
    manifests = LocalCommits(tables).manifests()
    log = None if verbose else tables / "report.log"
    with spark_told(log), spark_session("fieldpost-report") as spark:
        kept = summarise(spark, tables, manifests, summaries_of())
        segments = read_segments(spark, tables, manifests)
        return gather(Given(kept, segments, datetime.now(UTC), asked.since, asked.gateways))


def _lines(totals: dict[str, Any]) -> list[str]:
    lines = [f"{name.replace('_', ' '):<16}{totals[name]:>12}" for name in _SHOWN]
    for lane, kinds in totals["lanes"].items():
        lines += [f"{lane + '/' + kind:<16}{number:>12}" for kind, number in kinds.items()]
    return lines
