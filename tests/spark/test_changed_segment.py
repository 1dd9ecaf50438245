"""A batch is of the bytes that were judged: a file changed under it ends it, and is judged anew."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from sync.common.errors import FleetError
from sync.common.fleet_folder import FleetFolder
from sync.ingest.ingest import run_ingest
from sync.tables.manifest import Counts, LocalCommits
from sync.tables.tables import read_events
from tests.helpers.fleet_tables import NOON, Lane, land, put, some_events

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("count", [4, 5])
def test_a_segment_that_is_changed_after_it_was_judged_ends_the_batch(
    spark: SparkSession, fleet: FleetFolder, count: int
) -> None:
    """The copy has the batch read once more, and what stands there then is another segment."""
    sealed = Lane().seal(some_events(4))
    path = land(fleet, sealed, at=NOON / 1000)
    put(fleet.landing / "copy" / "x.seg", sealed[1], at=NOON / 1000 + 1)

    def change(step: str) -> None:
        if step == "judged":
            put(path, Lane().seal(some_events(count, start=NOON + 7))[1], at=NOON / 1000)

    with pytest.raises(FleetError, match="was changed after it was judged"):
        run_ingest(spark, fleet, LocalCommits(fleet.tables), change)
    assert list(LocalCommits(fleet.tables).manifests()) == []

    assert run_ingest(spark, fleet, LocalCommits(fleet.tables)).counts == Counts(
        segments=1, events=count, quarantined=1
    )
    rows = read_events(spark, fleet.tables, LocalCommits(fleet.tables).manifests())
    assert sorted(row["seq"] for row in rows.collect()) == list(range(1, count + 1))
