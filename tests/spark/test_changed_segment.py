"""A segment that changes during its batch: the batch fails, and the segment is judged anew."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from sync.common.errors import FleetError
from sync.common.fleet_folder import FleetFolder
from sync.ingest.ingest import run_ingest
from sync.tables.delta import Counts, local_tables
from sync.tables.tables import read_events
from tests.helpers.fleet_tables import NOON, Lane, land, put, some_events

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("count", [4, 5])
def test_a_batch_fails_if_a_segment_changes_after_it_was_judged(
    spark: SparkSession, fleet: FleetFolder, count: int
) -> None:
    """Because of the copy, the batch is decoded twice, the second time with another segment."""
    sealed = Lane().seal(some_events(4))
    path = land(fleet, sealed, at=NOON / 1000)
    put(fleet.landing / "copy" / "x.seg", sealed[1], at=NOON / 1000 + 1)

    def change(step: str) -> None:
        if step == "judged":
            put(path, Lane().seal(some_events(count, start=NOON + 7))[1], at=NOON / 1000)

    with pytest.raises(FleetError, match="changed while it was ingested"):
        run_ingest(spark, fleet, change)
    assert local_tables(fleet.tables).snapshot().batch == 0

    assert run_ingest(spark, fleet).counts == Counts(segments=1, events=count, quarantined=1)
    rows = read_events(spark, local_tables(fleet.tables).snapshot())
    assert sorted(row["seq"] for row in rows.collect()) == list(range(1, count + 1))
