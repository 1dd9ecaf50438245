"""Continuous ingest, and stopping it."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

from sync.common.errors import LeaseError
from sync.ingest.continuous import run_continuously, stopped_by_signals
from sync.ingest.ingest import IngestControl, IngestResult
from sync.tables.delta import Counts, local_tables
from sync.tables.locations import FleetStorage
from sync.tables.storage import LocalStorage
from tests.helpers.fleet_tables import Lane, fleet_folder, land, some_events, waiting
from tests.helpers.local_ingest import ingest, no_spark


class TakenOnce(LocalStorage):
    """A storage whose lease is held by maintenance at the first attempt."""

    asked = 0

    @contextlib.contextmanager
    def lease(self, wait_s: float = 0.0) -> Iterator[None]:
        self.asked += 1
        if self.asked == 1:
            raise LeaseError("maintenance is running")
        with super().lease(wait_s):
            yield


def test_a_continuous_ingest_repeats_and_stops_after_the_current_batch(tmp_path: Path) -> None:
    fleet = fleet_folder(tmp_path / "fleet")
    lane, storage = Lane(), TakenOnce(fleet.tables)
    land(fleet, lane.seal(some_events(2)))
    results: list[IngestResult] = []
    steps: list[str] = []

    def on_step(step: str) -> None:
        steps.append(step)
        if steps.count("committed") == 2:
            control.stopping.set()

    def on_run(result: IngestResult) -> None:
        results.append(result)
        if len(results) == 1:
            for _ in range(3):
                land(fleet, lane.seal(some_events(2)))

    control = IngestControl(on_step)
    run_continuously(
        *(no_spark, FleetStorage(LocalStorage(fleet.root), storage), control, on_run),
        every_s=0,
        batch_files=1,
    )
    assert storage.asked == 3
    assert results == [IngestResult(1, Counts(1, 2)), IngestResult(1, Counts(1, 2))]
    assert local_tables(fleet.tables).snapshot().batch == 2
    assert len(waiting(fleet)) == 2
    assert ingest(fleet).counts == Counts(2, 4)


def test_signals_stop_it_and_their_handlers_are_restored() -> None:
    stopping = threading.Event()
    before = signal.getsignal(signal.SIGTERM)
    with stopped_by_signals(stopping):
        os.kill(os.getpid(), signal.SIGTERM)
        assert stopping.wait(30)
    assert signal.getsignal(signal.SIGTERM) == before
