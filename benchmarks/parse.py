"""Benchmark: time and instructions of each step of an exchange (pytest-benchmark, valgrind)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

from benchmarks import instructions
from benchmarks.payload import STANZA_BYTES
from benchmarks.report import Settings, Topic, number, table

LIMIT: Final = 300.0
"""Seconds for all micro benchmarks."""

_STEPS: Final = {
    "test_parse": ("parse the assured iq", "parse"),
    "test_parse_and_route": ("parse, route and decode it into a unit of work", "route"),
    "test_exchange_without_commit": (
        "the whole exchange: `assured` and `deliver`, rows and answers, without a commit",
        "exchange",
    ),
    "test_relay_without_commit": (
        "a message from device to device, assured on both hops, without a commit",
        "relay",
    ),
    "test_publication_over_mqtt_without_commit": (
        "a retained publication over MQTT at QoS 2: PUBLISH and PUBREL, rows and answers, without a"
        " commit",
        "mqtt_qos2",
    ),
}


def measure(settings: Settings) -> Topic:
    """Measure each step."""
    found = _timed(settings)
    rows = []
    for test, (step, name) in _STEPS.items():
        stats = found[test]
        counted = None if settings.quick else instructions.count(name)
        count = "not counted" if counted is None else f"{counted:,}"
        rows.append((step, *(number(stats[key] * 1e6) for key in ("median", "min")), count))
    blocks = (
        f"One assured iq of {STANZA_BYTES} bytes that contains a sensor's reading. Times are"
        " wall-clock times of one thread; instructions are counted by valgrind and do not depend"
        " on the machine's load.",
        table(("step", "median, us", "minimum, us", "instructions"), rows),
    )
    return Topic("parse", "One assured exchange, step by step", blocks)


def _timed(settings: Settings) -> dict[str, Any]:
    results = settings.folder / "micro.json"
    seconds = settings.choose(2.0, 0.1)
    command = [
        *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"),
        str(Path(__file__).with_name("micro")),
        *("--benchmark-only", f"--benchmark-json={results}", f"--benchmark-max-time={seconds}"),
    ]
    # pytest-benchmark measures nothing if it finds the variables of a pytest-xdist worker.
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=LIMIT, check=False, env=env
    )
    if done.returncode:
        output = (done.stdout + done.stderr)[-2000:]
        raise RuntimeError(f"the micro benchmarks failed: {output}")
    runs = json.loads(results.read_text("utf-8"))["benchmarks"]
    return {run["name"]: run["stats"] for run in runs}
