"""Tests of the interface `sync.tables.storage.Storage`, for any empty storage."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sync.tables.storage import Storage

NOON_S = 1_763_726_400.0


def keeps_promises(storage: Storage, put: Callable[[str, bytes, float | None], object]) -> None:
    """Test the storage; `put` writes a file by other means, with a time of modification."""
    assert list(storage.files("none")) == []
    storage.create("a/b [1] 100%20 #ü/x.json", b"one")
    with pytest.raises(FileExistsError):
        storage.create("a/b [1] 100%20 #ü/x.json", b"two")
    assert storage.read("a/b [1] 100%20 #ü/x.json") == b"one"
    put("a/.hidden/y.json", b"", None)
    put("a/_hidden.json", b"", None)
    put("a/z.seg", b"12345", NOON_S)
    [file] = storage.files("a", ".json")
    assert (file.path, file.size) == ("a/b [1] 100%20 #ü/x.json", 3)
    [file] = storage.files("a", ".seg")
    assert (file.path, file.size, file.modified) == ("a/z.seg", 5, NOON_S)
    assert storage.relative(storage.uri(file.path)) == "a/z.seg"

    assert storage.move({"a/z.seg": "archive/a/z.seg"}) == []
    put("a/z.seg", b"12345", None)
    assert storage.move({"a/z.seg": "archive/a/z.seg"}) == []
    assert (storage.exists("a/z.seg"), storage.read("archive/a/z.seg")) == (False, b"12345")
    put("a/z.seg", b"other", None)
    put("a/y.seg", b"more", None)
    moves = {"none": "b", "a/z.seg": "archive/a/z.seg", "a/y.seg": "archive/c/y.seg"}
    assert storage.move(moves) == ["a/z.seg"]
    assert (storage.read("a/z.seg"), storage.read("archive/a/z.seg")) == (b"other", b"12345")
    assert (storage.exists("a/y.seg"), storage.read("archive/c/y.seg")) == (False, b"more")
    put("a/y.seg", b"alike", None)
    put("a/w.seg", b"alike", None)
    assert storage.move({"a/y.seg": "archive/w.seg", "a/w.seg": "archive/w.seg"}) == []
    assert storage.move({}) == []
    for call in (storage.read, lambda path: storage.make_durable([path])):
        with pytest.raises(FileNotFoundError):
            call("none")
    storage.make_durable(["a/z.seg"])
    for path in ("a/z.seg", "a", "none"):
        storage.remove(path)
        assert not storage.exists(path)
