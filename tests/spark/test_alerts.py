"""The alerts read tables that Spark wrote."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sync.alerts.sources import BatchReader
from sync.alerts.state import FleetState
from sync.common.fleet_folder import FleetFolder
from sync.ingest.ingest import run_ingest
from sync.segment import Event
from sync.tables.delta import local_tables
from tests.helpers.fleet_tables import NOON, Lane, fleet_folder, land, put
from tests.helpers.small_ingest import SmallIngest

pytestmark = pytest.mark.spark

HOUR = 3_600_000


def arrive(folder: FleetFolder, lanes: list[Lane], number: int) -> None:
    """Land a segment of each lane with everything that the alerts use."""
    at = NOON + number * HOUR
    tags = {"delivered": "0", "delayed": "0", "members": "2"}
    told = [
        Event(1, at, True, "system", name="heartbeat", value=60.0),
        Event(1, at + 1, True, "queue", topic="jobs", name="depth", value=4.0, tags=tags),
        Event(1, at + 2, True, "limit", "pump@gw.example", name="rate", value=30.0),
    ]
    node = {"node": "a"}
    read = [Event(1, at, True, "reading", "p@gw.example/fw", "t", "x", 20.5, tags=node)]
    for lane, events in zip(lanes, (told, read), strict=True):
        land(folder, lane.seal(events), at / 1000 + 5)


def test_tables_are_read_without_spark(
    spark: SparkSession, fleet: FleetFolder, tmp_path: Path
) -> None:
    other = fleet_folder(tmp_path / "other")
    lanes = {folder.root: [Lane(lane="system"), Lane(lane="readings")] for folder in (fleet, other)}
    for folder in (fleet, other):
        arrive(folder, lanes[folder.root], 0)
        arrive(folder, lanes[folder.root], 11)
        put(folder.landing / "gw.example" / "bad.seg", b"no segment", NOON / 1000)
    run_ingest(spark, fleet)
    ingest = SmallIngest(other)
    ingest.run()
    following = BatchReader(local_tables(fleet.tables))
    expected = BatchReader(local_tables(other.tables))
    now = NOON + 24 * HOUR
    followed, changed = following.update(FleetState(), now)
    assert changed
    assert followed.gateways == expected.update(None, now)[0].gateways
    assert following.update(None, now) == (followed, True)
    [gateway] = followed.gateways.values()
    assert (len(gateway.system_segments), len(gateway.reading_segments)) == (2, 2)
    assert list(gateway.sensors) == ["p@gw.example t a x"]
    assert gateway.refusals["rate"].hours == {NOON // HOUR: 30, NOON // HOUR + 11: 30}
    assert [row.stalled for row in gateway.queues["jobs"]] == [True, True]
    assert following.update(followed, now) == (followed, False)
