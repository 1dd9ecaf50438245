"""An ingest without Spark, for tests of what reads the tables: it writes the same files and
manifests.

It decodes and judges with the centre's own functions. A new instance is a new query, as after a
lost stream checkpoint. All files go to the archive, and nothing is fsynced.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from sync.common.fleet_folder import FleetFolder
from sync.ingest.archive import waiting_files
from sync.ingest.decoding import decode_files
from sync.ingest.ledger import CLAIM_COLUMNS, Claim, judge
from sync.tables import arrow_schemas
from sync.tables.locations import LANDING
from sync.tables.manifest import LocalCommits, Manifest
from sync.tables.part_files import to_parquet
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
    """Ingests what waits in the landing of `folder`, as batches of `query`."""

    folder: FleetFolder
    query: str = "00000000-0000-0000-0000-000000000001"
    batch: int = 0
    known: list[Claim] = field(default_factory=list)

    def run(self) -> Manifest | None:
        """Ingest all waiting files and archive them; return None if there are none."""
        segments = LocalStorage(self.folder.root)
        files = sorted(
            waiting_files(segments).values(), key=lambda file: (file.modified, file.path)
        )
        if not files:
            return None
        [batch] = pa.Table.from_pylist([self._row(file) for file in files], FILES).to_batches()
        rows = [row for row in _taken(batch) if row["path"]]
        self._judge(rows)
        manifest = self._commit(batch, rows)
        for row in rows:
            self._file(row["path"])
        return manifest

    def _row(self, file: File) -> dict[str, Any]:
        content = (self.folder.root / file.path).read_bytes()
        modified = round(file.modified * 1000) * 1000
        return {
            "path": file.path,
            "modificationTime": modified,
            "length": file.size,
            "content": content,
        }

    def _judge(self, rows: Sequence[dict[str, Any]]) -> None:
        for row in rows:
            row["fate"] = "bad" if row["reason"] else "fork"
        offered = [
            row for row in rows if not row["reason"] and row["path"].split("/")[0] == LANDING
        ]
        claims = [Claim(*(row[name] for name in CLAIM_COLUMNS)) for row in offered]
        for row, claim, verdict in zip(offered, claims, judge(claims, self.known), strict=True):
            row["fate"] = verdict.fate
            if verdict.fate == "accepted":
                self.known.append(claim)

    def _commit(self, batch: pa.RecordBatch, rows: Sequence[dict[str, Any]]) -> Manifest:
        top = self.folder.tables / "data" / self.query / str(self.batch) / "attempt"
        top.mkdir(parents=True)
        (top / "segments.parquet").write_bytes(to_parquet(rows, arrow_schemas.SEGMENTS))
        accepted = pa.array([row["fate"] == "accepted" for row in rows])
        parts = [row for row in _taken(batch.filter(accepted)) if row["day"]]
        manifest = Manifest(
            *(self.query, self.batch, "attempt", datetime.now(UTC).isoformat()),
            (self._name(top / "segments.parquet"),),
            self._write(top, parts),
        )
        LocalCommits(self.folder.tables).commit(manifest)
        self.batch += 1
        return manifest

    def _write(self, top: Path, parts: Sequence[dict[str, Any]]) -> dict[str, tuple[str, ...]]:
        found: dict[str, tuple[str, ...]] = {}
        for number, part in enumerate(parts):
            path = top / f"day={part['day']}" / f"{number:05}.parquet"
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(part["content"])
            found[part["day"]] = (*found.get(part["day"], ()), self._name(path))
        return found

    def _file(self, path: str) -> None:
        target = self.folder.archive / path.partition("/")[2]
        target.parent.mkdir(parents=True, exist_ok=True)
        (self.folder.root / path).rename(target)

    def _name(self, path: Path) -> str:
        return path.relative_to(self.folder.tables).as_posix()


def _taken(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """Return a worker's rows for these files: rows of files, and of part files."""
    return [row for taken in decode_files([batch]) for row in taken.to_pylist()]
