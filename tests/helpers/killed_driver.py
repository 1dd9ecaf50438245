"""An ingest in its own process that reports each step and can kill or suspend itself at one.

Usage: killed_driver.py FOLDER spark|here [STEP NUMBER [SIGNAL]]. It ingests with Spark or in its
own process, and sends itself SIGNAL, by default SIGKILL, as it takes STEP the NUMBERth time.
With `SIGSTOP` it ignores the lease, as another host would.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from pathlib import Path

from sync.common.fleet_folder import FleetFolder
from sync.ingest.ingest import HERE_FILES, IngestControl, ingest_waiting
from sync.storage.local import LocalStorage
from sync.storage.locations import FleetStorage
from sync.tables.spark_session import spark_on_demand, spark_session
from tests.helpers.jvm import FAST_JVM

BATCH_FILES = 5
"""Files in a batch: few, so that a driver has several batches."""

SETTINGS = {
    "spark.master": "local[2]",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


def report(step: str) -> None:
    sys.stdout.write(f"{step}\n")
    sys.stdout.flush()


def main() -> None:
    fleet = FleetFolder(Path(sys.argv[1]))
    crash_step, remaining = (sys.argv[3], int(sys.argv[4])) if sys.argv[3:] else ("", 0)
    number = signal.Signals[sys.argv[5]] if sys.argv[5:] else signal.SIGKILL
    if number == signal.SIGSTOP:
        setattr(LocalStorage, "lease", lambda *_: contextlib.nullcontext())  # noqa: B010

    def on_step(step: str) -> None:
        nonlocal remaining
        report(step)
        remaining -= step == crash_step
        if step == crash_step and remaining == 0:
            os.kill(os.getpid(), number)

    here_files = HERE_FILES if sys.argv[2] == "here" else 0
    with spark_on_demand(
        lambda: spark_session("dies", extra=SETTINGS, options=FAST_JVM)
    ) as session:
        places, control = FleetStorage.of(fleet), IngestControl(on_step)
        ingest_waiting(session, places, control, batch_files=BATCH_FILES, here_files=here_files)
    report("over")


if __name__ == "__main__":
    main()
