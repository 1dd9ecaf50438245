"""Quarantine: files that were not accepted, because they are invalid or contradict accepted ones.

Each file counts once, however often it was sent. The files are in the fleet folder's quarantine.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sync.reports.shared import column
from sync.reports.shared.findings import Findings, Row
from sync.reports.shared.formats import size
from sync.reports.shared.frames import INTEGER, TEXT, schema
from sync.reports.shared.report import Problem, ProblemKind, Report, Series, Table
from sync.segment.identity import is_gateway
from sync.tables.partitions import conform, union
from sync.tables.tables import ACCEPTED, refused

TABLE: Final = Table(
    order=160,
    title="Quarantine",
    about=(
        "Files that were read and not accepted, latest first, each once, with the path from which "
        "they were read."
    ),
    columns=(
        column.time("arrived", "Arrived"),
        column.prose("path", "File"),
        column.number("size", "Size", size),
        column.text("reason", "Reason", {"fork": "contradicts another file"}),
        column.prose("detail", "Details"),
    ),
    empty="All files that were read were accepted.",
)
"""A file that was not accepted: its path when it was read, its size in bytes, and the reason."""

FILES: Final = schema(fate=TEXT, files=INTEGER)
"""Number of files by result: `accepted` (also after a refusal), `bad` (invalid) or `fork`."""

_BAD: Final = ProblemKind("bad_segment", 50, "wrong", "files are not valid segments")

ROWS: Final = 1_000
"""Maximum number of listed files, the latest ones: more usually have one cause."""


def quarantine(segments: DataFrame) -> DataFrame:
    """Compute a row of `TABLE` for each of the last `ROWS` refused files, latest first."""
    return conform(refused(segments), TABLE.schema).orderBy(F.desc("arrived"), "path").limit(ROWS)


def files_by_fate(segments: DataFrame) -> DataFrame:
    """Count the files by result, as rows of `FILES`."""
    files = union(segments.where(F.col("fate") == ACCEPTED), refused(segments))
    counts = files.groupBy("fate").agg(F.count(F.lit(1)).alias("files"))
    return conform(counts, FILES).orderBy("fate")


def gateways_of(row: Row) -> list[str]:
    """Return the gateway after which the file's folder is named; an empty list if there is none."""
    parts = row["path"].split("/")
    return [parts[1]] if len(parts) > 2 and is_gateway(parts[1]) else []


def problems(findings: Findings) -> Iterator[Problem]:
    """Find invalid files: one problem for the fleet, because such a file may name no gateway."""
    for row in findings["files_by_fate"]:
        if row["fate"] == "bad":
            yield _BAD.of(
                "",
                f"Invalid files: {row['files']}.",
                "`fieldpost-fleet quarantine list` shows why each file was refused. A gateway does "
                "not send a refused segment again by itself: check whether events are missing.",
                "landing",
            )


REPORT: Final = Report(
    "quarantine",
    (),
    lambda context: quarantine(context.segments()),
    TABLE,
    series=(Series("files_by_fate", (), lambda context: files_by_fate(context.segments())),),
    problem_kinds=(_BAD,),
    problems=problems,
    gateways_of=gateways_of,
)
