"""`fieldpost-fleet report`: write the fleet's report from the tables."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from typing import Any

import click

from sync.cli.gather import Selection, gather, report_session
from sync.cli.options import storage_options, time_zone
from sync.common.progress import progress_line
from sync.storage.locations import StorageOptions, open_storage

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


def _moment(_ctx: click.Context, _option: click.Parameter, text: str | None) -> datetime | None:
    """Parse a time that is not in the future; a day means its end, or now if it is today."""
    if text is None:
        return None
    now = datetime.now(UTC)
    try:
        try:
            moment = datetime.combine(date.fromisoformat(text), time.max, UTC)
        except ValueError:
            moment = datetime.fromisoformat(text)
            moment = moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        msg = f"{text} is neither a day (YYYY-MM-DD) nor a time (YYYY-MM-DDTHH:MM:SS)"
        raise click.BadParameter(msg) from None
    if moment.date() > now.date():
        raise click.BadParameter(f"{text} is in the future")
    return min(moment, now)


def _day(context: click.Context, _option: click.Parameter, text: str | None) -> date | None:
    """Parse a day, or a number of days such as `7d`; return the first day of the report."""
    if text is None:
        return None
    as_of: datetime | None = context.params.get("as_of")
    today = (as_of or datetime.now(UTC)).date()
    try:
        if re.fullmatch(r"[1-9][0-9]{0,4}d", text):
            return today - timedelta(days=int(text[:-1]) - 1)
        return date.fromisoformat(text)
    except (ValueError, OverflowError):
        msg = f"{text} is neither a day (YYYY-MM-DD) nor a number of days (7d)"
        raise click.BadParameter(msg) from None


@click.command()
@storage_options
@click.option(
    "--out",
    required=True,
    type=click.Path(file_okay=False),
    metavar="DIR|URI",
    help="Folder for index.html, report.json and a CSV file for each table: a path, or a URI such "
    "as s3://BUCKET/report.",
)
@click.option(
    "--since",
    metavar="DATE|DAYS",
    callback=_day,
    help="First day (UTC) of the report: YYYY-MM-DD, or 7d for the last seven days. Completeness "
    "always covers whole epochs.  [default: all days]",
)
@click.option(
    "--gateway",
    "gateways",
    multiple=True,
    metavar="NAME",
    help="Gateway to include. Repeatable.  [default: all]",
)
@click.option(
    "--only-problems",
    is_flag=True,
    help="Draw pages of gateways with problems only: a page takes some tenths of a second. The "
    "fleet's page lists all gateways.",
)
@click.option(
    "--as-of",
    metavar="TIME",
    callback=_moment,
    is_eager=True,
    help="Point in time (UTC) that the report describes: YYYY-MM-DD for the end of a day, or "
    "YYYY-MM-DDTHH:MM:SS.  [default: now]",
)
@click.option(
    "--cap",
    type=click.IntRange(min=1),
    metavar="BYTES",
    help="Quota of each gateway's folder, for the growth forecast.  [default: the quota that the "
    "gateway reports, else 1 GiB]",
)
@time_zone
@click.option(
    "--csv-formulas",
    "formulas",
    is_flag=True,
    help="Write texts in CSV files as they are. By default, a text that begins with = + - @ or a "
    "control character gets an apostrophe before it, so that no spreadsheet program computes it.",
)
@click.option("--json", "as_json", is_flag=True, help="Print report.json instead of the totals.")
@click.option(
    "--verbose", is_flag=True, help="Show Spark's messages, and how many days were recomputed."
)
def command(
    options: StorageOptions,
    out: str,
    since: date | None,
    gateways: tuple[str, ...],
    as_of: datetime | None,
    cap: int | None,
    zone: tzinfo,
    *,
    only_problems: bool,
    formulas: bool,
    as_json: bool,
    verbose: bool,
) -> None:
    """Write a report from the tables.

    The report consists of HTML pages, CSV files and a JSON file. Only days with new events since
    the last report are recomputed.

    Spark's messages of the last run are in DIR/tables/report.log, unless --verbose shows them.
    """
    from sync.pages.files import INDEX, prepare_report, report_document, report_json, write_report
    from sync.tables.spark_session import spark_errors

    places, report = options.open(), open_storage(out, public=True)
    prepare_report(report)
    selection = Selection(since, gateways or None, as_of, cap, zone, only_problems)
    log = None if verbose else options.log("report.log")
    with progress_line(shown=not verbose) as progress:
        progress("starting Spark", 0, 0)
        with spark_errors(log), report_session("fieldpost-report", places) as spark:
            found = gather(spark, places, selection, report, progress)
        write_report(
            found, report, formulas=formulas, only_problems=only_problems, progress=progress
        )
    if verbose:
        counts = ", ".join(f"{number} {how}" for how, number in found.days.items())
        click.echo(f"days {counts}", err=True)
    if as_json:
        click.echo(report_json(found), nl=False)
        return
    document: dict[str, Any] = report_document(found)
    for line in _lines(document["totals"]):
        click.echo(line)
    for name, weight in (("problems", "wrong"), ("notices", "notice")):
        number = sum(problem["weight"] == weight for problem in document["problems"])
        click.echo(f"{name:<16}{number:>12}")
    click.echo(f"page {out.rstrip('/')}/{INDEX}")


def _lines(totals: dict[str, Any]) -> list[str]:
    lines = [f"{name.replace('_', ' '):<16}{totals[name]:>12}" for name in _SHOWN]
    for lane, kinds in totals["lanes"].items():
        lines += [f"{lane + '/' + kind:<16}{number:>12}" for kind, number in kinds.items()]
    return lines
