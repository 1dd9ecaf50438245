"""What a report is, and what it is given. Computes nothing."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sync.tables.partitions import gathered
from sync.tables.summaries import Kept, Summary

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class Given(NamedTuple):
    """What reports are made of: summaries, the ledger of segments, and which part is asked for.

    `since` is the first day (UTC) to tell of, None for all of them; `gateways` are those to tell
    of, None for all; `cap` is what the operator says that a gateway's folder may take, in bytes.
    Reports get at events through `daily` and `whole` alone.
    """

    kept: Kept
    ledger: DataFrame
    as_of: datetime
    since: date | None = None
    gateways: tuple[str, ...] | None = None
    cap: int | None = None

    def daily(self, summary: Summary) -> DataFrame:
        """Give the rows of the days that are asked for; they have `summary.schema` and `day`."""
        return self._of_gateways(gathered(self.kept.rows(summary, self.since)))

    def whole(self, summary: Summary) -> DataFrame:
        """Give the rows of all days: for what must be counted from its beginning."""
        return self._of_gateways(gathered(self.kept.rows(summary)))

    def segments(self) -> DataFrame:
        """Give the rows of `sync.tables.tables.SEGMENTS` of these gateways, of all time."""
        if self.gateways is None:
            return gathered(self.ledger)
        place = F.split_part("path", F.lit("/"), F.lit(2))
        of = F.coalesce("gateway", place)  # a bad segment names no gateway, but its path does
        return gathered(self.ledger).where(of.isin(*self.gateways))

    def _of_gateways(self, rows: DataFrame) -> DataFrame:
        if self.gateways is None:
            return rows
        return rows.where(F.col("gateway").isin(*self.gateways))


class Report(NamedTuple):
    """A report: its name (of its table, its CSV, its key in report.json, its field of `Findings`).

    `make` gives rows of `schema`, in the order in which they are shown, few enough to be brought
    home. `summaries` are all those that it asks `Given` for; each has a column `gateway`.
    """

    name: str
    schema: StructType
    summaries: tuple[Summary, ...]
    make: Callable[[Given], DataFrame]
