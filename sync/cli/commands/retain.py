"""`fieldpost-fleet retain`: delete events and files that are older than their retention."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from sync.cli.options import DAYS, storage_options
from sync.common.progress import progress_line
from sync.storage.locations import StorageOptions

if TYPE_CHECKING:  # a heavy import, made where it is used
    from sync.tables.maintenance import RetentionResult


@click.command()
@storage_options
@click.option(
    "--events", type=DAYS, metavar="DAYS", help="Delete events older than this many days."
)
@click.option(
    "--archive",
    type=DAYS,
    metavar="DAYS",
    help="Delete archived segments that arrived more than this many days ago.",
)
@click.option(
    "--quarantine",
    type=DAYS,
    metavar="DAYS",
    help="Delete quarantined files older than this many days.",
)
@click.option("--dry-run", is_flag=True, help="Print what would be deleted, and delete nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON object.")
@click.option("--verbose", is_flag=True, help="Show Spark's messages.")
def command(
    options: StorageOptions,
    events: int | None,
    archive: int | None,
    quarantine: int | None,
    *,
    dry_run: bool,
    as_json: bool,
    verbose: bool,
) -> None:
    """Delete old events, archived segments and quarantined files.

    Only what an option names is deleted. Events are summarised for the reports before they are
    deleted, by Spark (and Java). Files of interrupted runs are always removed. Waits at most 10
    minutes for a running ingest.
    """
    from sync.reports.shared.registry import SUMMARIES
    from sync.tables.maintenance import RetentionPolicy, retain
    from sync.tables.spark_session import spark_errors, spark_on_demand, spark_session
    from sync.tables.summaries import summarise

    places = options.open()
    with (
        progress_line(shown=not verbose) as progress,
        spark_errors(None if verbose else options.log("retain.log")),
        spark_on_demand(lambda: spark_session("fieldpost-retain")) as session,
    ):
        found = retain(
            places,
            RetentionPolicy(events, archive, quarantine),
            datetime.now(UTC),
            summarise=lambda seen: summarise(session(), seen, SUMMARIES, progress=progress),
            progress=progress,
            dry_run=dry_run,
        )
    click.echo(json.dumps(_document(found)) if as_json else _lines(found, dry_run=dry_run))


def _document(found: RetentionResult) -> dict[str, Any]:
    return {
        "days": found.days,
        "event_files": len(found.event_files),
        "archive": [file.path for file in found.archive],
        "quarantine": [file.path for file in found.quarantine],
        "replaced": len(found.replaced),
    }


def _lines(found: RetentionResult, *, dry_run: bool) -> str:
    days = sorted(found.days)
    span = f" ({days[0]} to {days[-1]})" if days else ""
    rows = f" with {sum(found.days.values())} rows"
    stored = sum(file.size for file in (*found.archive, *found.quarantine))
    return (
        f"{'would delete' if dry_run else 'deleted'} {len(days)} days of events{span}{rows}; "
        f"{len(found.archive)} archived and {len(found.quarantine)} quarantined files, "
        f"{stored} bytes; {len(found.replaced)} replaced or abandoned files"
    )
