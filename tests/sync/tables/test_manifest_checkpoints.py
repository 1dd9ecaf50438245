"""Checkpoints of manifests: content, damaged ones, and removal of combined manifests."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sync.common.errors import FleetError, LeaseError
from sync.tables.checkpoint import GATHERED, BatchKeys
from sync.tables.manifest import LOOKS, UPKEEP, Commits, Counts, Manifest, live_files
from sync.tables.storage import LocalStorage, Storage
from tests.helpers.memory_storage import Disk, MemoryStorage
from tests.helpers.storage_promises import keeps_promises

AT = "2025-11-21T12:00:00+00:00"
DAY = "2025-11-21"


@pytest.fixture(params=["local", "memory"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    return LocalStorage(tmp_path) if request.param == "local" else MemoryStorage(Disk())


def put(storage: Storage, path: str, data: bytes = b"", at: float | None = None) -> None:
    """Write a file with a certain time of modification."""
    import os

    if isinstance(storage, MemoryStorage):
        storage.disk.files[path] = (data, at or storage.disk.clock)
        return
    assert isinstance(storage, LocalStorage)
    target = storage.root / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(data)
    if at is not None:
        os.utime(target, (at, at))


def commit(storage: Storage, query: str, number: int, replaces: tuple[str, ...] = ()) -> Manifest:
    """Commit a maintenance step, or a batch that is marked as archived."""
    files = [f"data/{query}/{number}/t/{name}.parquet" for name in ("segments", "events")]
    for file in files:
        put(storage, file)
    counts = Counts(1, 2, 3, 4) if query != UPKEEP else Counts()
    made = Manifest(
        *(query, number, "t", AT, (files[0],), {DAY: (files[1],)}, counts),
        kind="compacted" if query == UPKEEP else "batch",
        replaces=replaces,
        retired={DAY: 1} if replaces else {},
    )
    commits = Commits(storage)
    commits.commit(made)
    if query != UPKEEP:
        commits.mark_archived(made)
    return made


def names(storage: Storage) -> list[str]:
    return sorted(file.path.removeprefix("manifests/") for file in storage.files("manifests"))


def test_the_storage_in_memory_keeps_the_promises_of_every_storage(storage: Storage) -> None:
    keeps_promises(storage, lambda path, data, at: put(storage, path, data, at))


def test_combined_manifests_are_read_as_before_and_their_files_are_removed_later(
    storage: Storage,
) -> None:
    with storage.lease():
        made = [commit(storage, "a", number) for number in range(3)]
        made.append(commit(storage, UPKEEP, 0, (*made[0].segments, *made[1].events[DAY])))
        commits = Commits(storage)
        files = commits.segments()
        assert commits.checkpoint(5) == 0
        assert commits.checkpoint(4) == 4
        assert commits.checkpoint() == 0
        assert list(commits.manifests()) == made
        assert {*commits.segments()} == {*files} == {*live_files(made).segments}

        assert commits.remove_checkpointed(before=0) == 0
        assert commits.remove_checkpointed(before=1e12, most=2) == 2
        assert commits.remove_checkpointed(before=1e12) == 5
        assert names(storage) == ["gathered/0.json", "gathered/0000000001.gz"]
        for each in (commits, Commits(storage)):
            assert list(each.manifests()) == made
            assert {*each.segments()} == {*files}
            assert each.committed("a", 2)
            assert not each.committed("a", 3)
            assert each.next_upkeep() == 1
            assert each.unarchived() == []
        made.insert(3, commit(storage, "a", 3))
        made.append(commit(storage, UPKEEP, 1, made[3].segments))
        assert list(commits.manifests()) == made
        assert {*commits.segments()} == {*live_files(made).segments}
        assert commits.checkpoint() == 2
        assert commits.remove_checkpointed(before=1e12) == 3
        assert names(storage) == ["gathered/0.json", "gathered/0000000002.gz"]
        assert commits.remove_checkpointed(before=1e12) == 0
        assert list(Commits(storage).manifests()) == made


def test_a_combined_batch_is_not_committed_again(storage: Storage) -> None:
    with storage.lease():
        made = commit(storage, "a", 0)
        commits = Commits(storage)
        commits.checkpoint()
        commits.remove_checkpointed(before=1e12)
        other = Manifest("a", 0, "other", AT, ())
        with pytest.raises(FleetError, match="committed already"):
            commits.commit(other)
        assert list(commits.manifests()) == [made]
        # one that comes to be there all the same is read by nobody
        put(storage, "manifests/a/0.json", json.dumps({"version": 7}).encode())
        assert list(commits.manifests()) == [made]
        assert commits.unarchived() == []
        assert list(commits.after({})) != []


def test_nothing_is_combined_while_a_batch_is_not_archived(storage: Storage) -> None:
    with storage.lease():
        commits = Commits(storage)
        made = Manifest("a", 0, "t", AT, ())
        commits.commit(made)
        assert (commits.checkpoint(), commits.unarchived()) == (0, [made])
        commits.mark_archived(made)
        assert (commits.checkpoint(), commits.unarchived()) == (1, [])


def test_a_driver_that_lost_its_lease_cannot_combine_manifests() -> None:
    disk = Disk()
    one, other = Commits(MemoryStorage(disk)), Commits(MemoryStorage(disk))
    with one.lease(), other.lease(), pytest.raises(LeaseError):
        one.commit(Manifest("a", 0, "t", AT, ()))
    assert one.manifests() == []


def test_batches_are_followed_across_a_checkpoint(storage: Storage) -> None:
    with storage.lease():
        made = [commit(storage, query, number) for query in "ab" for number in range(3)]
        commit(storage, UPKEEP, 0)
        commits = Commits(storage)
        assert list(commits.after({})) == made
        commits.checkpoint()
        assert list(commits.after({"a": 0})) == [*made[1:3], *made[3:]]
        commits.remove_checkpointed(before=1e12)
        late = commit(storage, "a", 3)
        assert list(commits.after({"a": 1, "b": 2})) == [made[2], late]
        assert list(Commits(storage).after({})) == [*made[:3], late, *made[3:]]
        assert list(commits.after({"a": 3, "b": 2})) == []


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (lambda data: data[: len(data) // 2], "EOFError"),
        (lambda data: b"no gzip", "BadGzipFile"),
        (lambda data: gzip.compress(b""), "truncated"),
        (
            lambda data: gzip.compress(
                gzip.decompress(data).replace(b'"version":1', b'"version":2')
            ),
            "another version",
        ),
        (
            lambda data: gzip.compress(b"\n".join(gzip.decompress(data).splitlines()[:-1])),
            "should have",
        ),
        (
            lambda data: gzip.compress(gzip.decompress(data).replace(b'"replaces"', b'"replace"')),
            "read: TypeError|read: KeyError",
        ),
        (
            lambda data: gzip.compress(gzip.decompress(data).replace(b'"keys"', b'"key"')),
            "KeyError",
        ),
    ],
)
def test_a_damaged_or_newer_checkpoint_is_refused(
    storage: Storage, spoil: Callable[[bytes], bytes], why: str
) -> None:
    with storage.lease():
        commit(storage, "a", 0)
        Commits(storage).checkpoint()
        path = "manifests/gathered/0000000001.gz"
        data = spoil(storage.read(path))
        storage.remove(path)
        put(storage, path, data)
        with pytest.raises(FleetError, match=why):
            Commits(storage).manifests()
        with pytest.raises(FleetError, match=why):
            Commits(storage).segments()


def test_versions_without_checkpoints_refuse_the_tables(storage: Storage) -> None:
    """For them, `manifests/X/NUMBER.json` of version 1 is a manifest."""
    with storage.lease():
        commit(storage, "a", 0)
        Commits(storage).checkpoint()
        Commits(storage).remove_checkpointed(before=1e12)
    (left,) = (name for name in names(storage) if name.endswith(".json"))
    folder, number = left.removesuffix(".json").split("/")
    assert (folder, number.isdecimal()) == (GATHERED, True)
    assert json.loads(storage.read(f"manifests/{left}"))["version"] == 2


def test_a_lost_manifest_is_an_error_after_some_attempts() -> None:
    calls: list[str] = []
    storage = MemoryStorage(Disk(), calls.append)
    with storage.lease():
        for number in range(2):
            commit(storage, UPKEEP, number)
    storage.remove("manifests/upkeep/0.json")
    calls.clear()
    with pytest.raises(FileNotFoundError):
        Commits(storage).manifests()
    assert calls.count("read") == LOOKS


def test_a_reader_gives_up_if_manifests_keep_changing() -> None:
    disk = Disk()
    other = MemoryStorage(disk)
    left = 1

    def ask(call: str) -> None:
        nonlocal left
        if call == "folders":
            commit(other, "b", left)
            Commits(other).checkpoint()
            left += 1

    with other.lease():
        commit(other, "a", 0)
        reader = MemoryStorage(disk, ask)
        with pytest.raises(FleetError, match="keep changing"):
            Commits(reader).fold(lambda found: [*found, *reader.folders("")])
    assert left == LOOKS + 1


@given(st.sets(st.tuples(st.sampled_from("ab"), st.integers(0, 20))))
def test_batch_keys_are_a_set(keys: set[tuple[str, int]]) -> None:
    shuffled = list(keys)
    random.Random(len(keys)).shuffle(shuffled)
    found = BatchKeys.of(shuffled)
    assert {(query, at) for query in "abc" for at in range(-1, 22) if (query, at) in found} == keys
    for query in "abc":
        assert found.last(query) == max((at for of, at in keys if of == query), default=-1)
