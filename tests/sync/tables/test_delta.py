"""Batches are committed to both tables, atomically and once, whichever driver completes them."""

from __future__ import annotations

import json
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, Schema
from pyarrow import dataset

from sync.common.errors import FleetError, LeaseError
from sync.tables import delta
from sync.tables.delta import EVENTS, SEGMENTS, Snapshot, local_tables
from tests.helpers.committed import Committer, SimulatedCrash, raise_crash

NOON = datetime(2025, 11, 21, 12, tzinfo=UTC)


def event(seq: int, days: int = 0, **columns: Any) -> dict[str, Any]:
    at = NOON + timedelta(days=days, seconds=seq)
    return {"gateway": "gw", "epoch": "E", "lane": "logs", "seq": seq, "time": at, **columns}


def segment(path: str) -> dict[str, Any]:
    return {"path": path, "fate": "accepted", "gateway": "gw"}


def numbers(snapshot: Snapshot) -> list[int]:
    files = [Path(snapshot.storage.uri(path)) for path in snapshot.event_files]
    return sorted(seq for path in files for seq in pq.ParquetFile(path).read()["seq"].to_pylist())


def paths(snapshot: Snapshot) -> list[str]:
    return sorted(row["path"] for row in snapshot.read_segments(["path"]))


def content(snapshot: Snapshot) -> tuple[int, list[int], list[str]]:
    return snapshot.batch, numbers(snapshot), paths(snapshot)


def test_a_batch_is_in_both_tables_with_statistics(tmp_path: Path) -> None:
    empty = local_tables(tmp_path).snapshot()
    assert (empty.batch, empty.days, empty.segment_files, paths(empty)) == (0, {}, (), [])
    committer = Committer(tmp_path)
    rows = [event(3), event(1), event(2, days=-400), event(4, days=365 * 7_000)]
    rows.append(event(5) | {"time": datetime(1, 1, 1, tzinfo=UTC)})
    snapshot = committer.commit(rows, [segment("a")])
    assert (numbers(snapshot), paths(snapshot)) == ([1, 2, 3, 4, 5], ["a"])
    assert next(iter(snapshot.days)) == "0001-01-01"
    assert [day.rows for day in snapshot.days.values()] == [1, 1, 2, 1]
    events = DeltaTable(str(tmp_path / EVENTS))
    actions = events.get_add_actions(flatten=True).to_struct_array().to_pylist()
    [day] = [each for each in actions if str(each["partition.day"]) == "2025-11-21"]
    assert (day["min.seq"], day["max.seq"], day["min.gateway"]) == (1, 3, "gw")
    assert day["max.time"] == NOON + timedelta(seconds=3)
    assert events.schema().to_json() == Schema.from_arrow(delta.SCHEMAS[EVENTS]).to_json()
    [gateway] = [each for each in events.schema().fields if each.name == "gateway"]
    assert gateway.metadata == {"comment": "XMPP domain of the gateway"}
    assert events.file_uris(file_pruning_predicate="day = '2025-11-21' and seq > 3") == []


def test_a_half_committed_batch_is_hidden_until_any_driver_completes_it(tmp_path: Path) -> None:
    committer = Committer(tmp_path)
    committer.commit([event(1)], [segment("a")])
    with pytest.raises(SimulatedCrash):
        committer.commit([event(2)], [segment("b")], raise_crash)
    assert content(committer.tables.snapshot()) == (1, [1], ["a"])

    Committer(tmp_path).commit([event(3)], [segment("c")])
    committer.tables.recover()
    again = committer.tables.snapshot()
    assert content(again) == (3, [1, 2, 3], ["a", "b", "c"])
    assert again.segments is not None
    [completed] = [each for each in again.segments.history() if each.get("batch") == 2]
    assert (completed["events"], completed["segments"]) == (1, 1)


def test_one_of_two_drivers_with_the_same_ledger_commits(tmp_path: Path) -> None:
    first, second = Committer(tmp_path), Committer(tmp_path)
    ours, theirs = first.begin([event(1)], [segment("a")]), second.begin([event(1)], [segment("a")])
    first.tables.commit(*ours)
    with pytest.raises(LeaseError, match="another process has changed the tables"):
        second.tables.commit(*theirs)
    with pytest.raises(LeaseError):
        first.tables.commit(*ours)
    assert content(first.tables.snapshot()) == (1, [1], ["a"])


