from __future__ import annotations

import filecmp
import hashlib
import os
import threading
from collections.abc import Mapping
from pathlib import Path

import pytest

from sync.common import durable_files
from sync.common.fleet_folder import FleetFolder, archive_path, segment_path
from sync.ingest.archive import IngestedFile, archive_files, waiting_files
from sync.storage import local
from sync.storage.local import LocalStorage
from tests.helpers.fleet_tables import (
    Lane,
    fleet_folder,
    land,
    put,
    some_events,
    waiting_segments,
)

NAME = "gw.example/E/logs/1-4.seg"


@pytest.fixture
def fleet(tmp_path: Path) -> FleetFolder:
    return fleet_folder(tmp_path / "fleet")


def ingested(path: str, outcome: str, data: bytes) -> IngestedFile:
    return IngestedFile(path, outcome, hashlib.sha256(data).hexdigest())


def archive(fleet: FleetFolder, *files: IngestedFile) -> None:
    archive_files(LocalStorage(fleet.root), files)


@pytest.mark.parametrize("outcome", ["accepted", "duplicate"])
def test_accepted_files_and_duplicates_are_archived(fleet: FleetFolder, outcome: str) -> None:
    put(fleet.landing / NAME, b"one")
    file = ingested(f"landing/{NAME}", outcome, b"one")
    archive(fleet, file)
    archive(fleet, file)
    assert (fleet.archive / NAME).read_bytes() == b"one"
    assert not (fleet.landing / NAME).exists()
    assert list(fleet.quarantine.rglob("*.seg")) == []


def test_the_archive_lists_the_newest_segment_of_a_lane_first(fleet: FleetFolder) -> None:
    lane = Lane()
    names = []
    for count in (9, 90, 900, 1):
        identity, data = lane.seal(some_events(count))
        path = land(fleet, (identity, data)).relative_to(fleet.root).as_posix()
        names.append(archive_path(segment_path(identity)).as_posix())
        archive(fleet, ingested(path, "accepted", data))
    found = [file.path for file in LocalStorage(fleet.root).files("archive")]
    assert found == [f"archive/{name}" for name in reversed(names)]


@pytest.mark.parametrize("outcome", ["fork", "bad"])
def test_refused_files_are_quarantined_under_their_digest(fleet: FleetFolder, outcome: str) -> None:
    for data in (b"one", b"two"):
        put(fleet.landing / NAME, data)
        archive(fleet, ingested(f"landing/{NAME}", outcome, data))
    kept = {path.read_bytes(): path.name for path in fleet.quarantine.rglob("*.seg")}
    assert set(kept) == {b"one", b"two"}
    assert kept[b"one"] == f"1-4.{hashlib.sha256(b'one').hexdigest()[:16]}.seg"
    assert not (fleet.archive / NAME).exists()


def test_files_set_aside_keep_the_digest_in_their_name(fleet: FleetFolder) -> None:
    digest = hashlib.sha256(b"other").hexdigest()[:16]
    aside = f"aside/gw.example/E/logs/1-4.{digest}.seg"
    put(fleet.root / aside, b"other")
    archive(fleet, ingested(aside, "fork", b"other"))
    [kept] = fleet.quarantine.rglob("*.seg")
    assert kept.name == f"1-4.{digest}.seg"
    assert not waiting_segments(fleet)


def test_a_move_interrupted_between_link_and_unlink_is_completed(fleet: FleetFolder) -> None:
    put(fleet.landing / NAME, b"one")
    (fleet.archive / NAME).parent.mkdir(parents=True)
    (fleet.archive / NAME).hardlink_to(fleet.landing / NAME)
    archive(fleet, ingested(f"landing/{NAME}", "accepted", b"one"))
    assert not waiting_segments(fleet)
    assert (fleet.archive / NAME).read_bytes() == b"one"


@pytest.mark.parametrize("before", [True, False])
def test_files_that_the_receiver_removes_concurrently_are_skipped(
    fleet: FleetFolder, monkeypatch: pytest.MonkeyPatch, before: bool
) -> None:
    """The receiver removes its link if it sees the segment in the archive."""
    put(fleet.archive / NAME, b"one")
    path = put(fleet.landing / NAME, b"one")
    link, compare = os.link, filecmp.cmp

    def remove_and_link(source: Path, target: Path) -> None:
        path.unlink()
        link(source, target)

    def compare_and_remove(one: Path, other: Path, shallow: bool) -> bool:
        same = compare(one, other, shallow)
        path.unlink()
        return same

    if before:
        monkeypatch.setattr(os, "link", remove_and_link)
    else:
        monkeypatch.setattr(filecmp, "cmp", compare_and_remove)
    archive(fleet, ingested(f"landing/{NAME}", "accepted", b"one"))
    assert not waiting_segments(fleet)
    assert (fleet.archive / NAME).read_bytes() == b"one"
    assert list(fleet.quarantine.rglob("*.seg")) == []


