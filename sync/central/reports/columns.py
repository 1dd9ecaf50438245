"""How the reports declare their columns: a name and one of five types each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql.types import (
    BooleanType,
    DoubleType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

TEXT: Final = StringType()
NUMBER: Final = LongType()
REAL: Final = DoubleType()
FLAG: Final = BooleanType()
TIME: Final = TimestampType()


def columns(**types: DataType) -> StructType:
    """Make a schema of the named columns, in their order."""
    return StructType([StructField(name, kind) for name, kind in types.items()])
