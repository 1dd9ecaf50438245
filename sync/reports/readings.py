"""What a sensor is, for the reports that tell of sensors. Judges nothing."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

SENSOR: Final = ("gateway", "source", "sensor")
"""What readings are told apart by: the gateway, who sent them (a bare JID, empty if nobody told),
and the topic, the node and the name, those that there are, a space between."""

ROWS: Final = 5_000
"""Sensors that a report tells of, what is wrong with first: more are not read by anybody, and a
device may make up names."""


def readings(events: DataFrame) -> DataFrame:
    """Give the events that are readings, with the columns of `SENSOR`."""
    source = F.coalesce(F.substring_index("source", "/", 1), F.lit(""))
    sensor = F.concat_ws(" ", "topic", F.element_at("tags", F.lit("node")), "name")
    told = events.where((F.col("lane") == "readings") & (F.col("kind") == "reading"))
    return told.withColumns({"source": source, "sensor": sensor})
