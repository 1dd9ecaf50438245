"""Commits after a power cut: those that were not durable are damaged in every possible way."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from sync.storage.local import LocalStorage
from sync.tables import log_journal
from sync.tables.delta import EVENTS, SEGMENTS
from sync.tables.log_journal import JOURNAL
from tests.helpers.committed import Committer, SimulatedCrash, raise_crash
from tests.sync.tables.test_delta import content, event, numbers, paths, segment


def log_of(root: Path, name: str) -> Path:
    return root / name / "_delta_log"


def newest(root: Path, name: str = EVENTS) -> Path:
    return max(log_of(root, name).glob("*.json"))


def empty(root: Path) -> None:
    newest(root).write_bytes(b"")


def shorten(root: Path) -> None:
    newest(root).write_bytes(newest(root).read_bytes()[:-30])


def lose(root: Path) -> None:
    newest(root).unlink()


def newest_data(root: Path) -> Path:
    return max((root / EVENTS).rglob("*.parquet"), key=lambda path: path.stat().st_mtime_ns)


def lose_data(root: Path) -> None:
    newest_data(root).unlink()


def shorten_data(root: Path) -> None:
    newest_data(root).write_bytes(newest_data(root).read_bytes()[:-1])


@pytest.mark.parametrize("damage", [empty, shorten, lose, lose_data, shorten_data])
def test_a_damaged_commit_is_undone(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    committer = Committer(tmp_path)
    committer.commit([event(1)], [segment("a")])

    def power_cut() -> None:
        damage(tmp_path)
        raise_crash()

    with pytest.raises(SimulatedCrash):
        committer.commit([event(2)], [segment("b")], power_cut)
    assert (tmp_path / JOURNAL).exists()
    committer.tables.recover()
    assert content(committer.tables.snapshot()) == (1, [1], ["a"])
    assert not (tmp_path / JOURNAL).exists()
    again = Committer(tmp_path).commit([event(2)], [segment("b")])
    assert content(again) == (2, [1, 2], ["a", "b"])


def test_commits_after_a_damaged_one_are_removed_too(tmp_path: Path) -> None:
    committer = Committer(tmp_path)
    committer.commit([event(1)], [segment("a")])
    table = committer.tables.existing(SEGMENTS)
    with contextlib.suppress(SimulatedCrash), committer.tables.journaled(SEGMENTS):
        table.alter.set_table_properties({"delta.appendOnly": "false"})
        first = newest(tmp_path, SEGMENTS)
        table.alter.set_table_properties({"delta.appendOnly": "true"})
        first.write_bytes(first.read_bytes()[:10])
        raise_crash()
    committer.tables.recover()
    assert "delta.appendOnly" not in committer.tables.existing(SEGMENTS).metadata().configuration
    assert paths(committer.commit([], [segment("b")])) == ["a", "b"]


@pytest.mark.parametrize("damaged", [b"", b"PAR1"])
def test_a_checkpoint_that_was_not_durable_is_removed(tmp_path: Path, damaged: bytes) -> None:
    committer = Committer(tmp_path)
    committer.commit([event(1)], [segment("a")])
    with contextlib.suppress(SimulatedCrash), committer.tables.journaled(SEGMENTS):
        table = committer.tables.existing(SEGMENTS)
        table.alter.set_table_properties({"delta.appendOnly": "false"})
        table.create_checkpoint()
        [checkpoint] = log_of(tmp_path, SEGMENTS).glob("*.parquet")
        checkpoint.write_bytes(damaged)
        raise_crash()
    committer.tables.recover()
    assert sorted(path.suffix for path in log_of(tmp_path, SEGMENTS).iterdir()) == [".json"] * 4
    assert paths(committer.commit([], [segment("b")])) == ["a", "b"]


def test_an_unfinished_commit_of_another_driver_stays_for_an_hour(tmp_path: Path) -> None:
    committer = Committer(tmp_path)
    with pytest.raises(SimulatedCrash):
        committer.commit([event(1)], [segment("a")], raise_crash)
    recent, old = (log_of(tmp_path, EVENTS) / f"{2:020}.json#{number}" for number in (1, 2))
    recent.touch()
    old.touch()
    hour_ago = time.time() - log_journal.UNFINISHED_SECONDS - 1
    os.utime(old, (hour_ago, hour_ago))
    committer.tables.recover()
    assert (recent.exists(), old.exists()) == (True, False)
    assert numbers(committer.tables.snapshot()) == [1]


def test_the_first_commit_may_be_damaged(tmp_path: Path) -> None:
    committer = Committer(tmp_path)
    with contextlib.suppress(SimulatedCrash), committer.tables.journaled(EVENTS, SEGMENTS):
        log = log_of(tmp_path, EVENTS)
        log.mkdir(parents=True)
        (log / f"{0:020}.json").write_bytes(b"")
        raise_crash()
    assert numbers(committer.commit([event(1)], [segment("a")])) == [1]


def test_all_files_are_synced_before_the_journal_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    committer = Committer(tmp_path)
    committer.tables.recover()
    make_durable = LocalStorage.make_durable

    def record(storage: LocalStorage, written: list[str]) -> None:
        assert (tmp_path / JOURNAL).exists()
        synced.extend(written)
        make_durable(storage, written)

    monkeypatch.setattr(LocalStorage, "make_durable", record)
    snapshot, batch = committer.begin([event(1)], [segment("a")])
    synced_for_events: list[str] = []
    committer.tables.commit(snapshot, batch, lambda: synced_for_events.extend(synced))
    for name, files, path in (
        (EVENTS, set(synced_for_events), batch.events[0].path),
        (SEGMENTS, set(synced) - set(synced_for_events), batch.segments.path),
    ):
        assert files == {f"{name}/_delta_log/{1:020}.json", f"{name}/{path}"}
