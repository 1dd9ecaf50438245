from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from firmware_sim.device.errors import JobsError
from firmware_sim.device.jobs import Job, JobCounter, JobRecord, JobState, JobStore

JOB = Job("j1", "<job/>", 0, "p1@gw.example")
SCHEMA = "CREATE TABLE effect (item TEXT NOT NULL) STRICT"


def write(job: Job, db: sqlite3.Connection) -> None:
    db.execute("INSERT INTO effect VALUES (?)", (job.item,))


def effects(jobs: JobStore) -> list[str]:
    return [item for (item,) in jobs.database.execute("SELECT item FROM effect")]


def open_store(path: Path, node: str = "jobs", keep: int = 100) -> JobStore:
    return JobStore.open(path, "w1@gw.example/w", node, keep=keep, schema=SCHEMA)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "w.db"


@pytest.fixture
def jobs(path: Path) -> Iterator[JobStore]:
    with open_store(path) as store:
        yield store


def test_job_awaits_confirmation_across_a_restart(path: Path) -> None:
    with open_store(path) as jobs:
        jobs.record_work(JOB)
        assert jobs.unconfirmed() == ["j1"]
        assert effects(jobs) == []
    with open_store(path) as jobs:  # as after a crash
        assert jobs.unconfirmed() == ["j1"]
        assert jobs.commit("j1", write)
        assert jobs.unconfirmed() == []
        assert effects(jobs) == ["j1"]
        assert list(jobs.records()) == [JobRecord("j1", JobState.DONE, 1, 1, 0)]


def test_repeated_confirmation_commits_once(jobs: JobStore) -> None:
    jobs.record_work(JOB)
    assert [jobs.commit("j1", write) for _ in range(3)] == [True, False, False]
    assert effects(jobs) == ["j1"]
    counts = jobs.counts()
    assert (counts[JobCounter.REPEATED], counts[JobCounter.DONE]) == (2, 1)


def test_unknown_item_is_not_committed(jobs: JobStore) -> None:
    assert not jobs.commit("j1", write)
    assert not jobs.mark_undone("j1")
    assert effects(jobs) == []


def test_undone_job_can_still_be_confirmed(jobs: JobStore) -> None:
    jobs.record_work(JOB)
    assert jobs.mark_undone("j1")
    assert jobs.unconfirmed() == []
    assert not jobs.mark_undone("j1")
    assert jobs.commit("j1", write)
    assert list(jobs.records()) == [JobRecord("j1", JobState.DONE, 1, 1, 0)]
    assert not jobs.mark_undone("j1")


def test_redelivered_item_counts_its_runs(jobs: JobStore) -> None:
    jobs.record_work(JOB)
    jobs.mark_undone("j1")
    jobs.record_work(Job("j1", "<job/>", 2))
    jobs.commit("j1", write)
    jobs.record_work(Job("j1", "<job/>", 0))
    assert list(jobs.records()) == [JobRecord("j1", JobState.DELETION_REQUESTED, 3, 1, 2)]


def test_failed_commit_changes_nothing(jobs: JobStore) -> None:
    def fail(job: Job, db: sqlite3.Connection) -> None:
        write(job, db)
        raise ValueError(job.item)

    jobs.record_work(JOB)
    with pytest.raises(ValueError, match="j1"):
        jobs.commit("j1", fail)
    assert jobs.unconfirmed() == ["j1"]
    assert effects(jobs) == []
    with pytest.raises(JobsError, match="no such table"):
        jobs.commit("j1", lambda _job, db: db.execute("INSERT INTO missing VALUES (1)"))
    assert jobs.commit("j1", write)


def test_oldest_finished_jobs_are_deleted_and_stay_counted(path: Path) -> None:
    with open_store(path, keep=2) as jobs:
        for number in range(5):
            jobs.record_work(Job(f"j{number}", "", 0))
        jobs.mark_undone("j0")
        for number in (2, 3, 4):
            jobs.commit(f"j{number}", write)
        assert [row.item for row in jobs.records()] == ["j1", "j3", "j4"]
        assert jobs.unconfirmed() == ["j1"]
        counts = jobs.counts()
        kinds = (JobCounter.WORKED, JobCounter.DONE, JobCounter.UNDONE)
        assert [counts[kind] for kind in kinds] == [5, 3, 1]


VERSION_1 = """
CREATE TABLE jobs (jid TEXT NOT NULL, node TEXT NOT NULL) STRICT;
CREATE TABLE jobs_tally (word TEXT PRIMARY KEY, count INTEGER NOT NULL) STRICT;
CREATE TABLE job (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    item TEXT NOT NULL UNIQUE,
    payload TEXT NOT NULL,
    times INTEGER NOT NULL,
    state TEXT NOT NULL,
    runs INTEGER NOT NULL DEFAULT 1,
    commits INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX job_by_state ON job (state, number);
INSERT INTO jobs VALUES ('w1@gw.example/w', 'jobs');
INSERT INTO job (item, payload, times, state) VALUES ('old', '<job/>', 1, 'asked');
CREATE TABLE effect (item TEXT NOT NULL) STRICT;
PRAGMA user_version=1;
"""


def columns(jobs: JobStore) -> list[tuple[object, ...]]:
    rows = jobs.database.execute("PRAGMA table_info(job)").fetchall()
    return [row[1:] for row in rows]  # without the position


def test_file_of_version_1_is_upgraded(path: Path, tmp_path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.executescript(VERSION_1)
    with open_store(path) as jobs, open_store(tmp_path / "new.db") as new:
        assert sorted(columns(jobs)) == sorted(columns(new))
        assert jobs.unconfirmed() == ["old"]
        committed: list[Job] = []
        jobs.commit("old", lambda job, _db: committed.append(job))
        jobs.record_work(JOB)
        jobs.commit("j1", lambda job, _db: committed.append(job))
    assert committed == [Job("old", "<job/>", 1, ""), JOB]
    with open_store(path) as jobs:
        assert jobs.unconfirmed() == []


def test_file_belongs_to_one_queue(path: Path) -> None:
    open_store(path).close()
    with pytest.raises(JobsError, match="belongs to"):
        open_store(path, node="others")
