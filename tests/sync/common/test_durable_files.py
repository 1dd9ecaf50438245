"""Files and folders appear completely or not at all."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

import pytest

from sync.common import durable_files
from sync.common.durable_files import PRIVATE_FILE, PUBLIC_FILE, FileContent, FolderBusyError

OLD = {"a": FileContent(b"old", PRIVATE_FILE)}
NEW = {"a": FileContent(b"new", PRIVATE_FILE), "b": FileContent(b"beside", PUBLIC_FILE)}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "devices" / "pump1"


def put(folder: Path, contents: dict[str, FileContent]) -> None:
    with durable_files.staged_folder(folder, contents) as put:
        put()


def test_file_is_replaced_with_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "file"
    durable_files.replace_file(path, b"one", PUBLIC_FILE)
    durable_files.replace_file(path, b"two", PRIVATE_FILE)
    assert path.read_bytes() == b"two"
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_mode_does_not_depend_on_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        durable_files.replace_file(tmp_path / "file", b"one", PUBLIC_FILE)
    finally:
        os.umask(before)
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o644


def test_full_disk_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    durable_files.replace_file(path, b"one", PUBLIC_FILE)
    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="No space"):
        durable_files.replace_file(path, b"two", PUBLIC_FILE)
    assert path.read_bytes() == b"one"
    assert list(tmp_path.iterdir()) == [path]


def fail(*_args: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_new_file_replaces_no_other(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"here")
    with pytest.raises(FileExistsError):
        durable_files.write_new(tmp_path / "file", b"x", PUBLIC_FILE)
    assert (tmp_path / "file").read_bytes() == b"here"


def test_folder_appears_when_it_is_moved(folder: Path) -> None:
    with durable_files.staged_folder(folder, NEW) as put:
        assert not folder.exists()
        put()
        found = {path.name: path.read_bytes() for path in folder.iterdir()}
        assert found == {"a": b"new", "b": b"beside"}
    assert list(folder.parent.iterdir()) == [folder]


def test_folder_that_is_not_moved_leaves_nothing(folder: Path) -> None:
    with durable_files.staged_folder(folder, NEW):
        pass
    assert list(folder.parent.iterdir()) == []


def test_folder_replaces_another_completely(folder: Path) -> None:
    put(folder, NEW)
    put(folder, OLD)
    assert [path.name for path in folder.iterdir()] == ["a"]
    assert list(folder.parent.iterdir()) == [folder]


@pytest.mark.parametrize("exists", [True, False])
def test_failed_move_keeps_the_old_folder(
    folder: Path, monkeypatch: pytest.MonkeyPatch, exists: bool
) -> None:
    if exists:
        put(folder, OLD)
    rename = Path.rename

    def fail_once(self: Path, target: Path) -> Path:
        if target == folder:
            monkeypatch.setattr(Path, "rename", rename)
            fail()
        return rename(self, target)

    with durable_files.staged_folder(folder, NEW) as put_new:
        monkeypatch.setattr(Path, "rename", fail_once)
        with pytest.raises(OSError, match="No space"):
            put_new()
    assert list(folder.parent.iterdir()) == ([folder] if exists else [])
    assert not exists or (folder / "a").read_bytes() == b"old"


@pytest.mark.parametrize("kind", ["file", "link", "broken link"])
def test_file_or_link_in_a_folders_place_is_replaced(
    tmp_path: Path, folder: Path, kind: str
) -> None:
    elsewhere = tmp_path / "stick"

    def block() -> None:
        if kind == "file":
            folder.write_bytes(b"an obstacle")
        else:
            folder.symlink_to(elsewhere)

    folder.parent.mkdir()
    if kind == "link":
        elsewhere.mkdir()
        (elsewhere / "a").write_bytes(b"other")
    block()
    put(folder, NEW)
    assert not folder.is_symlink()
    assert (folder / "a").read_bytes() == b"new"
    durable_files.remove_folder(folder)
    block()
    durable_files.remove_folder(folder)
    assert list(folder.parent.iterdir()) == []
    assert elsewhere.exists() == (kind == "link")


def test_leftovers_of_a_power_cut_are_deleted(folder: Path) -> None:
    put(folder, OLD)
    for name in (".pump1.0123abcd", ".pump1.x.0123abcd", ".pump10.0123abcd"):
        (folder.parent / name).mkdir()
    put(folder, NEW)
    names = sorted(path.name for path in folder.parent.iterdir())
    assert names == [".pump1.x.0123abcd", ".pump10.0123abcd", "pump1"]


def test_lock_admits_one_command_at_a_time(folder: Path) -> None:
    inside, waiting = threading.Event(), threading.Event()

    def write_later() -> None:
        inside.wait(5)
        waiting.set()
        put(folder, NEW)

    thread = threading.Thread(target=write_later)
    thread.start()
    with durable_files.staged_folder(folder, OLD) as put_old:
        inside.set()
        assert waiting.wait(5)
        put_old()
        assert (folder / "a").read_bytes() == b"old"
    thread.join(5)
    assert (folder / "a").read_bytes() == b"new"


def test_busy_folder_is_reported(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(durable_files, "LOCK_WAIT", 0.05)
    with (
        durable_files.staged_folder(folder, OLD),
        pytest.raises(FolderBusyError, match=r"another command has been busy in .* for 0\.05 s"),
    ):
        put(folder, NEW)


def test_removing_a_folder_is_idempotent(folder: Path) -> None:
    durable_files.remove_folder(folder)
    put(folder, NEW)
    durable_files.remove_folder(folder)
    assert list(folder.parent.iterdir()) == []
