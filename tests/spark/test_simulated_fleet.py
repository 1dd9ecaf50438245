"""A simulated fleet from its segments to its report: what was planted is found, and nothing else.

The simulator knows the truth and nothing of the centre; the centre knows nothing of the simulator.
"""

from __future__ import annotations

import json
import pickle
import shutil
from collections import Counter
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from firmware_sim.fleet.settings import FleetSettings
from firmware_sim.fleet.simulate import write_fleet
from sync.common.errors import FleetError
from sync.common.fleet_folder import FleetFolder
from sync.pages.files import report_json
from sync.reports.shared.by_gateway import SpreadRows, by_gateway
from sync.reports.shared.collect import collect
from sync.reports.shared.findings import Findings
from sync.reports.shared.registry import SUMMARIES
from sync.reports.shared.report import ReportContext
from sync.tables.delta import local_tables
from sync.tables.spark_session import spark_errors
from sync.tables.summaries import summarise
from sync.tables.tables import read_segments
from tests.helpers.fleet_report import FleetReport
from tests.helpers.fleet_tables import fleet_folder
from tests.helpers.local_ingest import ingest_by_spark

pytestmark = pytest.mark.spark

START = 1_772_409_600_000
"""2026-03-02 00:00:00 UTC, in milliseconds."""

REPEATED_SEGMENTS = 40
"""Segments that land once more after they were ingested, if there is time for that."""


def settings_of(
    scale: Callable[[int, int], int], seed: int, faults: frozenset[str] | None = None
) -> FleetSettings:
    """Choose a small fleet that seals rarely, or the full one."""
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


def land(source: Path, fleet: FleetFolder) -> None:
    """Put all segments into the landing, with their times of arrival."""
    fleet.landing.rmdir()
    (source / "segments").rename(fleet.landing)


def land_again(fleet: FleetFolder, count: int) -> Counter[tuple[str, str, str]]:
    """Land `count` segments of the archive once more; return their number by lane."""
    lanes: Counter[tuple[str, str, str]] = Counter()
    for path in sorted(fleet.archive.rglob("*[0-9].seg"))[:count]:
        name = path.relative_to(fleet.archive)
        target = fleet.landing / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, target)
        gateway, epoch, lane, _ = name.parts
        lanes[gateway, epoch, lane] += 1
    return lanes


def check_division(folder: Path, found: Findings, spread: SpreadRows) -> None:
    """Check that Spark's tasks get the same rows of each gateway as the driver of a small fleet."""
    series = ("activity", "sensor_series", "clock_offsets")
    left = {name: spread.frames[name].toArrow().to_pylist() for name in series}
    here = by_gateway(replace(found, tables={**found.tables, **left}))
    folder.mkdir()
    spread.for_each(found, list(here), partial(save, folder))
    saved = {name: (folder / name).read_bytes() for name in here}
    assert {name: pickle.loads(each) for name, each in saved.items()} == here  # noqa: S301 - own
    assert all(own[name] for own in here.values() for name in series)
    with pytest.raises(FleetError, match=r"^Spark failed: OSError: no space$"), spark_errors(None):
        spread.for_each(found, list(here)[:1], refuse)


def refuse(gateway: str, own: Findings) -> None:
    raise OSError("no space")


def save(folder: Path, gateway: str, own: Findings) -> None:
    (folder / gateway).write_bytes(pickle.dumps(own))


def examine(spark: SparkSession, fleet: FleetFolder, truth: dict[str, Any]) -> FleetReport:
    """Return the report as of the truth's moment, as programs read it."""
    folder = fleet.root.parent / "by-gateway"
    snapshot = local_tables(fleet.tables).snapshot()
    kept = summarise(spark, snapshot, SUMMARIES)
    segments = read_segments(spark, snapshot)
    context = ReportContext(kept, segments, datetime.fromisoformat(truth["as_of"]))
    found = collect(context, partial(check_division, folder))
    return FleetReport.of(fleet, truth, json.loads(report_json(found)))


DAMAGED: dict[str, Callable[[dict[str, Any]], None]] = {
    "a problem is missing": lambda report: report["problems"].pop(),
    "one is reported twice": lambda report: report["problems"].append(report["problems"][0]),
    "one has a wrong place": lambda report: report["problems"][-1].update(where="gw-000.example"),
    "an outage is longer": lambda report: report["tables"]["outages"][0].update(seconds=1.0),
    "a refusal count is wrong": lambda report: report["tables"]["refusals"][0].update(times=1),
    "a session is of another protocol": lambda report: report["tables"]["sessions"][0].update(
        version="5.0"
    ),
    "a timeout count is wrong": lambda report: report["tables"]["queues"][0].update(timeouts=-1),
    "a last reading is of another sensor": lambda report: report["tables"]["sensors"][0].update(
        last=report["tables"]["sensors"][-1]["last"]
    ),
    "a file is missing": lambda report: report["tables"]["quarantine"].pop(),
    "a version is seen later": lambda report: report["tables"]["versions"][0].update(
        first_seen=report["tables"]["versions"][0]["last_seen"]
    ),
}
"""Faults of a report, each of which the checks must detect."""


def check_detection(found: FleetReport, repeats: Counter[tuple[str, str, str]]) -> None:
    for fault, spoil in DAMAGED.items():
        report = deepcopy(found.report)
        spoil(report)
        try:
            found._replace(report=report).check(repeats)
        except AssertionError:
            continue
        pytest.fail(f"the checks do not detect that {fault}")


def test_report_finds_all_planted_faults_and_no_others(
    spark: SparkSession, tmp_path: Path, scale: Callable[[int, int], int], seed: int
) -> None:
    simulated, fleet = tmp_path / "simulated", fleet_folder(tmp_path / "fleet")
    truth = write_fleet(settings_of(scale, seed), simulated)
    land(simulated, fleet)
    totals = truth["totals"]

    counts = ingest_by_spark(spark, fleet).counts
    assert (counts.segments, counts.events) == (totals["segments"], totals["events"])
    assert counts.duplicates == totals["repeated"]
    assert counts.quarantined == totals["forks"] + totals["bad"]
    assert list(fleet.landing.rglob("*.seg")) == []

    repeats = land_again(fleet, scale(0, REPEATED_SEGMENTS))
    if repeats:
        counts = ingest_by_spark(spark, fleet).counts
        ingested = (counts.segments, counts.duplicates, counts.quarantined)
        assert ingested == (0, repeats.total(), 0)

    found = examine(spark, fleet, truth)
    found.check(repeats)
    check_detection(found, repeats)


@pytest.mark.long
def test_a_fleet_without_faults_has_no_problem(
    spark: SparkSession, tmp_path: Path, scale: Callable[[int, int], int], seed: int
) -> None:
    simulated, fleet = tmp_path / "simulated", fleet_folder(tmp_path / "fleet")
    truth = write_fleet(settings_of(scale, seed, frozenset()), simulated)
    land(simulated, fleet)
    ingest_by_spark(spark, fleet)
    found = examine(spark, fleet, truth)
    found.check()
    assert found.report["problems"] == []
