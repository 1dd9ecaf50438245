"""Daily summaries: small tables by day that reports are computed from.

A summary is mergeable: the rows of two days together have all that a report needs of both.
"""

from sync.tables.summaries.stored import (
    DayCount,
    StoredSummaries,
    events_to_summarise,
    summarise,
)
from sync.tables.summaries.summary import Summary

__all__ = ["DayCount", "StoredSummaries", "Summary", "events_to_summarise", "summarise"]
