from __future__ import annotations

import json
import multiprocessing
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from sync.common.errors import FleetError
from sync.tables.manifest import UPKEEP, Counts, LocalCommits, Manifest, live_files, retired
from sync.tables.storage import File, LocalStorage

COUNTS = Counts(segments=2, events=7, duplicates=1, quarantined=3)


def manifest(tables: Path, batch: int, query: str = "q") -> Manifest:
    """Create a manifest and the files that it names."""
    files = [f"data/{query}/{batch}/a/{name}.parquet" for name in ("segments", "events")]
    for file in files:
        (tables / file).parent.mkdir(parents=True, exist_ok=True)
        (tables / file).write_bytes(b"rows")
    day = {"2025-11-21": (files[1],)}
    return Manifest(query, batch, "a", "2025-11-21T12:00:00+00:00", (files[0],), day, COUNTS)


def test_manifests_are_read_in_order(tmp_path: Path) -> None:
    commits = LocalCommits(tmp_path)
    made = [manifest(tmp_path, batch, query) for query, batch in (("b", 0), ("a", 10), ("a", 9))]
    assert list(commits.manifests()) == []
    for each in made:
        assert not commits.committed(each.query, each.batch)
        commits.commit(each)
        assert commits.committed(each.query, each.batch)
    assert list(LocalCommits(tmp_path).manifests()) == [made[2], made[1], made[0]]


def test_a_batch_is_committed_once(tmp_path: Path) -> None:
    commits = LocalCommits(tmp_path)
    first = manifest(tmp_path, 0)
    commits.commit(first)
    with pytest.raises(FleetError, match="committed already"):
        commits.commit(manifest(tmp_path, 0))
    assert list(commits.manifests()) == [first]
    assert [path.name for path in (tmp_path / "manifests" / "q").iterdir()] == ["0.json"]


def test_a_manifest_must_name_existing_files(tmp_path: Path) -> None:
    commits = LocalCommits(tmp_path)
    made = manifest(tmp_path, 0)
    (tmp_path / made.segments[0]).unlink()
    with pytest.raises(FileNotFoundError):
        commits.commit(made)
    assert not commits.committed("q", 0)


def test_archived_batches_are_not_listed_as_unarchived(tmp_path: Path) -> None:
    commits = LocalCommits(tmp_path)
    first, second = manifest(tmp_path, 0), manifest(tmp_path, 1)
    commits.commit(first)
    commits.commit(second)
    commits.mark_archived(first)
    commits.mark_archived(first)
    assert list(commits.unarchived()) == [second]
    assert list(commits.manifests()) == [first, second]


@pytest.mark.parametrize(
    "spoil",
    [
        lambda document: "not json",
        lambda document: json.dumps([]),
        lambda document: json.dumps(document | {"version": 2}),
        lambda document: json.dumps({**document, "surprise": 1}),
        lambda document: json.dumps({**document, "counts": {"events": 1, "more": 2}}),
        lambda document: json.dumps({k: v for k, v in document.items() if k != "segments"}),
    ],
)
def test_an_unreadable_manifest_is_an_error_that_names_it(tmp_path: Path, spoil: object) -> None:
    assert callable(spoil)
    commits = LocalCommits(tmp_path)
    commits.commit(manifest(tmp_path, 0))
    path = tmp_path / "manifests" / "q" / "0.json"
    path.write_text(spoil(json.loads(path.read_text())))
    with pytest.raises(FleetError, match=r"0\.json is not a manifest"):
        commits.manifests()


def test_the_lease_is_exclusive(tmp_path: Path) -> None:
    with LocalCommits(tmp_path).lease():
        with (
            pytest.raises(FleetError, match="another ingest"),
            LocalCommits(tmp_path).lease(),
        ):
            pytest.fail("two held the lease")
        with pytest.raises(FleetError), LocalCommits(tmp_path).lease():
            pytest.fail("the refusal ended the first lease")
    with LocalCommits(tmp_path).lease():
        pass


def _hold(tables: Path, held: multiprocessing.synchronize.Event) -> None:
    with LocalCommits(tables).lease():
        held.set()
        multiprocessing.Event().wait(60)


def test_the_lease_ends_with_its_process(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    held = context.Event()
    process = context.Process(target=_hold, args=(tmp_path, held), daemon=True)
    process.start()
    try:
        assert held.wait(60)
        with pytest.raises(FleetError), LocalCommits(tmp_path).lease():
            pytest.fail("two held the lease")
    finally:
        process.kill()
        process.join(60)
    with LocalCommits(tmp_path).lease():
        pass


def test_counts_add_up() -> None:
    assert Counts(4, 14, 2, 6) == COUNTS + COUNTS


def test_replaced_files_are_not_live(tmp_path: Path) -> None:
    batches = [manifest(tmp_path, batch) for batch in (0, 1)]
    made = manifest(tmp_path, 0, UPKEEP)
    old = tuple(each.events["2025-11-21"][0] for each in batches)
    compacted = replace(made, kind="compacted", replaces=old, segments=(), counts=Counts())
    gone = {"2025-11-21": 7}
    taken = Manifest(UPKEEP, 1, "b", made.committed_at, (), kind="retired", retired=gone)
    taken = replace(taken, replaces=made.events["2025-11-21"])

    assert live_files([*batches, compacted]).events == made.events
    assert live_files([taken, compacted, *batches]).events == {}
    assert live_files([taken, compacted, *batches]).segments == tuple(
        each.segments[0] for each in batches
    )
    assert retired([compacted, taken, taken]) == {"2025-11-21": 14}


def test_a_listing_includes_earlier_maintenance_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A listing is not a snapshot: it may miss a file that is older than one that it shows."""
    commits = LocalCommits(tmp_path)
    assert commits.next_upkeep() == 0
    made = [manifest(tmp_path, number, UPKEEP) for number in range(3)]
    for each in made:
        commits.commit(each)
    files = LocalStorage.files

    def late(storage: LocalStorage, folder: str = "", suffix: str = "") -> Iterator[File]:
        found = files(storage, folder, suffix)
        return (file for file in found if not file.path.endswith("/1.json"))

    monkeypatch.setattr(LocalStorage, "files", late)
    assert list(commits.manifests()) == made
    assert commits.next_upkeep() == 3
    assert list(commits.unarchived()) == []
