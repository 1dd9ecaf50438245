"""Daily summaries: small tables by day that reports are computed from.

A summary is mergeable: for a report on several days, the rows of these days are enough.
"""

from sync.tables.summaries.stored import DayCount, StoredSummaries, events_to_summarise, summarise
from sync.tables.summaries.summary import Summary

__all__ = ["DayCount", "StoredSummaries", "Summary", "events_to_summarise", "summarise"]
