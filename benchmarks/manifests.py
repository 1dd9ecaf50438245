"""Benchmark: reading the list of a table's files from one file per manifest, and from a checkpoint.

A folder is filled with manifests of old batches, as an ingest writes them; then they are gathered
into a checkpoint. Files are on the local disk and in the page cache; on an object store each is a
request.
"""

from __future__ import annotations

import secrets
import time
import tracemalloc
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from benchmarks.report import Settings, Topic, number, table
from sync.tables.checkpoint import FILED, MANIFEST, path_of
from sync.tables.manifest import Commits, Counts, Manifest, encode
from sync.tables.storage import LocalStorage

COUNTS: Final = (10_000, 100_000)
"""Numbers of old batches: of a month and of a year, with one batch every five minutes."""

EVERY: Final = 288
"""Batches of a day; each night they are compacted."""

Found = tuple[int, float, float, float, float, float]
"""Files read, three durations in seconds, and memory in MB twice, in the order of the table."""

_MB: Final = 1_000_000


class CountingStorage(LocalStorage):
    """A local storage that counts the files that are read."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.reads = 0

    def read(self, path: str) -> bytes:
        """Read a file and count it."""
        self.reads += 1
        return super().read(path)


def measure(settings: Settings) -> Topic:
    """Measure before and after the checkpoint, for each number of manifests."""
    rows = []
    for count in (300,) if settings.quick else COUNTS:
        rows += _one(settings.folder / f"tables-{count}", count)
    head = (
        "manifests",
        "files read",
        "read all, s",
        "ledger, s",
        "ledger again, s",
        "MB, all",
        "MB, ledger",
    )
    blocks = (
        "A report, a compaction and a retention read all manifests; an ingest reads the list of"
        " the ledger's files at the first batch of each run. Each batch has one file of segments"
        f" and two files of events; batches are compacted after each {EVERY}. Each is measured"
        " once, in one process. The memory is that of the list of all manifests, and that of an"
        " ingest's list of the ledger's files; tracemalloc counts it in separate runs.",
        table(head, rows),
    )
    return Topic("manifests", "Manifests in one file each, and gathered in a checkpoint", blocks)


def _one(root: Path, count: int) -> list[tuple[str, ...]]:
    _write_old_batches(root, count)
    before = _read(root)
    commits = Commits(LocalStorage(root))
    seconds, gathered = _timed(commits.checkpoint)
    size = sum(file.stat().st_size for file in root.glob("manifests/gathered/*.gz"))
    _, removed = _timed(lambda: commits.remove_checkpointed(time.time() + 1))
    after = _read(root)
    ratio = [f"{a / b:.1f}" for a, b in zip(before[1:4], after[1:4], strict=True)]
    return [
        (f"{gathered:,} files", *_cells(before)),
        (f"gathered in {number(seconds)} s, {number(size / _MB)} MB", *_cells(after)),
        (f"ratio; {removed:,} files removed", "", *ratio, "", ""),
    ]


def _read(root: Path) -> Found:
    storage = CountingStorage(root)
    everything, _ = _timed(Commits(storage).manifests)
    reads, commits = storage.reads, Commits(storage)
    first, _ = _timed(commits.segments)
    again, _ = _timed(commits.segments)
    held = _memory_of(lambda: Commits(storage).manifests())
    driver = _memory_of(lambda: (fresh := Commits(storage), fresh.segments()))
    return reads, everything, first, again, held, driver


def _cells(found: Found) -> tuple[str, ...]:
    return f"{found[0]:,}", *(number(each) for each in found[1:])


def _timed(work: Callable[[], Any]) -> tuple[float, Any]:
    began = time.perf_counter()
    found = work()
    return time.perf_counter() - began, found


def _memory_of(work: Callable[[], Any]) -> float:
    tracemalloc.start()
    found = work()
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    del found
    return held / _MB


def _write_old_batches(root: Path, count: int) -> None:
    """Write manifests of batches, and of a compaction after each day's."""
    query = str(uuid.uuid4())
    small: list[Manifest] = []
    for batch in range(count):
        small.append(_manifest(query, batch, "batch"))
        _put(root, small[-1])
        (root / path_of(query, batch, FILED)).touch()
        if len(small) == EVERY:
            step = _manifest("upkeep", batch // EVERY, "compacted", small)
            _put(root, step)
            small.clear()


def _manifest(
    query: str, batch: int, kind: Any, replaced: list[Manifest] | None = None
) -> Manifest:
    token = secrets.token_hex(8)
    folder = f"data/{query}/{batch}/{token}"
    days = {
        f"2026-01-{day:02}": (f"{folder}/events/day=2026-01-{day:02}/00000.parquet",)
        for day in (1, 2)
    }
    gone = [
        path
        for each in replaced or ()
        for path in (*each.segments, *(path for paths in each.events.values() for path in paths))
    ]
    return Manifest(
        *(query, batch, token, "2026-01-02T12:00:00.000+00:00"),
        segments=(f"{folder}/segments/00000.parquet",),
        events=days,
        counts=Counts(60, 3_000) if kind == "batch" else Counts(),
        kind=kind,
        replaces=tuple(gone),
    )


def _put(root: Path, manifest: Manifest) -> None:
    path = root / path_of(manifest.query, manifest.batch, MANIFEST)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(encode(manifest))
