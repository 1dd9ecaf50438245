"""Benchmark: whole commands in seconds, as ratios to a bare Spark session that counts one file.

Each command is a process of its own, from its start to its end; files are in the page cache.
"""

from __future__ import annotations

import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks import fleet_data
from benchmarks.report import Goal, Settings, Topic, number, table
from firmware_sim.fleet.simulate import SEGMENTS
from sync.common.fleet_folder import FleetFolder
from sync.tables.data_files import to_parquet

ROUNDS: Final = 5
"""Rounds, each with the bare session first."""

EVENTS: Final = 500
FILES: Final = 25
"""Segments of the ingest, and events of each."""

INGEST: Final = 2.0
REPORT: Final = 3.0
"""Goals: at most so many times the bare session."""

_BARE: Final = """
import sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[*]").getOrCreate()
print(spark.read.parquet(sys.argv[1]).count())
spark.stop()
"""


class Round(NamedTuple):
    """Seconds of the bare session, of the ingest and of the report."""

    bare: float
    ingest: float
    report: float


def measure(settings: Settings) -> Topic:
    """Measure both ratios."""
    file = settings.folder / "one.parquet"
    write_parquet(file)
    ingested, reported = _small_ingest(settings), _small_report(settings)
    rounds = [
        Round(_run(sys.executable, "-c", _BARE, file), _ingest(ingested), _report(reported))
        for _ in range(round(settings.choose(ROUNDS, 1)))
    ]
    ratios = (
        statistics.median(each.ingest / each.bare for each in rounds),
        statistics.median(each.report / each.bare for each in rounds),
    )
    return Topic("seconds", "Commands in seconds", _blocks(rounds), _goals(*ratios))


def write_parquet(path: Path) -> None:
    """Write the file that the bare session counts."""
    import pyarrow as pa

    path.write_bytes(to_parquet(pa.table({"number": range(1_000)})))


def _small_ingest(settings: Settings) -> FleetFolder:
    pool = settings.folder / "pool"
    segments = fleet_data.write_pool(fleet_data.fleet(4, 1), EVENTS, pool)[:FILES]
    for each in segments:
        target = settings.folder / "landed" / each.path
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(pool / each.path, target)
    return FleetFolder(settings.folder / "ingest")


def _small_report(settings: Settings) -> FleetFolder:
    root, fleet = settings.folder / "simulated", FleetFolder(settings.folder / "report")
    fleet_data.write_simulated(settings, root, 4, 2)
    fleet.create()
    shutil.copytree(root / SEGMENTS, fleet.landing, dirs_exist_ok=True)
    _fleet_command("ingest", fleet)
    return fleet


def _ingest(fleet: FleetFolder) -> float:
    shutil.rmtree(fleet.root, ignore_errors=True)
    fleet.create()
    shutil.copytree(fleet.root.parent / "landed", fleet.landing, dirs_exist_ok=True)
    return _fleet_command("ingest", fleet)


def _report(fleet: FleetFolder) -> float:
    for folder in (fleet.tables / "summaries", fleet.root.parent / "out"):
        shutil.rmtree(folder, ignore_errors=True)
    return _fleet_command("report", fleet, "--out", fleet.root.parent / "out")


def _fleet_command(name: str, fleet: FleetFolder, *words: object) -> float:
    return _run(sys.executable, "-m", "sync.cli", name, "--dir", fleet.root, *words)


def _run(*words: object) -> float:
    began = time.perf_counter()
    subprocess.run([str(each) for each in words], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


def _goals(ingest: float, report: float) -> list[Goal]:
    return [
        Goal(
            f"ingest of {FILES} segments: {ingest:.2f} times the bare session (goal: {INGEST:.1f})",
            ingest <= INGEST,
        ),
        Goal(
            f"report of 4 gateways over 2 days: {report:.2f} times (goal: {REPORT:.1f})",
            report <= REPORT,
        ),
    ]


def _blocks(rounds: Sequence[Round]) -> tuple[str, ...]:
    head = ("round", "bare session", f"ingest of {FILES} segments", "report", "ratios")
    rows = [
        (
            at,
            *map(number, each),
            f"{each.ingest / each.bare:.2f}, {each.report / each.bare:.2f}",
        )
        for at, each in enumerate(rounds, 1)
    ]
    return (
        "Seconds of whole processes. The bare session is PySpark with its default settings on"
        f" `local[*]` that counts the rows of one Parquet file. The segments have {EVENTS} readings"
        " each. The report is the first one of 4 simulated gateways over 2 days, with all faults of"
        " `fieldpost-sim fleet`.",
        table(head, rows),
    )
