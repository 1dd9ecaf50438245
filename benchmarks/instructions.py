"""Instructions of one step, counted by valgrind, which the load of the machine does not change.

`python -m benchmarks.instructions STEP COUNT` repeats a step; `count` runs that twice under
valgrind and takes the difference, which excludes the start of Python.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks.exchange_steps import KINDS, SensorStream, repeat_part, transaction
from benchmarks.message_steps import PlainMessages
from benchmarks.mqtt_steps import Publications
from benchmarks.pubsub_steps import FannedOutItems, QueuedItems, new_router
from benchmarks.relay_steps import RelayedMessages
from edge.engine.store.database import Transaction

FEW: Final = 200
MANY: Final = 700

LIMIT: Final = 300.0
"""Seconds for one run: valgrind is about fifty times slower than the processor."""

_COUNTED: Final = re.compile(r"I +refs: +([\d,]+)")

STEPS: Final = (
    *("parse", "route", "exchange", "relay", "message", "acknowledged_message", "publish", "queue"),
    *("mqtt_qos0", "mqtt_qos1", "mqtt_qos2"),
    *(f"core_{kind}" for kind in KINDS),
)


def count(step: str) -> int | None:
    """Return the instructions of one step, or `None` if valgrind is not installed."""
    if shutil.which("valgrind") is None:
        return None
    return round((_run(step, MANY) - _run(step, FEW)) / (MANY - FEW))


def _run(step: str, times: int) -> int:
    tool = ["valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"]
    done = subprocess.run(
        [*tool, sys.executable, "-m", "benchmarks.instructions", step, str(times)],
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=True,
        env={**os.environ, "PYTHONHASHSEED": "0"},
    )
    match = _COUNTED.search(done.stderr)
    if match is None:
        raise RuntimeError(f"valgrind printed no count: {done.stderr[-1000:]}")
    return int(match[1].replace(",", ""))


def repeat(step: str, times: int) -> None:
    """Run a step `times` times, without garbage collection, which the gateway runs rarely."""
    gc.disable()
    if step.startswith("core_"):
        with tempfile.TemporaryDirectory() as folder:
            asyncio.run(repeat_part("whole", step.removeprefix("core_"), times, Path(folder)))
        return
    subject = SensorStream()
    with transaction(subject) as tx:
        run = _prepare(step, subject, tx)
        for _ in range(times):
            run()


def _prepare(step: str, subject: SensorStream, tx: Transaction) -> Callable[[], object]:
    if step == "parse":
        return subject.parse
    if step == "route":
        return subject.route
    if step == "relay":
        return partial(RelayedMessages(tx).relay, tx)
    if step in ("message", "acknowledged_message"):
        stored = step == "acknowledged_message"
        return partial(PlainMessages(tx, new_router(), acknowledged=stored).send, tx)
    if step == "publish":
        return partial(FannedOutItems(tx, new_router()).fan_out, tx)
    if step.startswith("mqtt_qos"):
        return partial(Publications(tx, int(step[-1])).publish, tx)
    if step == "queue":
        return partial(QueuedItems(tx, new_router()).work, tx)
    return partial(subject.exchange, tx)


def main() -> None:
    """Run the step on the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.instructions")
    parser.add_argument("step", choices=STEPS)
    parser.add_argument("times", type=int)
    arguments = parser.parse_args()
    repeat(arguments.step, arguments.times)


if __name__ == "__main__":
    main()
