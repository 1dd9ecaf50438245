"""A simulated fleet from its segments to its report: what was planted is found, and nothing else.

The simulator knows the truth and nothing of the centre; the centre knows nothing of the simulator.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from pyspark.sql import functions as F

from firmware_sim.fleet.settings import FleetSettings
from firmware_sim.fleet.writing import write_fleet
from sync.central.ingest import run_ingest
from sync.central.manifest import LocalCommits
from sync.central.rendering.files import report_json
from sync.central.reports.gather import gather, summaries_of
from sync.central.reports.given import Given
from sync.central.summaries import summarise
from sync.central.tables import read_events, read_segments
from tests.helpers.fleet_tables import fleet_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pyspark.sql import SparkSession

    from sync.central.folders import FleetFolder

pytestmark = pytest.mark.spark

START = 1_772_409_600_000
"""2026-03-02 00:00:00 UTC, in milliseconds."""

AGAIN = 40
"""Segments that land once more after they were ingested, where there is time for that."""

COMPLETENESS = {
    "first": "first_seq",
    "last": "last_seq",
    "expected": "expected",
    "received": "received",
    "missing": "missing",
    "declared": "declared",
    "unexplained": "unexplained",
    "forks": "forks",
    "chain_breaks": "chain_breaks",
}
"""Words of the truth, and the report's columns."""


class Found(NamedTuple):
    """What was simulated, and what the centre makes of it."""

    truth: dict[str, Any]
    report: dict[str, Any]
    sums: dict[tuple[str, str], tuple[int, str]]


def settings_of(
    scale: Callable[[int, int], int], seed: int, faults: frozenset[str] | None = None
) -> FleetSettings:
    """Choose a small fleet that seals seldom, or the full one."""
    settings = FleetSettings(
        gateways=scale(12, 100),
        days=scale(2, 7),
        seed=scale(1, seed),
        start=START,
        readings=scale(400, 5_000),
        heartbeat=float(scale(600, 60)),
        seal=float(scale(3_600, 1_800)),
    )
    return settings if faults is None else replace(settings, faults=faults)


def land(made: Path, fleet: FleetFolder) -> None:
    """Put all segments into the landing, with their times of arrival."""
    fleet.landing.rmdir()
    (made / "segments").rename(fleet.landing)


def land_again(fleet: FleetFolder, count: int) -> int:
    """Put so many of the segments that are in the tables into the landing once more."""
    found = sorted(fleet.archive.rglob("*[0-9].seg"))[:count]
    for path in found:
        target = fleet.landing / path.relative_to(fleet.archive)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, target)
    return len(found)


def examine(spark: SparkSession, fleet: FleetFolder, truth: dict[str, Any]) -> Found:
    """Make the report as of the truth's moment, as programs read it."""
    commits = LocalCommits(fleet.tables)
    manifests = commits.manifests()
    kept = summarise(spark, fleet.tables, manifests, summaries_of())
    segments = read_segments(spark, fleet.tables, manifests)
    found = gather(Given(kept, segments, datetime.fromisoformat(truth["as_of"])))
    values = (
        read_events(spark, fleet.tables, manifests)
        .where("kind = 'reading'")
        .groupBy("source", "name")
        .agg(F.count(F.lit(1)), F.sum(F.col("value").cast("decimal(20, 6)")).cast("string"))
    )
    sums = {(row[0], row[1]): (row[2], row[3]) for row in values.collect()}
    return Found(truth, json.loads(report_json(found)), sums)


def check_sums(found: Found, landed_again: int) -> None:
    """Hold every figure that the truth has against the report's."""
    truth, report = found.truth["totals"], found.report["totals"]
    for name in ("gateways", "segments", "events", "lanes", "expected", "received", "missing"):
        assert report[name] == truth[name], name
    for name in ("declared", "unexplained", "forks", "chain_breaks"):
        assert report[name] == truth[name], name
    assert report["duplicates"] == 0
    assert report["repeated_segments"] == truth["repeated"] + landed_again
    assert report["bad_segments"] == truth["bad"]
    lanes = {
        (gateway["gateway"], row["epoch"], row["lane"]): {
            column: row[word] for word, column in COMPLETENESS.items()
        }
        for gateway in found.truth["gateways"]
        for row in gateway["lanes"]
    }
    assert lanes == {
        (row["gateway"], row["epoch"], row["lane"]): {
            column: row[column] for column in COMPLETENESS.values()
        }
        for row in found.report["tables"]["completeness"]
    }
    delivery = [
        {"gateway": gateway["gateway"], **row}
        for gateway in found.truth["gateways"]
        for row in gateway["delivery"]
    ]
    assert delivery == [
        {name: row[name] for name in delivery[0]} for row in found.report["tables"]["delivery"]
    ]
    assert found.sums == {
        (row["source"], row["name"]): (row["readings"], row["sum"])
        for gateway in found.truth["gateways"]
        for row in gateway["sensors"]
    }


def kinds(entries: Iterable[dict[str, Any]]) -> set[tuple[str, str]]:
    return {(each["kind"], each["gateway"]) for each in entries if each["kind"]}


def test_all_that_is_planted_is_found_and_nothing_else(
    spark: SparkSession, tmp_path: Path, scale: Callable[[int, int], int], seed: int
) -> None:
    made, fleet = tmp_path / "made", fleet_folder(tmp_path / "fleet")
    truth = write_fleet(settings_of(scale, seed), made)
    land(made, fleet)
    commits = LocalCommits(fleet.tables)
    totals = truth["totals"]

    ingested = run_ingest(spark, fleet, commits)
    counts = ingested.counts
    assert (counts.segments, counts.events) == (totals["segments"], totals["events"])
    assert counts.duplicates == totals["repeated"]
    assert counts.quarantined == totals["forks"] + totals["bad"]
    assert list(fleet.landing.rglob("*.seg")) == []

    again = land_again(fleet, scale(0, AGAIN))
    if again:
        counts = run_ingest(spark, fleet, commits).counts
        assert (counts.segments, counts.duplicates, counts.quarantined) == (0, again, 0)

    found = examine(spark, fleet, truth)
    check_sums(found, again)
    assert kinds(found.report["problems"]) == kinds(truth["planted"])


@pytest.mark.long
def test_a_fleet_without_faults_has_no_problem(
    spark: SparkSession, tmp_path: Path, scale: Callable[[int, int], int], seed: int
) -> None:
    made, fleet = tmp_path / "made", fleet_folder(tmp_path / "fleet")
    truth = write_fleet(settings_of(scale, seed, frozenset()), made)
    land(made, fleet)
    run_ingest(spark, fleet, LocalCommits(fleet.tables))
    found = examine(spark, fleet, truth)
    check_sums(found, 0)
    assert found.report["problems"] == []
