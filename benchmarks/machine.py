"""The environment of a measurement: processor, disk, versions, and the machine's other load."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import sqlite3
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple

import psutil

SYNCS: Final = 200
"""Times that a block is written and synced."""

BLOCK: Final = 4096

CHECKOUT: Final = Path(__file__).parents[1]
"""The checkout of this file."""

LIBRARIES: Final = ("aiosqlite", "msgspec", "cbor2")


class Sync(NamedTuple):
    """Seconds of an fdatasync after writing 4 KiB: the median and the 90th percentile."""

    median: float
    slow: float


def describe(folder: Path, command: str = "python -m benchmarks") -> str:
    """Return the lines at the head of each page; measures the disk of `folder`."""
    now = datetime.now(UTC)
    return f"Measured {now:%Y-%m-%d %H:%M} UTC by `{command}`.  \n{environment(folder)}"


def environment(folder: Path) -> str:
    """Return lines about the machine and the versions; measures the disk of `folder`."""
    sync = fdatasync(folder)
    load = os.getloadavg()[0]
    lines = (
        f"Machine: {processor()}, {os.cpu_count()} cores, Linux {platform.release()}"
        f" {platform.machine()}, load {load:.1f} at the start.",
        f"Disk: {_filesystem(folder)}; a write of 4 KiB with fdatasync takes"
        f" {sync.median * 1000:.2f} ms (median) and {sync.slow * 1000:.2f} ms (90th percentile).",
        f"Fieldpost: {describe_checkout(CHECKOUT)}.",
        f"{python_build()}, SQLite {sqlite3.sqlite_version}, {ssl.OPENSSL_VERSION}, {_versions()}.",
    )
    return "  \n".join(lines)


def describe_checkout(folder: Path) -> str:
    """Return a checkout's commit, and whether its modules are compiled."""
    command = ["git", "-C", str(folder), "describe", "--always", "--dirty"]
    commit = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    compiled = len(list((folder / "edge").rglob("*.so")))
    return f"commit {commit or 'unknown'}, {f'{compiled} compiled modules' if compiled else 'pure'}"


def fdatasync(folder: Path) -> Sync:
    """Measure the seconds of an fdatasync after writing 4 KiB."""
    times: list[float] = []
    with tempfile.TemporaryFile(dir=folder) as file:
        for _ in range(SYNCS):
            os.write(file.fileno(), bytes(BLOCK))
            began = time.perf_counter()
            os.fdatasync(file.fileno())
            times.append(time.perf_counter() - began)
    tenths = statistics.quantiles(times, n=10)
    return Sync(tenths[4], tenths[8])


def busy() -> float:
    """Return the processor seconds that the whole machine has used since it started."""
    times = psutil.cpu_times()
    stolen: float = getattr(times, "steal", 0.0)
    return float(times.user + times.nice + times.system + times.irq + times.softirq + stolen)


def python_build() -> str:
    """Return the version of this Python, its compiler and who built it: builds differ in speed."""
    prefix = sys.base_prefix
    builder = "the system's" if prefix == "/usr" else "pyenv's" if "pyenv" in prefix else prefix
    return f"Python {platform.python_version()} ({builder} build, {platform.python_compiler()})"


def processor() -> str:
    """Return the name of the processor."""
    for line in Path("/proc/cpuinfo").read_text("utf-8").splitlines():
        name, _, value = line.partition(":")
        if name.strip() in ("model name", "Model"):
            return value.strip()
    return platform.machine()


def _filesystem(folder: Path) -> str:
    found = [p for p in psutil.disk_partitions(all=True) if folder.is_relative_to(p.mountpoint)]
    return max(found, key=lambda p: len(p.mountpoint)).fstype if found else "unknown"


def _versions() -> str:
    return ", ".join(f"{name} {importlib.metadata.version(name)}" for name in LIBRARIES)
