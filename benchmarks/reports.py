"""Benchmark: the first report, a report after one day's data changed, and one without new data.

The fleet is that of `fieldpost-sim fleet`: 100 gateways over 7 days with all faults. A segment of
each of some gateways, all of one day, is held back until the first report is made.
"""

from __future__ import annotations

import shutil
import statistics
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

from pyspark.sql import SparkSession

from benchmarks import fleet_data, spark
from benchmarks.report import Goal, Settings, Topic, number, table
from firmware_sim.fleet.simulate import SEGMENTS
from sync.common.fleet_folder import FleetFolder
from sync.ingest.ingest import ingest_waiting
from sync.pages.files import write_report
from sync.reports.shared.collect import collect
from sync.reports.shared.registry import SUMMARIES
from sync.reports.shared.report import ReportContext
from sync.storage.local import LocalStorage
from sync.storage.locations import FleetStorage
from sync.tables.delta import local_tables
from sync.tables.spark_session import spark_session
from sync.tables.summaries import summarise
from sync.tables.tables import read_segments

GATEWAYS: Final = 100
DAYS: Final = 7

LATE: Final = 5
"""Gateways of which a segment arrives late."""

LATE_DAY: Final = 3
"""The day of the late segments."""

AIM: Final = 1 / 3
"""Largest share of the first report's seconds for a report after one day changed."""

AGAIN: Final = 3
"""Late arrivals, and reports without new data."""


class ReportRun(NamedTuple):
    """Seconds to update the summaries, to collect and to write; and the days computed."""

    summarised: float
    collected: float
    written: float
    days: dict[str, int]

    @property
    def seconds(self) -> float:
        """The total."""
        return self.summarised + self.collected + self.written


def measure(settings: Settings) -> Topic:
    """Measure the first report and the following ones."""
    gateways = round(settings.choose(GATEWAYS, 2 * LATE))
    days = round(settings.choose(DAYS, LATE_DAY + 2))
    truth = fleet_data.write_simulated(settings, settings.folder / "simulated", gateways, days)
    landing = settings.folder / "simulated" / SEGMENTS
    fleet = FleetFolder(settings.folder / "fleet")
    fleet.create()
    late = _hold_back(landing, settings.folder / "late")
    _land(landing, fleet.landing)
    ingested, *runs = spark.in_new_process(_run_reports, settings, late)
    size = sum(file.stat().st_size for file in (settings.folder / "out").rglob("*.*"))
    ratios = sorted(each.seconds / runs[0][0].seconds for each in runs[1])
    ratio = statistics.median(ratios)
    text = f"a report after one day changed takes {ratio:.2f} of the first one (goal: {AIM:.2f})"
    blocks = _blocks(truth, ingested, size, ratios, runs)
    return Topic("reports", "Reports", blocks, [Goal(text, ratio <= AIM)])


def _run_reports(
    settings: Settings, late: Sequence[Path]
) -> tuple[float, Sequence[ReportRun], Sequence[ReportRun], Sequence[ReportRun]]:
    """Ingest and report; return the seconds of the first ingest, and the reports of each kind."""
    fleet, out = FleetFolder(settings.folder / "fleet"), settings.folder / "out"
    places = FleetStorage.of(fleet)
    with spark_session("fieldpost-benchmark") as session:
        spark.warm(session)
        began = time.perf_counter()
        ingest_waiting(lambda: session, places)
        ingested = time.perf_counter() - began
        first = make_report(session, fleet, out)
        changed, unchanged = [], []
        for some in late:
            _land(some, fleet.landing)
            ingest_waiting(lambda: session, places)
            changed.append(make_report(session, fleet, out))
            unchanged.append(make_report(session, fleet, out))
    return ingested, [first], changed, unchanged


def _hold_back(landing: Path, root: Path) -> list[Path]:
    """Move segments of one day out of the landing; return the folders that hold them."""
    day_ms = 86_400_000
    begin = (fleet_data.START // day_ms + LATE_DAY) * day_ms / 1000
    found = [
        path
        for lane in sorted(landing.glob("*/*/readings"))
        for path in sorted(lane.glob("*.seg"))
        if begin + 36_000 <= path.stat().st_mtime < begin + 72_000
    ]
    one_each = list({path.relative_to(landing).parts[0]: path for path in found}.values())
    folders = []
    for part in range(AGAIN):
        for path in one_each[part::AGAIN][:LATE]:
            target = root / str(part) / path.relative_to(landing)
            target.parent.mkdir(parents=True, exist_ok=True)
            path.rename(target)
        folders.append(root / str(part))
    return folders


def _land(source: Path, landing: Path) -> None:
    shutil.copytree(source, landing, dirs_exist_ok=True)


def make_report(session: SparkSession, fleet: FleetFolder, out: Path) -> ReportRun:
    """Write a report; measure its parts."""
    began = time.perf_counter()
    snapshot = local_tables(fleet.tables).snapshot()
    kept = summarise(session, snapshot, SUMMARIES)
    summarised = time.perf_counter()
    segments = read_segments(session, snapshot)
    found = collect(ReportContext(kept, segments, datetime.now(UTC), None, None))
    collected = time.perf_counter()
    write_report(found, LocalStorage(out, public=True))
    written = time.perf_counter()
    return ReportRun(summarised - began, collected - summarised, written - collected, found.days)


def _blocks(
    truth: dict[str, Any],
    ingested: float,
    size: int,
    ratios: Sequence[float],
    runs: Sequence[Sequence[ReportRun]],
) -> tuple[str, ...]:
    (first,), changed, unchanged = runs
    totals = truth["totals"]
    return (
        f"{totals['gateways']} gateways over {truth['days']} days with all faults of"
        f" `fieldpost-sim fleet`: {totals['events']:,} events in {totals['files']:,} files (sealed"
        f" every {truth['seal']:,.0f} s), which took {ingested:.0f} s to ingest. After the first"
        f" report a late segment of each of {LATE} gateways arrives, all of one day,"
        f" {len(changed)} times; the report is made again after each arrival, and without new"
        " data. All in one session, whose start is not counted. Values are medians.",
        table(
            ("report", "seconds", "summaries", "tables", "pages", "days computed", "days reused"),
            [
                _row("first", [first]),
                _row("one day changed", changed),
                _row("no new data", unchanged),
            ],
        ),
        f"A report after one day changed takes {statistics.median(ratios):.2f} of the first"
        f" ({ratios[0]:.2f} to {ratios[-1]:.2f}). The pages, CSV and JSON are {size / 1e6:.1f} MB.",
    )


def _row(name: str, runs: Sequence[ReportRun]) -> tuple[object, ...]:
    times = zip(*((m.seconds, m.summarised, m.collected, m.written) for m in runs), strict=True)
    days = runs[-1].days
    return (
        name,
        *(number(statistics.median(each)) for each in times),
        days["recomputed"],
        days["reused"],
    )
