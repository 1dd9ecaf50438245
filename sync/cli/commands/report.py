"""`fieldpost-fleet report`: makes the fleet's report from the tables."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from sync.cli.options import fleet_dir
from sync.common.fleet_folder import FleetFolder

if TYPE_CHECKING:
    from sync.reports.gather import Findings

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
    """Which part of all there is: days from `since` on (UTC), or all; these gateways, or all; as
    things stood at `as_of`, or stand now. `cap`: bytes that a gateway's folder may take."""

    since: date | None
    gateways: tuple[str, ...] | None
    as_of: datetime | None
    cap: int | None


def _moment(_ctx: click.Context, _option: click.Parameter, told: str | None) -> datetime | None:
    """Read a moment that is over; a day alone is its end, as far as it is over."""
    if told is None:
        return None
    now = datetime.now(UTC)
    try:
        try:
            moment = datetime.combine(date.fromisoformat(told), time.max, UTC)
        except ValueError:
            moment = datetime.fromisoformat(told)
            moment = moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        msg = f"{told} is neither a day (YYYY-MM-DD) nor a moment (YYYY-MM-DDTHH:MM:SS)"
        raise click.BadParameter(msg) from None
    if moment.date() > now.date():
        msg = f"{told} is not over"
        raise click.BadParameter(msg)
    return min(moment, now)


def _day(context: click.Context, _option: click.Parameter, told: str | None) -> date | None:
    """Read a day, or a number of days of which that of the report is the last."""
    if told is None:
        return None
    as_of: datetime | None = context.params.get("as_of")
    today = (as_of or datetime.now(UTC)).date()
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
@click.option(
    "--as-of",
    metavar="TIME",
    callback=_moment,
    is_eager=True,
    help="Tell of things as they stood then (UTC), as far as the tables tell: YYYY-MM-DD for the "
    "end of a day, or YYYY-MM-DDTHH:MM:SS. Default: now.",
)
@click.option(
    "--cap",
    type=click.IntRange(min=1),
    metavar="BYTES",
    help="What the folder of each gateway may take, for the forecast of growth. Default: what the "
    "gateway says, else 1 GiB.",
)
@click.option("--json", "as_json", is_flag=True, help="Print report.json instead of the totals.")
@click.option("--verbose", is_flag=True, help="Show Spark's own messages, and more.")
def command(
    folder: Path,
    out: Path,
    since: date | None,
    gateways: tuple[str, ...],
    as_of: datetime | None,
    cap: int | None,
    *,
    as_json: bool,
    verbose: bool,
) -> None:
    """Make the report of what is in the tables: a page, CSV and JSON.

    Only days that events came in for since the last report are computed anew; --verbose tells how
    many that were.

    Spark's messages of the last run are in DIR/tables/report.log, unless --verbose shows them.
    """
    from sync.pages.page import report_document, write_report

    asked = _Asked(since, gateways or None, as_of, cap)
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
    from sync.reports.as_of import at
    from sync.reports.context import Given
    from sync.reports.figures import finite
    from sync.reports.gather import gather, summaries_of
    from sync.tables.manifest import LocalCommits
    from sync.tables.spark_session import lenient, spark_session, spark_told
    from sync.tables.summaries import summarise
    from sync.tables.tables import read_segments

    fleet = FleetFolder(folder)
    fleet.require()
    tables = fleet.tables.resolve()
    manifests = LocalCommits(tables).manifests()
    log = None if verbose else tables / "report.log"
    with spark_told(log), spark_session("fieldpost-report") as spark, lenient(spark):
        kept = summarise(spark, tables, manifests, summaries_of())
        segments = read_segments(spark, tables, manifests)
        moment = asked.as_of or datetime.now(UTC)
        if asked.as_of is not None:
            kept, segments = at(kept, segments, moment)
        given = Given(kept, segments, moment, asked.since, asked.gateways, asked.cap)
        return finite(gather(given))


def _lines(totals: dict[str, Any]) -> list[str]:
    lines = [f"{name.replace('_', ' '):<16}{totals[name]:>12}" for name in _SHOWN]
    for lane, kinds in totals["lanes"].items():
        lines += [f"{lane + '/' + kind:<16}{number:>12}" for kind, number in kinds.items()]
    return lines