def test_a_file_that_the_receiver_links_again_is_not_moved(
    fleet: FleetFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new link is not the ingested file, and the receiver will remove it."""
    put(fleet.archive / NAME, b"one")
    fsync_folder = durable_files.fsync_folder

    def link_again(folder: Path) -> None:
        put(fleet.landing / NAME, b"other")
        fsync_folder(folder)

    monkeypatch.setattr(local, "fsync_folder", link_again)
    for outcome in ("duplicate", "bad"):
        (fleet.landing / NAME).unlink(missing_ok=True)
        archive(fleet, ingested(f"landing/{NAME}", outcome, b"one"))
        assert list(fleet.quarantine.rglob("*.seg")) == []
        assert (fleet.landing / NAME).read_bytes() == b"other"


def test_a_folder_that_is_removed_concurrently_is_skipped(
    fleet: FleetFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(fleet.landing / NAME, b"one")
    unlink = Path.unlink

    def unlink_with_folder(path: Path, missing_ok: bool = False) -> None:
        unlink(path, missing_ok)
        path.parent.rmdir()

    monkeypatch.setattr(Path, "unlink", unlink_with_folder)
    archive(fleet, ingested(f"landing/{NAME}", "accepted", b"one"))
    assert (fleet.archive / NAME).read_bytes() == b"one"


def test_a_target_folder_that_cannot_be_created_is_an_error(
    fleet: FleetFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(fleet.landing / NAME, b"one")
    monkeypatch.setattr(os, "mkdir", lambda *_, **__: None)
    with pytest.raises(FileNotFoundError):
        archive(fleet, ingested(f"landing/{NAME}", "accepted", b"one"))


def test_the_archive_is_never_overwritten(fleet: FleetFolder) -> None:
    put(fleet.archive / NAME, b"first")
    put(fleet.landing / NAME, b"other")
    archive(fleet, ingested(f"landing/{NAME}", "duplicate", b"other"))
    assert (fleet.archive / NAME).read_bytes() == b"first"
    assert [path.read_bytes() for path in fleet.quarantine.rglob("*.seg")] == [b"other"]


def test_the_files_of_a_lane_are_moved_together_and_lanes_concurrently() -> None:
    together = threading.Barrier(2, timeout=60)
    moved: list[list[str]] = []

    class SlowStorage(LocalStorage):
        def move(self, moves: Mapping[str, str]) -> list[str]:
            together.wait()
            moved.append(list(moves))
            return []

    names = [
        f"landing/gw.example/E/{lane}/{at}.seg" for lane in ("logs", "system") for at in (1, 2)
    ]
    archive_files(SlowStorage(Path("/")), [ingested(name, "accepted", b"") for name in names])
    assert sorted(moved) == [names[:2], names[2:]]


def test_a_file_that_cannot_be_moved_does_not_stop_the_others(fleet: FleetFolder) -> None:
    bad = ingested("landing/gw.example/E/logs/5-6.seg", "bad", b"two")
    put(fleet.quarantine / f"gw.example/E/logs/5-6.{bad.sha256[:16]}.seg", b"something else")
    put(fleet.landing / "gw.example/E/logs/5-6.seg", b"two")
    put(fleet.landing / NAME, b"one")
    with pytest.raises(OSError, match=r"cannot move .*5-6\.seg"):
        archive(fleet, bad, ingested(f"landing/{NAME}", "accepted", b"one"))
    assert (fleet.archive / NAME).read_bytes() == b"one"
    assert waiting_segments(fleet) == {"landing/gw.example/E/logs/5-6.seg"}


def test_a_lane_is_fsynced_before_its_segments_leave_the_landing(
    fleet: FleetFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There are as many fsyncs for many files as for one."""
    calls: list[str] = []
    unlink = Path.unlink

    def record_fsync(folder: Path) -> None:
        calls.append(f"fsync {folder.relative_to(fleet.root).parts[0]}")

    def record_unlink(path: Path, missing_ok: bool = False) -> None:
        calls.append(f"unlink {path.name}")
        unlink(path, missing_ok)

    names = [f"gw.example/E/logs/{at}-{at}.seg" for at in (1, 2)]
    for name in names:
        put(fleet.landing / name, b"one")
    (fleet.archive / NAME).parent.mkdir(parents=True)
    monkeypatch.setattr(local, "fsync_folder", record_fsync)
    monkeypatch.setattr(Path, "unlink", record_unlink)
    archive(fleet, *(ingested(f"landing/{name}", "accepted", b"one") for name in names))
    assert calls[0] == "fsync archive"
    assert sorted(calls[1:3]) == ["unlink 1-1.seg", "unlink 2-2.seg"]
    assert calls[3:] == ["fsync landing"]


def test_waiting_files_are_segments_that_are_not_hidden(fleet: FleetFolder) -> None:
    put(fleet.landing / NAME, b"one")
    put(fleet.aside / "gw.example/E/logs/1-4.ab.seg", b"")
    put(fleet.landing / ".hidden/1-4.seg", b"one")
    put(fleet.landing / "gw.example/_1-4.seg", b"one")
    put(fleet.landing / "gw.example/1-4.part", b"one")
    found = waiting_files(LocalStorage(fleet.root))
    sizes = {path: file.size for path, file in found.items()}
    assert sizes == {f"landing/{NAME}": 3, "aside/gw.example/E/logs/1-4.ab.seg": 0}
