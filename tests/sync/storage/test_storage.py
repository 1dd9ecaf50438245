"""The calls of a storage, on a local disk and in an object store (an S3 server)."""

from __future__ import annotations

import os
import pickle
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from obstore.store import LocalStore

from sync.common.durable_files import link_file
from sync.storage import local
from sync.storage import object_store as module
from sync.storage.local import LocalStorage
from sync.storage.locations import open_storage
from sync.storage.object_store import ObjectStorage
from sync.storage.storage import File, Storage
from tests.helpers.fleet_tables import NOON, put
from tests.helpers.object_store import BUCKET, FAULTS, FaultyProxy

ODD = "a/b [1] 100%20 #ü/x.json"


@pytest.fixture(params=["local", "s3"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    if request.param == "local":
        return open_storage(str(tmp_path))
    request.getfixturevalue("s3")
    return open_storage(f"s3://{BUCKET}/some/prefix/")


def listed(storage: Storage, folder: str = "", suffix: str = "") -> list[tuple[str, int]]:
    return sorted((file.path, file.size) for file in storage.files(folder, suffix))


def test_files_are_created_whole_and_once(storage: Storage) -> None:
    assert storage.create(ODD, b"one") is True
    assert storage.create(ODD, b"one") is False
    with pytest.raises(FileExistsError, match=r"x\.json"):
        storage.create(ODD, b"two")
    assert storage.read(ODD) == b"one"
    assert (storage.exists(ODD), storage.exists("a/none")) == (True, False)
    large = bytes(range(256)) * 50_000
    storage.create("large", large)
    assert storage.read("large") == large
    with pytest.raises(FileExistsError):
        storage.create("large", large[1:])
    with pytest.raises(FileNotFoundError):
        storage.read("none")


def test_a_part_of_a_file_is_read(storage: Storage) -> None:
    storage.create("x", b"abcdef")
    storage.create("empty", b"")
    parts = [storage.read("x", start) for start in (0, 2, -2, -9)]
    assert parts == [b"abcdef", b"cdef", b"ef", b"abcdef"]
    assert (storage.read("empty", -2), storage.read("empty", 2)) == (b"", b"")
    with pytest.raises(FileNotFoundError):
        storage.read("none", -2)


def test_a_file_that_is_moved_away_while_it_is_created_is_an_error_of_its_own(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage.create("x", b"one")
    read, removed = type(storage).read, list[str]()

    def remove_and_read(self: Storage, path: str, start: int = 0) -> bytes:
        if not removed:
            removed.append(path)
            storage.move({"x": "y"})
        return read(self, path, start)

    monkeypatch.setattr(type(storage), "read", remove_and_read)
    with pytest.raises(FileNotFoundError):
        storage.create("x", b"two")


def test_temporary_files_of_dead_processes_are_removed(storage: Storage) -> None:
    storage.create("a/x", b"1")
    if isinstance(storage, LocalStorage):
        put(storage.root / "a" / ".0.part", b"", at=1)
        put(storage.root / "a" / ".1.part", b"")
        assert storage.clean("a") == 1
    assert (storage.clean("a"), storage.clean("none")) == (0, 0)
    storage.make_durable(["a/x"])
    assert listed(storage) == [("a/x", 1)]


def test_folders_that_are_empty_for_a_day_are_removed(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    used, new, *empty = ("a/used/1.seg", "a/new/1.seg", "a/x/old/1.seg", "a/old/1.seg")
    for path in (used, new, *empty):
        storage.create(path, b"1")
    storage.remove([new, *empty])
    for folder in ("a", "a/used", "a/x", "a/x/old", "a/old"):
        os.utime(tmp_path / folder, (1, 1))
    assert storage.clean("a") == 0
    assert folders(tmp_path) == {"a", "a/used", "a/new", "a/x"}, "its entry was removed just now"
    os.utime(tmp_path / "a" / "x", (1, 1))
    storage.clean("a")
    assert folders(tmp_path) == {"a", "a/used", "a/new"}
    assert storage.create(empty[0], b"1")
    assert listed(storage) == [(used, 1), (empty[0], 1)]


def folders(root: Path) -> set[str]:
    return {path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_dir()}


def test_a_file_is_created_although_its_empty_folder_is_removed_just_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage, link, seen = LocalStorage(tmp_path), link_file, list[set[str]]()

    def remove_and_link(target: Path, data: bytes, mode: int) -> None:
        storage.clean("a")
        seen.append(folders(tmp_path))
        link(target, data, mode)

    monkeypatch.setattr(local, "link_file", remove_and_link)
    (tmp_path / "a" / "lane").mkdir(parents=True)
    os.utime(tmp_path / "a" / "lane", (1, 1))
    assert storage.create("a/lane/1.seg", b"1")
    assert seen == [{"a"}, {"a", "a/lane"}]
    assert listed(storage) == [("a/lane/1.seg", 1)]


@pytest.mark.parametrize("above", [False, True])
def test_a_file_is_moved_although_an_empty_folder_is_removed_just_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, above: bool
) -> None:
    """The folder of the target is removed before the link, or the one above it before that."""
    storage, target = LocalStorage(tmp_path), "a/lane/epoch/1.seg" if above else "a/lane/1.seg"
    module, name = (local, "make_folders") if above else (os, "link")
    call = getattr(module, name)
    storage.create("x", b"1")
    (tmp_path / "a" / "lane").mkdir(parents=True)
    os.utime(tmp_path / "a" / "lane", (1, 1))

    def clean_and_call(*arguments: Any) -> None:
        storage.clean("a")
        call(*arguments)

    monkeypatch.setattr(module, name, clean_and_call)
    assert storage.move({"x": target}) == []
    assert listed(storage) == [(target, 1)]


def test_listings_leave_out_hidden_files_and_other_folders(storage: Storage) -> None:
    now = time.time()
    for path in (ODD, "a/.hidden/y.json", "a/_hidden.json", "ab/x.json", "a/z.seg"):
        storage.create(path, path.encode())
    assert listed(storage, "none") == []
    assert listed(storage, "a", ".json") == [(ODD, len(ODD.encode()))]
    assert [path for path, _ in listed(storage)] == [ODD, "a/z.seg", "ab/x.json"]
    names = ["1-3", "10-12", "2", "r1", "r2"]
    for name in reversed(names):
        storage.create(f"lane/{name}", b"")
    assert [file.path for file in storage.files("lane")] == [f"lane/{name}" for name in names]
    [file] = storage.files("a", ".seg")
    assert abs(file.modified - now) < 60
    assert round(file.modified, 3) == file.modified


def test_files_are_read_in_order_without_those_that_are_gone(storage: Storage) -> None:
    count = 3 * module.READERS
    files = [File(f"f/{at}", 1, 0.0) for at in range(count)]
    for file in files[1:]:
        storage.create(file.path, file.path.encode())
    found = [(file.path, content) for file, content in storage.read_each(reversed(files))]
    assert found == [(file.path, file.path.encode()) for file in reversed(files[1:])]


def test_a_move_never_replaces_and_can_be_repeated(storage: Storage) -> None:
    storage.create("a/z.seg", b"12345")
    assert storage.move({"a/z.seg": "archive/a/z.seg"}) == []
    storage.create("a/z.seg", b"12345")
    assert storage.move({"a/z.seg": "archive/a/z.seg"}) == []
    assert (storage.exists("a/z.seg"), storage.read("archive/a/z.seg")) == (False, b"12345")
    storage.create("a/z.seg", b"other")
    storage.create("a/y.seg", b"more")
    moves = {"none": "b", "a/z.seg": "archive/a/z.seg", "a/y.seg": "archive/c/y.seg"}
    assert storage.move(moves) == ["a/z.seg"]
    assert (storage.read("a/z.seg"), storage.read("archive/a/z.seg")) == (b"other", b"12345")
    assert (storage.exists("a/y.seg"), storage.read("archive/c/y.seg")) == (False, b"more")
    storage.create("a/y.seg", b"alike")
    storage.create("a/w.seg", b"alike")
    assert storage.move({"a/y.seg": "archive/w.seg", "a/w.seg": "archive/w.seg"}) == []
    assert storage.move({}) == []


def test_files_are_replaced(storage: Storage) -> None:
    for data in (b"one", b"two", bytes(range(256)) * 50_000):
        storage.replace(ODD, data)
        assert storage.read(ODD) == data


def test_only_expected_content_is_replaced(storage: Storage) -> None:
    storage.replace(ODD, b"one", [])
    storage.replace(ODD, b"two", [b"none", b"one"])
    storage.replace(ODD, b"two", [])
    with pytest.raises(FileExistsError, match=r"x\.json has other content"):
        storage.replace(ODD, b"three", [b"one"])
    assert storage.read(ODD) == b"two"


def test_files_and_folders_are_removed(storage: Storage) -> None:
    many = [f"a/b/{at}" for at in range(1, 1_003)]
    for path in (ODD, "a/.hidden", "a/z.seg", "ab", many[-1]):
        storage.create(path, b"")
    storage.remove(["a/z.seg", "none", *many])
    assert listed(storage) == [(ODD, 0), ("ab", 0)]
    for _ in range(2):
        storage.remove_folder("a")
        assert listed(storage) == [("ab", 0)]
    with pytest.raises(FileNotFoundError):
        storage.read("a/.hidden")


def test_a_store_that_fails_for_missing_files_removes_the_others(s3: str, tmp_path: Path) -> None:
    storage = ObjectStorage(f"s3://{BUCKET}")
    storage._store = LocalStore(tmp_path)  # it fails for a missing file, as Azure and Google do
    for path in ("a", "b"):
        storage.create(path, b"")
    storage.remove(["a", "none", "b"])
    assert listed(storage) == []


def test_a_storage_can_be_readable_by_all_users(tmp_path: Path) -> None:
    (tmp_path / "usual").mkdir()
    usual = (tmp_path / "usual").stat().st_mode & 0o777
    for public, file, folder in ((False, 0o600, 0o700), (True, 0o644, usual)):
        storage = open_storage(f"{tmp_path}/{public}", public=public)
        storage.replace("a/b/x", b"1")
        storage.create("a/y", b"1")
        modes = {
            path: Path(storage.uri(path)).stat().st_mode & 0o777
            for path in ("a/b/x", "a/y", "", "a", "a/b")
        }
        assert [*modes.values()] == [file, file, folder, folder, folder]


def test_workers_open_a_storage_by_its_uri(storage: Storage) -> None:
    storage.create("x", b"1")
    other: Storage = pickle.loads(pickle.dumps(storage))  # noqa: S301
    assert (other.uri("x"), other.read("x")) == (storage.uri("x"), b"1")


def test_an_object_store_has_no_lease(s3: str) -> None:
    storage = ObjectStorage(f"s3://{BUCKET}")
    with storage.lease(), storage.lease():
        pass


def test_the_times_of_local_files_are_in_milliseconds(tmp_path: Path) -> None:
    put(tmp_path / "z.seg", b"12345", NOON / 1000 + 0.0015)
    [file] = LocalStorage(tmp_path).files()
    assert file.modified == NOON / 1000 + 0.001


@pytest.mark.parametrize("fault", FAULTS)
def test_a_conditional_put_whose_answer_is_lost_has_succeeded(
    proxy: FaultyProxy, fault: str
) -> None:
    storage = ObjectStorage(f"s3://{BUCKET}")
    proxy.share, proxy.kinds, proxy.only, proxy.count = 1.0, (fault,), "PUT", 1
    storage.create("x", b"one")
    assert proxy.faults == {fault: 1}
    proxy.count = 1
    with pytest.raises(FileExistsError):
        storage.create("x", b"two")
    proxy.count = 1
    storage.replace("x", b"two", [b"one"])
    assert (storage.read("x"), proxy.faults) == (b"two", {fault: 3})
    proxy.count = 1
    storage.replace("y", b"one", [])
    assert (storage.read("y"), proxy.faults) == (b"one", {fault: 4})


@pytest.mark.parametrize("fault", FAULTS)
def test_files_are_removed_in_spite_of_a_fault(proxy: FaultyProxy, fault: str) -> None:
    storage = ObjectStorage(f"s3://{BUCKET}")
    for path in ("a/x", "a/y"):
        storage.create(path, b"")
    proxy.share, proxy.kinds, proxy.only, proxy.count = 1.0, (fault,), "POST", 1
    storage.remove(["a/x", "a/y"])
    assert (listed(storage), proxy.faults) == ([], {fault: 1})


def test_a_store_that_stays_silent_is_asked_no_longer_than_the_patience(
    proxy: FaultyProxy,
) -> None:
    storage = ObjectStorage(f"s3://{BUCKET}/fleet", timedelta(seconds=0.2))
    proxy.share, proxy.kinds = 1.0, ("silence",)
    with pytest.raises(OSError, match=rf"^s3://{BUCKET}/fleet/x: "):
        storage.create("x", b"")
    with pytest.raises(OSError, match=rf"^s3://{BUCKET}/fleet/x: "):
        storage.read("x")
    assert proxy.faults.total() == 2


def test_a_store_that_fails_at_random_loses_and_replaces_nothing(proxy: FaultyProxy) -> None:
    storage = ObjectStorage(f"s3://{BUCKET}")
    proxy.share, proxy.kinds = 0.2, ("500", "503", "lost", "503 after")
    for at in range(20):
        storage.create(f"a/{at}", b"%d" % at)
        if at % 2:
            assert storage.move({f"a/{at}": f"b/{at}"}) == []
    assert [path for path, _ in listed(storage, "a")] == sorted(f"a/{at}" for at in range(0, 20, 2))
    files = [File(f"b/{at}", 1, 0.0) for at in range(20)]
    found = {file.path: content for file, content in storage.read_each(files)}
    assert found == {f"b/{at}": b"%d" % at for at in range(1, 20, 2)}
    assert proxy.faults


def test_a_store_that_stays_away_is_an_error_of_one_line(
    proxy: FaultyProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "RETRIES", 1)
    storage = ObjectStorage(f"s3://{BUCKET}/fleet")
    proxy.share, proxy.kinds = 1.0, ("503",)
    for call in (
        storage.read,
        storage.exists,
        storage.remove_folder,
        lambda path: storage.remove([path]),
        lambda path: storage.replace(path, b""),
        lambda path: storage.replace(path, b"", []),
        lambda path: [*storage.files(path)],
    ):
        with pytest.raises(OSError, match=rf"^s3://{BUCKET}/fleet/x: [^\n]*503"):
            call("x")
    with pytest.raises(OSError, match=rf"^s3://{BUCKET}/fleet/x: "):
        storage.create("x", b"")
