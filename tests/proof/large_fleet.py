"""A day of 10,000 gateways with planted faults: the centre's report is compared with the truth.

`python -m tests.proof.large_fleet` simulates the fleet, lands its segments, ingests them and makes
the report with the commands that users run, and compares every figure and every problem. Its data
are in a temporary folder, some 70 files of each gateway; set TMPDIR to choose the disk.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

import psutil

from benchmarks import machine
from benchmarks.report import table
from benchmarks.usage import MIB
from firmware_sim.fleet.faults import FAULTS
from firmware_sim.fleet.simulate import SEGMENTS, TRUTH
from sync.common.fleet_folder import FleetFolder
from tests.helpers.fleet_report import FleetReport
from tests.helpers.fleet_tables import fleet_folder

GATEWAYS: Final = 10_000

EACH: Final = 250
"""Gateways for which each fault is planted once: no table with a limit reaches it, except sensors,
and there are some hundred pages of gateways to draw."""

TOO_LONG: Final = {"disk-full", "sensor-flat"}
"""Faults that a report of one day cannot show."""

SIMULATION: Final = {
    "days": 1,
    "seed": 1,
    "start": "2026-03-02",
    "readings": 768,
    "heartbeat": 900,
    "seal": 3_600,
    "faults": ",".join(name for name in FAULTS if name not in TOO_LONG),
}
"""Each of eight sensors has a reading, and the gateway a heartbeat, every quarter of an hour. Lanes
are sealed hourly, because the shortest fault that loses segments lasts little longer."""

SAMPLE_S: Final = 1.0


class Step(NamedTuple):
    """A command, its output, its seconds, and the resources of all its processes together.

    `processor` is in seconds, `memory` the largest sum of resident bytes, without shared pages.
    """

    words: Sequence[str]
    output: str
    seconds: float
    processor: float
    memory: int


class Watch:
    """Samples the processor time and the memory of a process and all its descendants."""

    def __init__(self, pid: int) -> None:
        self._process = psutil.Process(pid)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._used: dict[int, float] = {}
        self.memory = 0
        self._thread.start()

    @property
    def processor(self) -> float:
        return sum(self._used.values())

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(SAMPLE_S):
            try:
                processes = [self._process, *self._process.children(recursive=True)]
            except psutil.Error:
                return
            sizes = []
            for each in processes:
                try:
                    times, pages = each.cpu_times(), each.memory_info()
                except psutil.Error:
                    continue
                self._used[each.pid] = times.user + times.system
                sizes.append(pages.rss - pages.shared)
            self.memory = max(self.memory, sum(sizes))


def run_step(*words: object) -> Step:
    """Run a module with these words. Raises `CalledProcessError` if it fails."""
    texts = [str(word) for word in words]
    began = time.monotonic()
    with subprocess.Popen(
        [sys.executable, "-m", *texts], stdout=subprocess.PIPE, text=True
    ) as process:
        watch = Watch(process.pid)
        try:
            output, _ = process.communicate()
        finally:
            watch.stop()
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, texts)
    return Step(texts, output, time.monotonic() - began, watch.processor, watch.memory)


class Result(NamedTuple):
    """The steps of a run, the comparisons (None if equal), and the files of the report."""

    steps: list[Step]
    found: FleetReport
    verdicts: dict[str, str | None]
    pages: dict[str, int]
    files: int

    @property
    def is_equal(self) -> bool:
        return not any(self.verdicts.values())


def simulate(folder: Path, gateways: int) -> Step:
    """Simulate a fleet in a new folder."""
    options = [word for name, value in SIMULATION.items() for word in (f"--{name}", value)]
    options += ["--per-fault", max(gateways // EACH, 1)]
    return run_step("firmware_sim", "fleet", "--gateways", gateways, *options, "--out", folder)


def run(folder: Path, gateways: int) -> Result:
    """Simulate, ingest, report and compare in an empty folder."""
    simulated, fleet, out = folder / "simulated", fleet_folder(folder / "fleet"), folder / "report"
    steps = [simulate(simulated, gateways)]
    truth = json.loads((simulated / TRUTH).read_text())
    fleet.landing.rmdir()
    (simulated / SEGMENTS).rename(fleet.landing)
    places = "--dir", fleet.root
    steps.append(run_step("sync.cli", "ingest", *places, "--json"))
    moment = "--as-of", truth["as_of"]
    steps.append(run_step("sync.cli", "report", *places, "--out", out, "--only-problems", *moment))
    return compare(steps, fleet, out, truth)


def compare(steps: list[Step], fleet: FleetFolder, out: Path, truth: dict[str, Any]) -> Result:
    """Compare a report, and what the ingest has counted, with the truth."""
    found = FleetReport.of(fleet, truth, json.loads((out / "report.json").read_text()))
    checks = {"ingest": lambda: check_ingest(json.loads(steps[1].output), truth["totals"])}
    checks |= found.checks()
    pages = {str(each.relative_to(out)): each.stat().st_size for each in out.rglob("*.html")}
    verdicts = {name: verdict(check) for name, check in checks.items()}
    files = sum(each.stat().st_size for each in out.rglob("*.*"))
    return Result(steps, found, verdicts, pages, files)


def check_ingest(counts: dict[str, int], totals: dict[str, int]) -> None:
    """Compare the ingest's counts with the truth's totals."""
    refused = totals["forks"] + totals["bad"]
    expected = {"segments": totals["segments"], "events": totals["events"]}
    expected |= {"duplicates": totals["repeated"], "quarantined": refused}
    assert expected == {name: counts[name] for name in expected}


def verdict(check: Callable[[], None]) -> str | None:
    """Return the first difference that a comparison finds, or None."""
    try:
        check()
    except AssertionError as error:
        return str(error)[:2_000] or "different"
    return None


def page(result: Result, head: str) -> str:
    """Write the page of a result; `head` says when and where it ran."""
    truth, totals = result.found.truth, result.found.truth["totals"]
    entries = enumerate(truth["planted"])  # what affects the fleet has no gateway
    places = {(each["fault"], each["gateway"] or at) for at, each in entries}
    planted = Counter(fault for fault, _ in places)
    own = [size for name, size in result.pages.items() if "/" in name]
    others = {name: size for name, size in result.pages.items() if "/" not in name}
    listed = result.found.report["tables"]["sensors"]
    problems, verdicts = result.found.report["problems"], result.verdicts
    rows = [
        (
            " ".join(step.words[:2]),
            f"{step.seconds:,.0f}",
            f"{step.processor:,.0f}",
            f"{step.memory / MIB:,.0f}",
        )
        for step in result.steps
    ]
    parts = (
        f"# A day of {totals['gateways']:,} gateways",
        f"{totals['gateways']:,} simulated gateways with eight sensors each: {totals['events']:,}"
        f" events in {totals['files']:,} segments. {sum(planted.values()):,} faults are planted,"
        f" each of {len(planted)} kinds in some gateways. The segments are ingested from a landing"
        " on a disk by Spark, and the report is made by `report --only-problems`, both by one"
        " command on one machine. Every row of the compared tables and every problem must be the"
        " truth's, which the simulator computes without the centre's code.",
        head,
        table(
            ("compared", "equal to the truth"),
            [(name, "yes" if wrong is None else "**no**") for name, wrong in verdicts.items()],
        ),
        *(f"`{name}`: {wrong}" for name, wrong in verdicts.items() if wrong is not None),
        f"The report has {len(problems):,} problems. Compared are their kinds, their places and,"
        " within the resolution of heartbeats and sealing, their times. The table of sensors lists"
        f" {len(listed):,} of {len(result.found.sums):,}; the"
        " number and the sum of the readings of each are compared with the table `events`."
        " `anomalies`, `dates`, `trends` and `totals` have no counterpart in the truth; their"
        " problems do. Two kinds of faults are not planted, because a report of one day cannot show"
        f" them: {', '.join(sorted(TOO_LONG))}.",
        table(("command", "seconds", "processor, s", "memory, peak MiB"), rows),
        "Memory is that of all processes of a command together, without the pages that they share"
        " with each other and with files.",
        f"The report's files are {result.files / 1e6:,.1f} MB: the fleet's page has"
        f" {others.pop('index.html') / 1e3:,.0f} kB, each of {len(others)} pages of the list at"
        f" most {max(others.values(), default=0) / 1e3:,.0f} kB, and {len(own):,} pages of gateways"
        f" {sum(own) / max(len(own), 1) / 1e3:,.0f} kB on the average.",
        table(("planted fault", "gateways"), sorted(planted.items())),
    )
    return "\n\n".join(parts) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.proof.large_fleet")
    parser.add_argument("--gateways", type=int, default=GATEWAYS)
    parser.add_argument("--out", type=Path, help="file for the page")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        words = "  \n".join(
            (
                f"Command: `python -m tests.proof.large_fleet --gateways {arguments.gateways}`.",
                f"Began {datetime.now(UTC):%Y-%m-%d %H:%M} UTC.",
                machine.environment(folder),
            )
        )
        result = run(folder, arguments.gateways)
        text = page(result, words)
    if arguments.out:
        arguments.out.write_text(text, "utf-8")
    sys.stdout.write(text)
    sys.exit(not result.is_equal)


if __name__ == "__main__":
    main()
