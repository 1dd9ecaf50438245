"""The events that are readings of sensors, and the columns that identify a sensor."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sync.reports.shared.events import text_tag

SENSOR: Final = ("gateway", "source", "sensor")
"""The columns that identify a sensor: its gateway; its device (a bare JID, "" if unknown); and its
topic, node and name as far as it has them, separated by spaces."""

ROWS: Final = 5_000
"""Maximum number of sensors in a report, those with problems first: a device can invent names."""


def readings(events: DataFrame) -> DataFrame:
    """Select the events that are readings, with the columns of `SENSOR`."""
    source = F.coalesce(F.substring_index("source", "/", 1), F.lit(""))
    sensor = F.concat_ws(" ", "topic", text_tag("node"), "name")
    rows = events.where((F.col("lane") == "readings") & (F.col("kind") == "reading"))
    return rows.withColumns({"source": source, "sensor": sensor})
