"""The declaration of a summary."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType


@dataclass(frozen=True, slots=True)
class Summary:
    """Rows of `schema` for each day, computed from that day's events alone.

    `compute` takes events of some days (`EVENTS` and `DAY` of `sync.tables.tables`) and returns the
    columns of `schema` and `day`. A row must not depend on events of another day, so `day` must be
    in each `groupBy` and window. `name` is unique among all summaries and is the name of a folder.
    Raise `version` when the computation changes: stored rows are then computed again, as they are
    for another schema.

    Rows must be mergeable, because a day may have several rows of the same key: after retention has
    removed some of the day's events, its rows are those of the removed part and those of the events
    that are left or arrived later. So rows have sums, counts, first and last values, runs and
    histograms, but no means and no percentiles; and a report groups by its key and adds up, also
    within a day.
    """

    name: str
    version: int
    schema: StructType
    compute: Callable[[DataFrame], DataFrame]

    @property
    def shape(self) -> str:
        """A hash of name, version and schema: stored rows with the same hash can be read."""
        definition = f"{self.name} {self.version} {self.schema.json()}"
        return hashlib.sha256(definition.encode()).hexdigest()[:16]
