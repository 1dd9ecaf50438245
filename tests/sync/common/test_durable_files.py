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
def place(tmp_path: Path) -> Path:
    return tmp_path / "devices" / "pump1"


def put(place: Path, contents: dict[str, FileContent]) -> None:
    with durable_files.staged_folder(place, contents) as put:
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
    monkeypatch.setattr(os, "fsync", fails)
    with pytest.raises(OSError, match="No space"):
        durable_files.replace_file(path, b"two", PUBLIC_FILE)
    assert path.read_bytes() == b"one"
    assert list(tmp_path.iterdir()) == [path]


def fails(*_args: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_new_file_replaces_none(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"here")
    with pytest.raises(FileExistsError):
        durable_files.write_new(tmp_path / "file", b"x", PUBLIC_FILE)
    assert (tmp_path / "file").read_bytes() == b"here"


def test_folder_appears_when_it_is_moved(place: Path) -> None:
    with durable_files.staged_folder(place, NEW) as put:
        assert not place.exists()
        put()
        found = {path.name: path.read_bytes() for path in place.iterdir()}
        assert found == {"a": b"new", "b": b"beside"}
    assert list(place.parent.iterdir()) == [place]


def test_folder_that_is_not_moved_leaves_nothing(place: Path) -> None:
    with durable_files.staged_folder(place, NEW):
        pass
    assert list(place.parent.iterdir()) == []


def test_folder_replaces_another_completely(place: Path) -> None:
    put(place, NEW)
    put(place, OLD)
    assert [path.name for path in place.iterdir()] == ["a"]
    assert list(place.parent.iterdir()) == [place]


@pytest.mark.parametrize("there", [True, False])
def test_failed_move_keeps_the_old_folder(
    place: Path, monkeypatch: pytest.MonkeyPatch, there: bool
) -> None:
    if there:
        put(place, OLD)
    rename = Path.rename

    def once(self: Path, target: Path) -> Path:
        if target == place:
            monkeypatch.setattr(Path, "rename", rename)
            fails()
        return rename(self, target)

    with durable_files.staged_folder(place, NEW) as put_new:
        monkeypatch.setattr(Path, "rename", once)
        with pytest.raises(OSError, match="No space"):
            put_new()
    assert list(place.parent.iterdir()) == ([place] if there else [])
    assert not there or (place / "a").read_bytes() == b"old"


@pytest.mark.parametrize("kind", ["file", "link", "broken link"])
def test_file_or_link_in_a_folders_place_is_replaced(
    tmp_path: Path, place: Path, kind: str
) -> None:
    elsewhere = tmp_path / "stick"

    def bar() -> None:
        if kind == "file":
            place.write_bytes(b"in the way")
        else:
            place.symlink_to(elsewhere)

    place.parent.mkdir()
    if kind == "link":
        elsewhere.mkdir()
        (elsewhere / "a").write_bytes(b"another's")
    bar()
    put(place, NEW)
    assert not place.is_symlink()
    assert (place / "a").read_bytes() == b"new"
    durable_files.remove_folder(place)
    bar()
    durable_files.remove_folder(place)
    assert list(place.parent.iterdir()) == []
    assert elsewhere.exists() == (kind == "link")


def test_leftovers_of_a_power_cut_are_deleted(place: Path) -> None:
    put(place, OLD)
    for name in (".pump1.0123abcd", ".pump1.x.0123abcd", ".pump10.0123abcd"):
        (place.parent / name).mkdir()
    put(place, NEW)
    left = sorted(path.name for path in place.parent.iterdir())
    assert left == [".pump1.x.0123abcd", ".pump10.0123abcd", "pump1"]


def test_lock_admits_one_command_at_a_time(place: Path) -> None:
    inside, waits = threading.Event(), threading.Event()

    def other() -> None:
        inside.wait(5)
        waits.set()
        put(place, NEW)

    thread = threading.Thread(target=other)
    thread.start()
    with durable_files.staged_folder(place, OLD) as put_old:
        inside.set()
        assert waits.wait(5)
        put_old()
        assert (place / "a").read_bytes() == b"old"
    thread.join(5)
    assert (place / "a").read_bytes() == b"new"


def test_busy_folder_is_reported(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(durable_files, "LOCK_WAIT", 0.05)
    with (
        durable_files.staged_folder(place, OLD),
        pytest.raises(FolderBusyError, match=r"another command has been busy in .* for 0\.05 s"),
    ):
        put(place, NEW)


def test_removing_a_folder_is_idempotent(place: Path) -> None:
    durable_files.remove_folder(place)
    put(place, NEW)
    durable_files.remove_folder(place)
    assert list(place.parent.iterdir()) == []
