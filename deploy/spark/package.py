"""Pack what Spark's driver and workers need of Fieldpost into one zip for `--py-files`.

Usage: package.py FOLDER. Writes FOLDER/fieldpost-spark.zip; the same sources give the same bytes.
Other dependencies are not included: see README.md.
"""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NAME = "fieldpost-spark.zip"
PARTS = (
    "cli",
    "common",
    "ingest",
    "pages",
    "receiver",
    "reports",
    "segment",
    "storage",
    "tables",
    "alerts",
)
SUFFIXES = (".py", ".jinja", ".css")
LONG_AGO = (1980, 1, 1, 0, 0, 0)


def package(folder: Path) -> Path:
    """Write the zip into `folder` and return its path."""
    sync = ROOT / "sync"
    files = [path for part in PARTS for path in (sync / part).rglob("*")]
    chosen = sorted(path for path in [*files, *sync.glob("*")] if path.suffix in SUFFIXES)
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / NAME
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in chosen:
            entry = zipfile.ZipInfo(path.relative_to(ROOT).as_posix(), LONG_AGO)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, path.read_bytes())
    return target


if __name__ == "__main__":
    sys.stdout.write(f"{package(Path(sys.argv[1]))}\n")
