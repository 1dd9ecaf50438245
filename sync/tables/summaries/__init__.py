"""What the reports are made of: small tables by day, each kept until an event of its day arrives.

A summary is mergeable: that of two days tells all that a report needs of both.
"""

from sync.tables.summaries.stored import DayCount, StoredSummaries, summarise
from sync.tables.summaries.summary import Summary

__all__ = ["DayCount", "StoredSummaries", "Summary", "summarise"]
