"""How reports declare their columns, and how they read the numbers that gateways tell in words."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import (
    BooleanType,
    DataType,
    DoubleType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

TEXT: Final = StringType()
NUMBER: Final = LongType()
REAL: Final = DoubleType()
FLAG: Final = BooleanType()
TIME: Final = TimestampType()


def columns(**types: DataType) -> StructType:
    """Make a schema of the named columns, in their order."""
    return StructType([StructField(name, kind) for name, kind in types.items()])


MAX_TOLD: Final = 1_000_000_000_000
"""The highest number that is believed. A gateway may tell any; sums of these overflow nothing."""


def number(told: Column) -> Column:
    """Read a count that a gateway tells as a text or a float; null where it is none."""
    value = told.try_cast("double")
    return F.when(value.between(0, MAX_TOLD), value.cast("long"))


def tag(name: str) -> Column:
    """Read the tag of that name as a count; null where there is none."""
    return number(F.element_at("tags", F.lit(name)))