def test_one_of_many_concurrent_drivers_commits(tmp_path: Path) -> None:
    drivers = [Committer(tmp_path) for _ in range(6)]
    begun = [each.begin([event(1)], [segment("a")]) for each in drivers]
    begin = threading.Barrier(len(drivers))

    def commit(at: int) -> bool:
        begin.wait(60)
        try:
            drivers[at].tables.commit(*begun[at])
        except LeaseError:
            return False
        return True

    with ThreadPoolExecutor(len(drivers)) as pool:
        assert sorted(pool.map(commit, range(len(drivers)))) == [False] * 5 + [True]
    assert content(drivers[0].tables.snapshot()) == (1, [1], ["a"])


def test_the_batch_of_a_suspended_driver_is_completed_by_another(tmp_path: Path) -> None:
    other = Committer(tmp_path)
    snapshot = Committer(tmp_path).commit([event(1)], [segment("a")], other.tables.recover)
    assert content(snapshot) == (1, [1], ["a"])

    def commit_another() -> None:
        other.commit([event(3)], [segment("c")])

    snapshot = Committer(tmp_path).commit([event(2)], [segment("b")], commit_another)
    assert content(snapshot) == (3, [1, 2, 3], ["a", "b", "c"])


def test_removed_files_are_not_committed(tmp_path: Path) -> None:
    """Maintenance has removed what a suspended driver wrote more than a week ago."""
    committer = Committer(tmp_path)
    snapshot, batch = committer.begin([event(1)], [segment("a")])
    (tmp_path / EVENTS / batch.events[0].path).unlink()
    with pytest.raises(FileNotFoundError):
        committer.tables.commit(snapshot, batch)
    assert committer.tables.existing(EVENTS).version() == 0


def test_a_past_state_has_two_versions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    committer, moments = Committer(tmp_path), []
    for seq in range(1, 4):
        committer.commit([event(seq)], [segment(str(seq))])
        moments.append(datetime.now(UTC))
        while datetime.now(UTC) - moments[-1] < timedelta(milliseconds=2):
            pass  # times of commits are in milliseconds
    tables = committer.tables
    for batch, moment in enumerate(moments, 1):
        seqs = list(range(1, batch + 1))
        assert content(tables.snapshot(moment)) == (batch, seqs, [str(seq) for seq in seqs])
    assert tables.snapshot(moments[0] - timedelta(hours=1)).batch == 0
    assert tables.snapshot(moments[2] + timedelta(days=9)).batch == 3
    monkeypatch.setattr(delta, "KEPT_DAYS", 0)
    assert tables.snapshot(moments[0]).batch == 3


def test_archived_batches_are_recorded(tmp_path: Path) -> None:
    committer = Committer(tmp_path)
    for seq in range(1, 3):
        snapshot, batch = committer.begin([event(seq)], [segment(str(seq))])
        committer.tables.commit(snapshot, batch)
    assert committer.tables.unarchived() == 2
    committer.tables.mark_archived(1)
    assert committer.tables.unarchived() == 1
    assert committer.tables.snapshot().batch == 2


def test_added_files_are_those_with_new_rows(tmp_path: Path) -> None:
    committer = Committer(tmp_path)
    first = committer.commit([event(1)], [segment("1")])
    second = committer.commit([event(2), event(3, days=1)], [segment("2")])
    tables = committer.tables
    assert first.events is not None
    assert second.events is not None
    versions = first.events.version(), second.events.version()
    new = set(second.event_files) - set(first.event_files)
    assert set(tables.added_files(EVENTS, *versions)) == new
    second.events.optimize.compact()
    assert list(tables.added_files(EVENTS, versions[1], second.events.version())) == []
    (tmp_path / EVENTS / "_delta_log" / f"{versions[1]:020}.json").unlink()
    with pytest.raises(FileNotFoundError):
        list(tables.added_files(EVENTS, *versions))


def test_tables_that_cannot_be_used_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FleetError, match="its path has"):
        local_tables(tmp_path / "a%20b")
    plain = tmp_path / "plain [a] 100% #ü?"
    plain.mkdir()
    committer = Committer(plain)
    assert numbers(committer.commit([event(1)], [segment("1")])) == [1]
    log = plain / SEGMENTS / "_delta_log" / f"{1:020}.json"
    log.write_text(log.read_text("utf-8")[:-20], "utf-8")
    message = r"cannot be used: Kernel error: Json error: [^0]*; see docs"
    with pytest.raises(FleetError, match=message):
        committer.tables.snapshot()


