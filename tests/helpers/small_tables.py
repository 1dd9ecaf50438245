"""Small DataFrames for tests: rows name only the columns that matter."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

START = datetime(2025, 11, 21, 12, tzinfo=UTC)


def at(seconds: float) -> datetime:
    """Return the time a number of seconds after `START`."""
    return START + timedelta(seconds=seconds)


def table(spark: SparkSession, schema: StructType, rows: Sequence[dict[str, Any]]) -> DataFrame:
    """Create a DataFrame of `schema`; columns that a row does not name are null."""
    names = schema.fieldNames()
    unknown = {name for row in rows for name in row} - set(names)
    assert not unknown, unknown
    return spark.createDataFrame([tuple(row.get(name) for name in names) for row in rows], schema)


def event(gateway: str = "gw", **columns: Any) -> dict[str, Any]:
    """Return a row for `events`: a log event at `START` unless `columns` say otherwise."""
    return {"gateway": gateway, "lane": "logs", "kind": "log", "time": at(0), **columns}


def events(spark: SparkSession, rows: Sequence[dict[str, Any]]) -> DataFrame:
    """Create a DataFrame of events with their day, as summaries get them."""
    from pyspark.sql import functions as F

    from sync.tables.tables import EVENTS

    return table(spark, EVENTS, rows).withColumn("day", F.to_date("time"))


def report_rows(report: DataFrame, *names: str) -> list[tuple[Any, ...]]:
    """Collect columns in the report's order; times as seconds after `START`."""
    rows = report.select(*names).toArrow().to_pylist()
    return [tuple(_plain(row[name]) for name in names) for row in rows]


def checked_rows(report: DataFrame, schema: StructType) -> list[tuple[Any, ...]]:
    """Collect all columns as `report_rows` does; they must be those of `schema`."""
    assert report.schema.simpleString() == schema.simpleString()
    return report_rows(report, *schema.fieldNames())


def named_rows(report: DataFrame, schema: StructType) -> list[dict[str, Any]]:
    """Collect all columns by name; they must be those of `schema`."""
    names = schema.fieldNames()
    return [dict(zip(names, row, strict=True)) for row in checked_rows(report, schema)]


def _plain(value: Any) -> Any:
    return (value - START).total_seconds() if isinstance(value, datetime) else value
