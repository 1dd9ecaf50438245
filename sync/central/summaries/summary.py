"""What a summary is. Reads no table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType


@dataclass(frozen=True, slots=True)
class Summary:
    """Rows of `schema` for each day, made of that day's events alone.

    `compute` takes events of some days (`sync.central.tables`: `EVENTS` and `DAY`) and gives the
    columns of `schema` and `day`; no row of it depends on another day's events. `version` is raised
    when it computes something else: what was kept of a day is computed anew then.
    """

    name: str
    version: int
    schema: StructType
    compute: Callable[[DataFrame], DataFrame]
