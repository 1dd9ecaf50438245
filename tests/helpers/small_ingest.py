"""An ingest without Spark, for tests of what reads the tables: it commits the same batches.

It decodes and judges with the centre's own functions. All files go to the archive.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from sync.common.fleet_folder import FleetFolder
from sync.ingest.archive import waiting_files
from sync.ingest.decoding import decode_files
from sync.ingest.ledger import Claim, judge
from sync.tables.data_files import create_event_files, create_segments_file
from sync.tables.delta import Batch, local_tables
from sync.tables.locations import LANDING
from sync.tables.part_files import PartFile
from sync.tables.storage import File, LocalStorage

FILES = pa.schema(
    [
        ("path", pa.string()),
        ("modificationTime", pa.timestamp("us", tz="UTC")),
        ("length", pa.int64()),
        ("content", pa.binary()),
    ]
)


@dataclass
class SmallIngest:
    """Ingests what waits in the landing of `folder`."""

    folder: FleetFolder
    known: list[Claim] = field(default_factory=list)

    def run(self) -> Batch | None:
        """Ingest all waiting files and archive them; return None if there are none."""
        segments = LocalStorage(self.folder.root)
        waiting = waiting_files(segments).values()
        files = sorted(waiting, key=lambda file: (file.modified, file.path))
        if not files:
            return None
        [batch] = pa.Table.from_pylist([self._row(file) for file in files], FILES).to_batches()
        rows = [row for row in _taken(batch) if row["path"]]
        self._judge(rows)
        made = self._commit(batch, rows)
        for row in rows:
            self._file(row["path"])
        return made

    def _row(self, file: File) -> dict[str, Any]:
        content = (self.folder.root / file.path).read_bytes()
        row = {"path": file.path, "length": file.size, "content": content}
        return row | {"modificationTime": round(file.modified * 1000) * 1000}

    def _judge(self, rows: Sequence[dict[str, Any]]) -> None:
        for row in rows:
            row["fate"] = "bad" if row["reason"] else "fork"
        offered = [
            row for row in rows if not row["reason"] and row["path"].split("/")[0] == LANDING
        ]
        claims = [Claim(*(row[name] for name in Claim._fields)) for row in offered]
        for row, claim, verdict in zip(offered, claims, judge(claims, self.known), strict=True):
            row["fate"] = verdict.fate
            if verdict.fate == "accepted":
                self.known.append(claim)

    def _commit(self, batch: pa.RecordBatch, rows: Sequence[dict[str, Any]]) -> Batch:
        tables = local_tables(self.folder.tables)
        tables.recover()
        snapshot = tables.snapshot()
        accepted = pa.array([row["fate"] == "accepted" for row in rows])
        parts = [
            PartFile(row["day"], row["events"], row["content"])
            for row in _taken(batch.filter(accepted))
            if row["day"]
        ]
        made = Batch(
            create_event_files(tables.storage, parts),
            create_segments_file(
                tables.storage, [row | {"batch": snapshot.batch + 1} for row in rows]
            ),
        )
        tables.commit(snapshot, made)
        tables.mark_archived(snapshot.batch + 1)
        return made

    def _file(self, path: str) -> None:
        target = self.folder.archive / path.partition("/")[2]
        target.parent.mkdir(parents=True, exist_ok=True)
        (self.folder.root / path).rename(target)


def _taken(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """Return a worker's rows for these files: rows of files, and of part files."""
    return [row for taken in decode_files([batch]) for row in taken.to_pylist()]
