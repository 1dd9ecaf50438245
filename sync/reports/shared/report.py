"""The declaration of a report: its input, its computation, and the layout of its table."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import date, datetime
from typing import Literal, NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from sync.reports.shared.column import Column
from sync.reports.shared.findings import Findings, Row
from sync.reports.shared.frames import seconds
from sync.tables.partitions import coalesced
from sync.tables.summaries import StoredSummaries, Summary


class ReportContext(NamedTuple):
    """The data that reports are computed from, and the selection that was asked for.

    `segments_table` has a row for each segment file that was read (`sync.tables.tables.SEGMENTS`).
    `since` is the first day (UTC) to report, `gateways` the gateways to report; None means all.
    `cap` is the size in bytes that the operator allows a gateway's folder.
    Reports see events only through `daily` and `all_days`.
    """

    summaries: StoredSummaries
    segments_table: DataFrame
    as_of: datetime
    since: date | None = None
    gateways: tuple[str, ...] | None = None
    cap: int | None = None

    def daily(self, summary: Summary) -> DataFrame:
        """Return the rows of a summary for the requested days and gateways, with `day`."""
        return self._of_gateways(coalesced(self.summaries.rows(summary, self.since)))

    def all_days(self, summary: Summary) -> DataFrame:
        """Return the rows of a summary for all days, for figures that cover all time."""
        return self._of_gateways(coalesced(self.summaries.rows(summary)))

    def segments(self) -> DataFrame:
        """Return the rows of `segments_table` for the selected gateways and all days."""
        if self.gateways is None:
            return coalesced(self.segments_table)
        folder = F.split_part("path", F.lit("/"), F.lit(2))
        gateway = F.coalesce("gateway", folder)  # only the path of an invalid segment names one
        return coalesced(self.segments_table).where(gateway.isin(*self.gateways))

    def restricted_to_past(self) -> ReportContext:
        """Return a context without days after `as_of` and without segments that arrived later.

        Events that arrived later but happened on an earlier day stay, because the summaries of a
        day do not record when its events arrived.
        """
        arrived = seconds("arrived") <= F.lit(self.as_of.timestamp())
        return self._replace(
            summaries=self.summaries.until(self.as_of.date()),
            segments_table=self.segments_table.where(arrived),
        )

    def _of_gateways(self, rows: DataFrame) -> DataFrame:
        if self.gateways is None:
            return rows
        return rows.where(F.col("gateway").isin(*self.gateways))


class Table(NamedTuple):
    """The layout of a report's table.

    `order` is its position among the tables, the lowest first; equal ones are ordered by the
    report's name. The reports here use multiples of 10. `about` says in a few sentences how
    to read it. `empty` replaces the table if it has no rows.
    """

    order: int
    title: str
    about: str
    columns: tuple[Column, ...]
    empty: str = "There is nothing to show: no gateway has sent events for this table."

    @property
    def schema(self) -> StructType:
        """The columns of the rows, in the order of the table."""
        return StructType([StructField(each.name, each.type) for each in self.columns])


class Series(NamedTuple):
    """Rows that a plot is drawn from, and that are in no table and no file.

    `summaries` names every summary that `compute` reads from its context. `of_fleet` reduces the
    rows of all gateways to what the fleet's page needs; None if it needs nothing of them. Its
    result must not grow with the fleet.
    """

    name: str
    summaries: tuple[Summary, ...]
    compute: Callable[[ReportContext], DataFrame]
    of_fleet: Callable[[DataFrame], DataFrame] | None = lambda rows: rows


Weight = Literal["wrong", "notice"]
"""`wrong`: something must be repaired; `notice`: somebody should know."""


class Problem(NamedTuple):
    """A problem that a report has found.

    `kind` is the name of a `ProblemKind`. `gateway` is "" if the problem concerns no single
    gateway. `where` names the place in full, `what` describes the problem, `remedy` says what to
    do.
    """

    weight: Weight
    kind: str
    gateway: str
    where: str
    what: str
    remedy: str


class ProblemKind(NamedTuple):
    """A kind of problem: its name in report.json, its rank (lower is more severe), its weight.

    The headline describes the problem in a few words.
    """

    name: str
    rank: int
    weight: Weight
    headline: str

    def of(self, gateway: str, what: str, remedy: str, place: str = "") -> Problem:
        """Return a problem of this kind; `place` names what has it, "" for the gateway itself."""
        where = ", ".join(filter(None, (gateway, place)))
        return Problem(self.weight, self.name, gateway, where, what, remedy)


def gateway_of(row: Row) -> list[str]:
    """Return the gateway that a row names in its column `gateway`, if any."""
    gateway = row.get("gateway")
    return [gateway] if gateway else []


@dataclass(frozen=True)
class Report:
    """A report: a table of the fleet's page and of the page of each gateway that has rows in it.

    `name` is the name of its CSV file and its key in report.json. `compute` returns the rows of
    `table`, in the order in which they are shown, few enough to be collected; `summaries` names
    every summary that it reads from its context. `problems` judges the computed rows, and returns
    problems of `problem_kinds`. `gateways_of` names the gateways whose pages show a row.
    """

    name: str
    summaries: tuple[Summary, ...]
    compute: Callable[[ReportContext], DataFrame]
    table: Table
    series: tuple[Series, ...] = ()
    problem_kinds: tuple[ProblemKind, ...] = ()
    problems: Callable[[Findings], Iterable[Problem]] = lambda _: ()
    gateways_of: Callable[[Row], list[str]] = gateway_of

    @property
    def parts(self) -> tuple[Report | Series, ...]:
        """The report itself and its series: everything that is computed."""
        return (self, *self.series)
