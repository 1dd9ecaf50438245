"""Conversion of tables that version 0.1 wrote: `tests/data/manifest-tables`.

Two batches of a query, compacted; a day removed by retention; the log of both merged. Then two
batches of another query, with events of the removed day among them. The summaries `sample` count
the events of two days as they were before compaction and retention.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from pkgutil import resolve_name

import pyarrow.parquet as pq
import pytest
from pyarrow import dataset

from sync.common.errors import FleetError, LeaseError
from sync.common.fleet_folder import FleetFolder
from sync.tables.convert import Conversion, convert
from sync.tables.delta import FleetTables, local_tables
from sync.tables.storage import LocalStorage
from sync.tables.summaries.index import Key, read_index
from tests.helpers.committed import Committer
from tests.helpers.fleet_command import fleet_command
from tests.helpers.fleet_tables import fleet_folder
from tests.sync.tables.test_delta import event, numbers, paths, segment

SAMPLE = Path(__file__).parents[2] / "data" / "manifest-tables"
QUERIES = (("a", 1), ("b", 1))


@pytest.fixture
def fleet(tmp_path: Path) -> FleetFolder:
    fleet = fleet_folder(tmp_path / "fleet")
    shutil.copytree(SAMPLE, fleet.tables, dirs_exist_ok=True)
    return fleet


def check(root: Path) -> None:
    tables = local_tables(root)
    found = tables.snapshot()
    assert numbers(found) == [4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]
    assert {day: (each.rows, each.retired) for day, each in found.days.items()} == {
        "2025-11-20": (1, 3),
        "2025-11-21": (9, 0),
        "2025-11-22": (2, 0),
    }
    assert found.days["2025-11-21"].written == datetime(2025, 11, 26, tzinfo=UTC)
    assert len(paths(found)) == 7
    [refused] = found.read_segments(["reason", "batch"], dataset.field("fate") == "bad")
    assert refused == {"reason": "magic", "batch": None}
    for letter, last in QUERIES:
        query = f"{letter * 8}-0000-4000-8000-00000000000{letter}"
        assert tables.is_committed(query, last)
        assert not tables.is_committed(query, last + 1)
    assert tables.unarchived() == 0
    index = read_index(LocalStorage(root))
    assert Key("sample", "shape", "2025-11-20", "0-3") in index
    assert not [key for key in index if key.day == "2025-11-21" and "-" in key.content], "it is old"


def test_everything_is_converted_and_nothing_is_rewritten(fleet: FleetFolder) -> None:
    inodes = {path.stat().st_ino for path in fleet.tables.glob("data/**/*.parquet")}
    for command in ("report", "compact"):
        done = fleet_command(command, "--dir", str(fleet.root), *words_of(command, fleet))
        assert done.returncode == 1
        assert "run `fieldpost-fleet convert` once" in done.stderr
    done = fleet_command("convert", "--dir", str(fleet.root))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "converted 4 files of 3 days of events, and 3 files of segments\n"
    check(fleet.tables)
    tables = local_tables(fleet.tables).snapshot()
    files = (*tables.event_files, *tables.segment_files)
    assert {(fleet.tables / path).stat().st_ino for path in files} == inodes
    assert not (fleet.tables / "data").exists()
    assert convert(LocalStorage(fleet.tables)) == Conversion()

    later = Committer(fleet.tables, "c").commit([event(16)], [segment("new")])
    assert (later.batch, numbers(later)[-1], len(paths(later))) == (1, 16, 8)
    local_tables(fleet.tables).existing("events").optimize.compact()
    assert numbers(local_tables(fleet.tables).snapshot()) == numbers(later)


def words_of(command: str, fleet: FleetFolder) -> list[str]:
    return ["--out", str(fleet.root / "out")] if command == "report" else []


class Cut(Exception):
    """The crash that a test causes."""


@pytest.mark.parametrize(
    "place",
    [
        "sync.tables.convert._rename_summaries",
        "sync.tables.convert.FleetTables.create_missing",
        "sync.tables.storage.LocalStorage.remove",
    ],
)
@pytest.mark.parametrize("before", [True, False])
def test_an_interrupted_conversion_is_repeated(
    fleet: FleetFolder, monkeypatch: pytest.MonkeyPatch, place: str, *, before: bool
) -> None:
    real: Callable[..., object] = resolve_name(place)

    def cut(*given: object) -> None:
        if not before:
            real(*given)
        raise Cut

    monkeypatch.setattr(place, cut)
    storage = LocalStorage(fleet.tables)
    with pytest.raises(Cut):
        convert(storage)
    with pytest.raises(FleetError, match="older version"):
        FleetTables(storage).snapshot()
    monkeypatch.undo()
    convert(storage)
    check(fleet.tables)


def test_a_conversion_interrupted_between_its_commits_is_repeated(
    fleet: FleetFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    append, storage = FleetTables.append, LocalStorage(fleet.tables)

    def once(*given: object) -> None:
        append(*given)  # type: ignore[arg-type]
        raise Cut

    monkeypatch.setattr(FleetTables, "append", once)
    with pytest.raises(Cut):
        convert(storage)
    monkeypatch.undo()
    convert(storage)
    check(fleet.tables)


def test_old_tables_that_are_in_use_or_damaged_are_left(fleet: FleetFolder) -> None:
    storage = LocalStorage(fleet.tables)
    with storage.lease(), pytest.raises(LeaseError, match="another ingest is at work"):
        convert(storage)
    [merged] = fleet.tables.glob("manifests/gathered/*.gz")
    data = merged.read_bytes()
    merged.write_bytes(data[:-9])
    with pytest.raises(FleetError, match="cannot be read"):
        convert(storage)
    merged.write_bytes(data)
    [lost, *_] = fleet.tables.glob("data/b*/1/*/segments/*.parquet")
    away = fleet.root / "away"
    lost.rename(away)
    with pytest.raises(FileNotFoundError):
        convert(storage)
    os.link(away, lost)
    convert(storage)
    check(fleet.tables)


def test_the_sample_is_what_the_test_says() -> None:
    manifests = [json.loads(path.read_bytes()) for path in SAMPLE.glob("manifests/b*/*.json")]
    assert sorted(each["batch"] for each in manifests) == [0, 1]
    rows = sum(pq.read_metadata(path).num_rows for path in SAMPLE.glob("data/*/*/*/events/*/*"))
    assert rows == 12
