"""An ingest in a process of its own that reports each step and can kill or suspend itself at one.

Usage: killed_driver.py FOLDER spark|here [STEP NUMBER [SIGNAL]]. It ingests with Spark or in its
own process, and sends itself SIGNAL, by default SIGKILL, when STEP is taken for the NUMBERth time.
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
from sync.tables.locations import FleetStorage
from sync.tables.spark_session import spark_on_demand, spark_session
from sync.tables.storage import LocalStorage
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


def say(word: str) -> None:
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


def main() -> None:
    fleet = FleetFolder(Path(sys.argv[1]))
    dies_at, left = (sys.argv[3], int(sys.argv[4])) if sys.argv[3:] else ("", 0)
    number = signal.Signals[sys.argv[5]] if sys.argv[5:] else signal.SIGKILL
    if number == signal.SIGSTOP:
        setattr(LocalStorage, "lease", lambda *_: contextlib.nullcontext())  # noqa: B010

    def step(taken: str) -> None:
        nonlocal left
        say(taken)
        left -= taken == dies_at
        if taken == dies_at and left == 0:
            os.kill(os.getpid(), number)

    most = HERE_FILES if sys.argv[2] == "here" else 0
    with spark_on_demand(
        lambda: spark_session("dies", extra=SETTINGS, options=FAST_JVM)
    ) as session:
        places, control = FleetStorage.of(fleet), IngestControl(step)
        ingest_waiting(session, places, control, batch_files=BATCH_FILES, here_files=most)
    say("over")


if __name__ == "__main__":
    main()
