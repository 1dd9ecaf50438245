"""Completeness: which events arrived, which did not, and why.

A gateway numbers the events of each lane of an epoch from 1 without gaps, so missing events can be
counted: those before the first that arrived, those between, and those that the gateway says it
dropped. Events after the highest number that arrived or was dropped cannot be known; the state
of the epoch shows whether there may be any. **Unexplained** must be zero. The report always covers
whole epochs, whatever range of days is asked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from sync.reports.shared import column, frames, lanes
from sync.reports.shared.events import is_system_event, tag, text_tag
from sync.reports.shared.findings import Findings
from sync.reports.shared.formats import count
from sync.reports.shared.frames import INTEGER, LANE, OLDER, TEXT, merged, schema
from sync.reports.shared.report import Problem, ProblemKind, Report, Table
from sync.tables.partitions import conform, union
from sync.tables.summaries import Summary

TABLE: Final = Table(
    order=30,
    title="Completeness",
    about=(
        "Each gateway numbers its events from 1 without gaps, separately in three lanes (readings, "
        "logs and system events), and starts again with a new epoch when its database is new. So "
        "missing events can be counted: missing = expected - received. Dropped events were given "
        "up by the gateway, which reports that; the other missing ones are unexplained, and there "
        "must be none. An epoch is closed by a clean stop, open as long as it may continue, and "
        "cut off if a newer one began without a clean stop. The epochs of a gateway before its "
        f"latest {count(frames.GATEWAY_ROWS)} rows are added up for each lane, as epoch {OLDER}."
    ),
    columns=(
        column.text("gateway", "Gateway"),
        column.text("epoch", "Epoch"),
        column.text("lane", "Lane"),
        column.state(
            "state",
            "State",
            {"closed": "good", "open": "calm", "torn": "wrong"},
            {"torn": "cut off"},
        ),
        column.number("expected", "Expected"),
        column.number("received", "Received"),
        column.number("missing", "Missing"),
        column.number("declared", "Dropped"),
        column.alarm("unexplained", "Unexplained"),
        column.alarm("duplicates", "Stored twice"),
        column.alarm("forks", "Contradicting segments"),
        column.alarm("chain_breaks", "Segments out of sequence"),
        column.number("repeated_segments", "Repeated segments"),
        column.number("first_seq", "First number"),
        column.number("last_seq", "Last number"),
        column.time("since", "Last event"),
    ),
)
"""`state` of the epoch: `closed` (its last event, at `since`, is a clean stop), `open` (the lane's
last event was at `since`) or `torn` (open, and a later epoch has begun). `expected` counts from 1
to the last number that arrived or was dropped; `missing` of these did not arrive, and the gateway
reports `declared` of the missing as dropped; the others are `unexplained`. `duplicates` are events
that are in the tables more than once; `repeated_segments` were recognised and left out. `forks`
contradict accepted segments; `chain_breaks` follow an accepted segment without carrying its
digest."""

DROPPED: Final = schema(gateway=TEXT, epoch=TEXT, lane=TEXT, first_seq=INTEGER, last_seq=INTEGER)
"""Sequence numbers that a gateway reports as dropped by an event `uplink/evicted` or
`uplink/set_aside`. The header of a later segment reports them too, but there may be no later
segment of that lane."""

FIRST_PREVIOUS: Final = "00" * 32
"""The value that a lane's first segment has in place of the previous segment's digest."""


def dropped(events: DataFrame) -> DataFrame:
    """Compute the rows of `DROPPED` for each `day`."""
    rows = events.where(is_system_event("uplink", "evicted", "set_aside")).select(
        "day",
        "gateway",
        text_tag("epoch").alias("epoch"),
        text_tag("lane").alias("lane"),
        tag("first").alias("first_seq"),
        tag("last").alias("last_seq"),
    )
    named = rows.where("epoch IS NOT NULL AND lane IS NOT NULL")
    return named.where("0 < first_seq AND first_seq <= last_seq")


def completeness(numbers: DataFrame, dropped: DataFrame, segments: DataFrame) -> DataFrame:
    """Compute a row of `TABLE` for each lane of each epoch of each gateway, in that order.

    `numbers` (rows of `lanes.RANGES`) and `dropped` (of `DROPPED`) cover all days.
    """
    arrived = lanes.merge_ranges(numbers)
    dropped = dropped_ranges(dropped, segments)
    rows = merged(
        LANE,
        _received(arrived),
        _counted(numbers),
        _refused(segments),
        _chain_breaks(segments),
        _declared(arrived, dropped),
    )
    missing = F.col("expected") - F.col("received")
    expected = F.greatest("last_seq", "dropped_to", F.lit(0))
    counts = ["received", "rows", "declared", "repeated_segments", "forks", "chain_breaks"]
    counted = (
        rows.withColumn("expected", expected)
        .fillna(0, subset=counts)
        .withColumn("missing", missing)
        .withColumn("unexplained", missing - F.col("declared"))
        .withColumn("duplicates", F.col("rows") - F.col("received"))
    )
    every = conform(_with_state(counted, numbers), TABLE.schema)
    return conform(_with_older_ones_added_up(every), TABLE.schema).orderBy(*LANE)


def _with_older_ones_added_up(rows: DataFrame) -> DataFrame:
    """Keep the latest `frames.GATEWAY_ROWS` rows of each gateway, and add up the others by lane."""
    latest = Window.partitionBy("gateway").orderBy(F.desc("epoch"), "lane")
    kept = F.row_number().over(latest) <= frames.GATEWAY_ROWS
    named = rows.withColumn("epoch", F.when(kept, F.col("epoch")).otherwise(OLDER))
    states = ("torn", "open")
    state = F.coalesce(*(F.max(F.when(F.col("state") == each, each)) for each in states))
    return named.groupBy(*LANE).agg(
        F.coalesce(state, F.lit("closed")).alias("state"),
        *(F.coalesce(F.try_sum(name), F.max(name)).alias(name) for name in _SUMMED),
        F.min("first_seq").alias("first_seq"),
        F.max("last_seq").alias("last_seq"),
        F.max("since").alias("since"),
    )


_SUMMED: Final = (
    *("expected", "received", "missing", "declared", "unexplained", "duplicates"),
    *("forks", "chain_breaks", "repeated_segments"),
)
"""Columns that are added up; if no integer can hold the sum, the column has the greatest number."""


def _received(arrived: DataFrame) -> DataFrame:
    return arrived.groupBy(*LANE).agg(
        F.min("first_seq").alias("first_seq"),
        F.max("last_seq").alias("last_seq"),
        F.sum(F.col("last_seq") - F.col("first_seq") + 1).alias("received"),
    )


def _counted(numbers: DataFrame) -> DataFrame:
    return numbers.groupBy(*LANE).agg(
        F.sum("rows").alias("rows"), F.max_by("last_time", "last_seq").alias("last_time")
    )


def _refused(segments: DataFrame) -> DataFrame:
    named = segments.where(F.col("gateway").isNotNull())
    return named.groupBy(*LANE).agg(
        F.count_if(F.col("fate") == "duplicate").alias("repeated_segments"),
        F.countDistinct(F.when(F.col("fate") == "fork", F.col("digest"))).alias("forks"),
    )


def _chain_breaks(segments: DataFrame) -> DataFrame:
    """Count segments that follow another without a gap and do not carry its digest."""
    order = Window.partitionBy(*LANE).orderBy("first_seq")
    accepted = segments.where(F.col("fate") == "accepted").withColumns(
        {"end_before": F.lag("last_seq").over(order), "digest_before": F.lag("digest").over(order)}
    )
    adjacent = F.col("first_seq") == F.coalesce("end_before", F.lit(0)) + 1
    broken = F.col("previous") != F.coalesce("digest_before", F.lit(FIRST_PREVIOUS))
    return accepted.groupBy(*LANE).agg(F.count_if(adjacent & broken).alias("chain_breaks"))


def dropped_ranges(dropped: DataFrame, segments: DataFrame) -> DataFrame:
    """Merge the dropped ranges of sequence numbers from segment headers and from `dropped`."""
    accepted = segments.where(F.col("fate") == "accepted")
    headers = accepted.select(*LANE, F.inline("dropped"))
    return lanes.merge_ranges(union(headers, dropped))


def _declared(arrived: DataFrame, dropped: DataFrame) -> DataFrame:
    """Count the numbers that were reported as dropped and did not arrive: some arrive after all.

    The ranges of `arrived` do not overlap, nor do those of `dropped`. One pass over their ends
    therefore finds the numbers that are in `dropped` alone.
    """
    steps = union(_ends(arrived, "arrived"), _ends(dropped, "gone"))
    steps = steps.fillna(0, subset=["arrived", "gone"])
    order = Window.partitionBy(*LANE).orderBy("at")
    sums = steps.groupBy(*LANE, "at").agg(
        F.sum("arrived").alias("arrived"), F.sum("gone").alias("gone")
    )
    inside = (F.sum("gone").over(order) > 0) & (F.sum("arrived").over(order) == 0)
    length = F.lead("at").over(order) - F.col("at")
    lengths = sums.withColumn("lost", F.when(inside, length).otherwise(0))
    return lengths.groupBy(*LANE).agg(
        F.sum("lost").alias("declared"),
        (F.max(F.when(F.col("gone") < 0, F.col("at"))) - 1).alias("dropped_to"),
    )


def _ends(ranges: DataFrame, name: str) -> DataFrame:
    """Return two rows for each range, in column `name`: +1 at its beginning, -1 after its end."""
    ends = F.array(
        F.struct(F.col("first_seq").alias("at"), F.lit(1).alias(name)),
        F.struct((F.col("last_seq") + 1).alias("at"), F.lit(-1).alias(name)),
    )
    return ranges.select(*LANE, F.inline(ends))


def _with_state(rows: DataFrame, numbers: DataFrame) -> DataFrame:
    """Add the state of each epoch, by the last event of its system lane."""
    ends = (
        numbers.where(F.col("lane") == "system")
        .groupBy("gateway", "epoch")
        .agg(
            F.max_by(F.struct("last_kind", "last_name"), "last_seq").alias("end"),
            F.max_by("last_time", "last_seq").alias("end_time"),
        )
    )
    latest = F.max("epoch").over(Window.partitionBy("gateway"))
    closed = (F.col("end.last_kind") == "system") & (F.col("end.last_name") == "stop")
    with_end = rows.join(ends, on=["gateway", "epoch"], how="left").withColumn("latest", latest)
    state = (
        F.when(closed, "closed").when(F.col("epoch") < F.col("latest"), "torn").otherwise("open")
    )
    since = F.when(closed, F.col("end_time")).otherwise(F.col("last_time"))
    return with_end.withColumn("state", state).withColumn("since", since)


_TORN: Final = ProblemKind(
    "torn", 110, "notice", "the numbering of events began anew without a clean stop"
)

_FINDINGS: Final = {
    "unexplained": (
        ProblemKind("unexplained", 10, "wrong", "events are missing without explanation"),
        "Events that are missing without explanation: {}.",
        "At the gateway, `fieldpost uplink status` shows what it still has to send. Let it send "
        "that, and run `fieldpost-fleet ingest` again. If the number stays, copy the gateway's "
        "folder before anything is changed there: it is the evidence of what happened.",
    ),
    "duplicates": (
        ProblemKind("duplicate", 30, "wrong", "events are stored more than once"),
        "Events that are stored more than once: {}.",
        "This is a fault of the ingest. Keep the tables as they are, and report it.",
    ),
    "forks": (
        ProblemKind("fork", 20, "wrong", "segments contradict earlier ones"),
        "Segments that contradict earlier ones: {}.",
        "Two gateways send under one name, or an older copy of a gateway's database was restored. "
        "Find the copy, and enrol it under another name with `fieldpost-fleet gateway add`. "
        "`fieldpost-fleet quarantine list` names the files concerned.",
    ),
    "chain_breaks": (
        ProblemKind("chain_break", 40, "wrong", "segments do not continue the one before them"),
        "Segments that do not continue the segment before them: {}.",
        "The gateway's database was modified or replaced by something other than Fieldpost. Do not "
        "rely on its data from then on, and search its journal for who changed it.",
    ),
    "declared": (
        ProblemKind("declared", 170, "notice", "events were dropped because the backlog was full"),
        "Events that the gateway reports as dropped: {}.",
        "The gateway's backlog was full. Give it a better link, a higher limit under `[limits]`, "
        "or fewer events; `fieldpost uplink status` shows which lane fills the backlog.",
    ),
}
"""The kind of problem if a column of a lane is not zero; its text, with `{}` for the count; and
its remedy."""

_RENUMBERED: Final = (
    "The gateway has begun a new epoch since then, and its new events are accepted; nothing has to "
    "be done at the gateway for that. "
)


def problems(findings: Findings) -> Iterator[Problem]:
    """Find counts that should be zero and are not, and epochs that ended without a clean stop."""
    rows = findings["completeness"]
    torn = set()
    newest: dict[str, str] = {}
    for row in rows:
        newest[row["gateway"]] = max(row["epoch"], newest.get(row["gateway"], ""))
    for row in rows:
        place = f"{row['lane']} lane, epoch {row['epoch']}"
        for name, (kind, what, remedy) in _FINDINGS.items():
            if row[name]:
                renumbered = name == "forks" and row["epoch"] < newest[row["gateway"]]
                advice = f"{_RENUMBERED}{remedy}" if renumbered else remedy
                yield kind.of(row["gateway"], what.format(count(row[name])), advice, place)
        epoch = (row["gateway"], row["epoch"])
        if row["state"] == "torn" and epoch not in torn:
            torn.add(epoch)
            yield _TORN.of(
                row["gateway"],
                f"Its last event is of {findings.moment(row['since'])} and is not a clean stop, "
                "and the gateway has begun a new epoch since then.",
                "Events that the gateway recorded afterwards and did not send are not known here. "
                "If its old card or database still exists, `fieldpost uplink export` saves what is "
                "left on it.",
                f"epoch {row['epoch']}",
            )


DAILY: Final = Summary("dropped", 2, DROPPED, dropped)

REPORT: Final = Report(
    "completeness",
    (lanes.DAILY, DAILY),
    lambda context: completeness(
        context.all_days(lanes.DAILY), context.all_days(DAILY), context.segments()
    ),
    TABLE,
    problem_kinds=(_TORN, *(kind for kind, _, _ in _FINDINGS.values())),
    problems=problems,
)
