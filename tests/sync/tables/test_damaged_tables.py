"""Tables with a lost, damaged or outdated part are refused, and nothing is hidden."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from sync.common.errors import FleetError
from sync.tables.delta import EVENTS, SEGMENTS, FleetTables, local_tables
from tests.helpers.committed import Committer, SimulatedCrash, raise_crash
from tests.helpers.fleet_tables import put
from tests.sync.tables.test_delta import event, numbers, paths, segment


@pytest.fixture
def committer(tmp_path: Path) -> Committer:
    """Make the tables of a fleet folder with three batches."""
    root = tmp_path / "fleet" / "tables"
    root.mkdir(parents=True)
    committer = Committer(root)
    for seq in range(1, 4):
        committer.commit([event(seq)], [segment(str(seq))])
    put(root.parent / "archive" / "gw" / "1.seg", b"a")
    put(root.parent / "archive" / "gw" / "2.seg", b"b")
    return committer


def check_refused(committer: Committer, text: str) -> None:
    for call in (committer.tables.snapshot, committer.tables.recover):
        with pytest.raises(FleetError, match=text) as caught:
            call()
        assert "docs/how-to/maintain-the-tables.md" in str(caught.value)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", [EVENTS, SEGMENTS])
@pytest.mark.parametrize("part", ["_delta_log", "."])
def test_a_lost_table_is_not_created_anew(committer: Committer, name: str, part: str) -> None:
    shutil.rmtree(committer.root / name / part)
    check_refused(committer, r"do not belong together \(batch \d of events, \d of segments\)")
    assert not (committer.root / name / "_delta_log").exists()


def test_lost_tables_are_noticed_if_the_archive_has_segments(committer: Committer) -> None:
    shutil.rmtree(committer.root / EVENTS / "_delta_log")
    shutil.rmtree(committer.root / SEGMENTS / "_delta_log")
    check_refused(committer, "are lost: the archive has segments")
    archive = committer.root.parent / "archive"
    shutil.copytree(archive / "gw", archive.parent / "landing" / "gw")
    (archive.parent / "landing" / "gw" / "1.seg").unlink()
    check_refused(committer, "are lost: the archive has segments")
    put(archive.parent / "landing" / "gw" / "1.seg", b"a")
    committer.tables.recover()
    snapshot = committer.tables.snapshot()
    assert (snapshot.batch, snapshot.days) == (0, {})


@pytest.mark.parametrize("name", [EVENTS, SEGMENTS])
@pytest.mark.parametrize("version", [0, 2, -1])
def test_an_empty_commit_is_not_skipped(committer: Committer, name: str, version: int) -> None:
    commit = sorted((committer.root / name / "_delta_log").glob("*.json"))[version]
    commit.write_bytes(b"")
    check_refused(committer, rf"{commit} is empty|do not belong together")


@pytest.mark.parametrize("name", [EVENTS, SEGMENTS])
def test_one_table_of_an_older_backup_is_noticed(
    committer: Committer, tmp_path: Path, name: str
) -> None:
    backup = tmp_path / "backup"
    shutil.copytree(committer.root, backup)
    for seq in range(4, 6):
        committer.commit([event(seq)], [segment(str(seq))])
    shutil.rmtree(committer.root / name)
    shutil.copytree(backup / name, committer.root / name)
    check_refused(committer, r"do not belong together \(batch [35] of events, [35] of segments\)")

    for each in (EVENTS, SEGMENTS):
        shutil.rmtree(committer.root / each)
        shutil.copytree(backup / each, committer.root / each)
    snapshot = committer.commit([event(4)], [segment("4")])
    assert (numbers(snapshot), paths(snapshot)) == ([1, 2, 3, 4], ["1", "2", "3", "4"])


def test_a_batch_is_not_completed_without_its_file(committer: Committer) -> None:
    snapshot, batch = committer.begin([event(9)], [segment("9")])
    with pytest.raises(SimulatedCrash):
        committer.tables.commit(snapshot, batch, raise_crash)
    (committer.root / SEGMENTS / batch.segments.path).unlink()
    with pytest.raises(FleetError, match="of an unfinished batch is gone; see docs"):
        committer.tables.recover()
    assert numbers(committer.tables.snapshot()) == [1, 2, 3]


def shorten(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:200])


def blank(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[4:-200] = bytes(len(data) - 204)
    path.write_bytes(data)


@pytest.mark.parametrize(
    "damage", [shorten, blank, Path.unlink, lambda path: path.write_bytes(b"")]
)
def test_a_damaged_file_of_segments_is_named(
    committer: Committer, damage: Callable[[Path], object]
) -> None:
    path = committer.root / committer.tables.snapshot().segment_files[1]
    damage(path)
    with pytest.raises(FleetError, match=rf"{path} is missing or damaged \(") as caught:
        committer.tables.snapshot().read_segments(["path", "fate"])
    assert "\n" not in str(caught.value)


def test_a_reader_is_not_refused_while_batches_are_committed(
    committer: Committer, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, open_table = local_tables(committer.root), FleetTables.open
    committers = [committer] * 3

    def open_and_commit(tables: FleetTables, name: str) -> object:
        table = open_table(tables, name)
        if tables is reader and committers:
            other = committers.pop()
            for _ in range(2):
                other.commit([event(9)], [segment("9")])
        return table

    monkeypatch.setattr(FleetTables, "open", open_and_commit)
    assert reader.snapshot().batch == 3
    assert reader.snapshot().batch == 9