def test_the_log_has_the_counts_of_each_commit(tmp_path: Path) -> None:
    committer = Committer(tmp_path)
    committer.commit([event(1)], [segment("1")])
    log = (tmp_path / EVENTS / "_delta_log" / f"{1:020}.json").read_text("utf-8")
    actions = [json.loads(line) for line in log.splitlines()]
    [info] = [each["commitInfo"] for each in actions if "commitInfo" in each]
    assert (info["batch"], info["segments"], info["events"]) == (1, 1, 1)
    assert info["segments_file"]["path"] in str(committer.tables.snapshot().segment_files)
    [transaction] = [each["txn"] for each in actions if "txn" in each]
    assert (transaction["appId"], transaction["version"]) == ("ingest", 1)


def test_filters_find_rows_by_every_column(tmp_path: Path) -> None:
    """A missing bound in the log would exclude all rows of the file."""
    committer = Committer(tmp_path)
    texts: list[dict[str, Any]] = [
        {"text": "x" * 5_000},
        {"text": "x" * 33 + "\U0010ffff", "value": -0.5},
        {"name": "é", "qos": 2},
        {"topic": "", "level": "Error", "latency_ms": 2**53},
        {"arrived": NOON + timedelta(microseconds=1)},
    ]
    rows = [event(seq, **columns) for seq, columns in enumerate(texts, 1)]
    snapshot = committer.commit(rows, [segment("a") | {"fate": "bad", "detail": "y" * 90}])
    assert snapshot.events is not None
    events = snapshot.events.to_pyarrow_dataset()
    for seq, columns in enumerate(texts, 1):
        for name, value in columns.items():
            matching = events.to_table(columns=["seq"], filter=dataset.field(name) == value)
            assert matching["seq"].to_pylist() == [seq], name
    unnamed = events.to_table(columns=["seq"], filter=dataset.field("name").is_null())
    assert unnamed["seq"].to_pylist() == [1, 2, 4, 5]
    assert snapshot.read_segments(["path"], dataset.field("fate").isin(["bad"])) == [{"path": "a"}]


LAST = "\U0010ffff"


@pytest.mark.parametrize(
    "name",
    [
        *("\U0001f4a7", "💧" * 40, LAST, LAST * 32, LAST * 33, LAST * 60),
        *("x" * 32 + LAST, "x" * 31 + LAST * 9, "x" * 31 + "\ud7ff" + LAST * 9, "a" + LAST * 90),
    ],
)
def test_filters_find_the_highest_names(tmp_path: Path, name: str) -> None:
    committer = Committer(tmp_path)
    committer.commit([event(1, name=name)], [segment("1")])
    snapshot = committer.commit([event(2, name="é")], [segment("2")])
    assert snapshot.events is not None
    rows = snapshot.events.to_pyarrow_dataset().to_table(filter=dataset.field("name") == name)
    assert rows["seq"].to_pylist() == [1]
    assert snapshot.events.to_pandas(filters=[("name", "=", name)])["seq"].to_list() == [1]
    scanned = pl.scan_delta(str(tmp_path / EVENTS)).filter(pl.col("name") == name)
    assert scanned.collect()["seq"].to_list() == [1]


def test_removing_old_commits_from_the_log_loses_no_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(delta.CONFIGURATION, "delta.checkpointInterval", "5")
    committer = Committer(tmp_path)
    tables = committer.tables
    committer.commit([event(1)], [segment("1")])
    committer.commit([], [segment("2")])
    snapshot = committer.commit([event(3)], [segment("3")])
    log = tmp_path / SEGMENTS / "_delta_log"
    assert len(list(log.glob("*.checkpoint.parquet"))) == 1
    for path in log.iterdir():
        os.utime(path, (1, 1))
    tables.clean_log(SEGMENTS)
    assert min(int(path.stem) for path in log.glob("*.json")) == 4
    assert content(tables.snapshot()) == content(snapshot)
    assert content(snapshot)[:2] == (3, [1, 3])
    assert tables.unarchived() == 0
    assert numbers(committer.commit([event(4)], [segment("x")])) == [1, 3, 4]
