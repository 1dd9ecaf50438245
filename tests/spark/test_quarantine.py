"""Re-admitting files from the quarantine to the tables, and the report `quarantine`."""

from __future__ import annotations

import json
from hashlib import sha256

import pytest
from click.testing import CliRunner, Result
from pyspark.sql import SparkSession

from sync.cli.main import cli
from sync.common.fleet_folder import FleetFolder, segment_path
from sync.ingest.ingest import run_ingest
from sync.reports import quarantine as quarantine_report
from sync.tables.delta import Counts, local_tables
from sync.tables.tables import SEGMENTS, read_events, read_segments, refused
from tests.helpers.fleet_tables import NOON, Lane, as_version, land, put, some_events, waiting
from tests.helpers.small_tables import at, table, told

pytestmark = pytest.mark.spark


def quarantine(fleet: FleetFolder, *arguments: str) -> Result:
    return CliRunner().invoke(cli, ["quarantine", *arguments, "--dir", str(fleet.root)])


def listed(fleet: FleetFolder) -> dict[str, str]:
    lines = quarantine(fleet, "list", "--json").stdout.splitlines()
    return {held["path"]: held["reason"] for held in map(json.loads, lines)}


def test_a_newer_minor_version_is_read_and_a_newer_major_one_is_quarantined(
    spark: SparkSession, fleet: FleetFolder
) -> None:
    lane = Lane()
    identity, data = lane.seal(some_events(3))
    newer = as_version(data, (1, 1), {"battery": 80}, {"mood": {"text": "calm"}})
    land(fleet, (identity, newer), at=NOON / 1000)
    lane.previous = newer[-32:]
    second, data = lane.seal(some_events(2))
    alien = as_version(data, (2, 0), {"first": "4", "shape": [1, 2]}, {})
    land(fleet, (second, alien), at=NOON / 1000 + 1)
    clone = Lane().seal(some_events(9))
    land(fleet, clone, at=NOON / 1000 + 2)

    assert run_ingest(spark, fleet).counts == Counts(segments=1, events=3, quarantined=2)

    reasons = listed(fleet)
    assert sorted(reasons.values()) == ["fork", "version"]
    [alien_name] = [name for name, reason in reasons.items() if reason == "version"]
    shown = quarantine(fleet, "show", alien_name).stdout
    assert "version     2.0" in shown
    assert "version: the segment has version 2.0; supported is 1" in shown
    assert "  shape     [1, 2]" in shown
    assert alien[:64].hex(" ") in shown

    # a fork stays; the other goes back, is refused again, and is still told of once
    done = quarantine(fleet, "readmit", *reasons)
    assert (done.exit_code, waiting(fleet)) == (
        1,
        {f"landing/readmitted/{sha256(alien).hexdigest()}.seg"},
    )
    assert "contradicts an accepted segment: overlaps 1-3 (" in done.stderr
    assert run_ingest(spark, fleet).counts == Counts(quarantined=1)
    assert sorted(listed(fleet).values()) == ["fork", "version"]

    # after an upgrade that can read it: here the bytes of this version, which the tables know not
    upgraded = put(fleet.quarantine / "some" / "where.seg", data)
    assert quarantine(fleet, "readmit", str(upgraded)).exit_code == 0
    assert waiting(fleet) == {f"landing/{segment_path(second)}"}
    summary = run_ingest(spark, fleet)
    assert (summary.reread, summary.counts) == (1, Counts(segments=1, events=2))
    assert read_events(spark, local_tables(fleet.tables).snapshot()).count() == 5
    rows = refused(read_segments(spark, local_tables(fleet.tables).snapshot())).collect()
    assert sorted(row["reason"] for row in rows) == ["fork", "version", "version"]
    assert (fleet.archive / segment_path(second)).read_bytes() == data


def test_files_accepted_later_are_no_longer_refused(spark: SparkSession) -> None:
    rows = [
        {"path": path, "sha256": digest, "fate": fate}
        for path, digest, fate in (
            ("a", "1", "bad"),
            ("a", "1", "accepted"),
            ("b", "2", "bad"),
            ("c", "2", "duplicate"),
            ("d", "3", "bad"),
            ("d", "3", "bad"),
            ("e", "4", "fork"),
            ("f", "5", "accepted"),
        )
    ]
    found = refused(table(spark, SEGMENTS, rows)).select("path", "fate").collect()
    assert sorted(map(tuple, found)) == [("d", "bad"), ("e", "fork")]


def test_refused_files_are_listed_once_latest_first(spark: SparkSession) -> None:
    bad = {"path": "landing/b", "sha256": "1", "fate": "bad", "reason": "magic", "size": 3}
    rows = [
        bad | {"arrived": at(1)},
        bad | {"arrived": at(1)},
        bad | {"path": "aside/c", "fate": "fork", "reason": "fork", "arrived": at(2)},
        {"path": "landing/a", "sha256": "2", "fate": "accepted", "arrived": at(3)},
    ]
    segments = table(spark, SEGMENTS, rows)
    report = quarantine_report.quarantine(segments)
    assert report.schema.simpleString() == quarantine_report.SCHEMA.simpleString()
    assert told(report, "path", "arrived", "size", "reason") == [
        ("aside/c", 2, 3, "fork"),
        ("landing/b", 1, 3, "magic"),
    ]
    assert told(quarantine_report.files_by_fate(segments), "fate", "files") == [
        ("accepted", 1),
        ("bad", 1),
        ("fork", 1),
    ]
