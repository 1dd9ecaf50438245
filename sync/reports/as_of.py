"""The tables as they stood at a moment that is over, as far as they tell that.

Whole days are left out of events, and single segments: what came later of an earlier day is told,
since the summaries of a day do not say when its events arrived. Computes nothing.
"""

from __future__ import annotations

from datetime import datetime

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sync.reports.common import seconds
from sync.tables.summaries import Kept


def at(kept: Kept, ledger: DataFrame, moment: datetime) -> tuple[Kept, DataFrame]:
    """Give the summaries up to the day of `moment` (UTC), and the segments that had arrived."""
    arrived = seconds("arrived") <= F.lit(moment.timestamp())
    return kept.until(moment.date()), ledger.where(arrived)
