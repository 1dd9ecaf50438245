"""What a summary is. Reads no table."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType


@dataclass(frozen=True, slots=True)
class Summary:
    """Rows of `schema` for each day, made of that day's events alone.

    `compute` takes events of some days (`sync.tables.tables`: `EVENTS` and `DAY`) and gives the
    columns of `schema` and `day`; no row of it depends on another day's events, and so `day` is in
    each of its `groupBy` and of its windows. `name` is unique among all summaries and is a folder's
    name; that of a report's only summary is the report's. `version` is raised when it computes
    something else: what was kept of a day is computed anew then, as it is for another schema.

    Rows have to be mergeable: those of two days, or of two parts of one day, tell together all that
    a report needs of both. So it has sums, counts, first and last, runs and histograms, but no mean
    and no percentile.
    """

    name: str
    version: int
    schema: StructType
    compute: Callable[[DataFrame], DataFrame]

    @property
    def shape(self) -> str:
        """What rows of this summary look like: they can be read as long as it is the same."""
        told = f"{self.name} {self.version} {self.schema.json()}"
        return hashlib.sha256(told.encode()).hexdigest()[:16]
