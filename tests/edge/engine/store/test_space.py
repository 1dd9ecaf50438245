from __future__ import annotations

import asyncio
import errno
import itertools
import os
import random
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from edge.config.limits import Limits
from edge.engine.rules.quota import ExceededLimit
from edge.engine.rules.space_rules import WAL_SHARE
from edge.engine.store import database, group_commit, meta, space
from edge.engine.store.database import PAGE_BYTES, Transaction
from edge.engine.store.group_commit import Store
from edge.errors import StoreBroken, StoreError, StoreFull
from tests.helpers.store import Clock, in_memory, opened

MIB = 1024 * 1024
MOMENT = Clock()()
SIZE = 200_000


def write(key: str, value: bytes | None = None) -> Callable[[Transaction], None]:
    """Write a new value, because SQLite writes nothing if nothing changes."""
    value = random.randbytes(SIZE) if value is None else value
    return lambda tx: meta.write(tx, key, value)


def remove(pattern: str) -> Callable[[Transaction], object]:
    return lambda tx: tx.run("DELETE FROM meta WHERE key LIKE ?", (pattern,))


@contextmanager
def endless_reader(path: Path) -> Iterator[sqlite3.Connection]:
    """Hold a read transaction open, as a process that was stopped while reading does."""
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN")
        other.execute("SELECT count(*) FROM meta").fetchone()
        yield other


def bytes_on_disk(path: Path) -> int:
    return path.stat().st_size + wal_bytes(path)


def wal_bytes(path: Path) -> int:
    wal = path.with_name(f"{path.name}-wal")
    return wal.stat().st_size if wal.exists() else 0


async def fill(store: Store, name: str = "fill{}") -> tuple[int, StoreFull]:
    """Write until the store is full; return the number of values, and the error."""
    for number in range(200):
        try:
            await store.run(write(name.format(number)))
        except StoreFull as full:
            return number, full
    raise AssertionError("it is never full")


# Measuring and reserving.


async def test_measured_space_equals_the_files(path: Path, store: Store) -> None:
    for number in range(10):
        await store.run(write(f"k{number}"))
    used = await store.run(space.measure)
    assert used.wal == wal_bytes(path)
    assert 10 * SIZE < used.live < 10 * SIZE + MIB
    assert used.free == 0
    await store.run(remove("k%"))
    freed = await store.run(space.measure)
    assert freed.free > 9 * SIZE
    assert freed.live + freed.free == used.live
    assert freed.disk > 0


def test_a_database_in_memory_has_unlimited_space(path: Path) -> None:
    with in_memory() as connection, database.transaction(connection, MOMENT) as tx:
        assert space.measure(tx)[2:] == (0, space.UNBOUNDED)
    with closing(sqlite3.connect(path)) as connection:
        tx = Transaction(connection, MOMENT)
        assert space.measure(tx).wal == 0, "there is no WAL"


def test_reservations_of_a_transaction_add_up(path: Path) -> None:
    limits = Limits(database_bytes=32 * MIB, database_reserve=MIB)
    with closing(database.connect(path)) as connection:
        with database.transaction(connection, MOMENT) as tx:
            most = 31 * MIB - WAL_SHARE - space.measure(tx).live
            full = ExceededLimit("database_bytes", 32 * MIB)
            assert space.reserve(tx, most + 1, limits) == full
            assert space.reserve(tx, most - 10, limits) is None
            assert space.reserve(tx, 11, limits) == full
            assert space.reserve(tx, 10, limits) is None
            assert space.reserve(tx, 1, limits) == full
        with database.transaction(connection, MOMENT) as tx:
            assert space.reserve(tx, most, limits) is None, "nothing was written"


async def test_new_messages_are_refused_while_the_wal_is_too_long(path: Path) -> None:
    limits = Limits(wal_bytes=8 * MIB)
    async with opened(path, max_bytes=1024 * MIB) as store:
        store.reclaim_interval = 0.0

        def refused(tx: Transaction) -> ExceededLimit | None:
            return space.reserve(tx, 1, limits)

        with endless_reader(path):
            while wal_bytes(path) <= 8 * MIB:
                assert await store.run(refused) is None
                await store.run(write("k"))
            assert await store.run(refused) == ExceededLimit("wal_bytes", 8 * MIB)
            await store.run(remove("k"))
        await store.run(lambda _tx: None)
        assert await store.run(refused) is None
        assert wal_bytes(path) == 0, "it is truncated when no process reads"


# The size limit.


async def test_the_database_file_leaves_room_for_the_wal(path: Path) -> None:
    async with opened(path, max_bytes=WAL_SHARE + 4 * MIB) as store:
        number, error = await fill(store)
        assert (number > 10, error.rule) == (True, "database_bytes")
        assert bytes_on_disk(path) - wal_bytes(path) <= 4 * MIB
        await store.run(remove("fill1"))
        await store.run(write("more"))
        assert bytes_on_disk(path) <= WAL_SHARE + 4 * MIB


async def test_an_endless_reader_cannot_make_the_wal_exceed_the_database_limit(
    path: Path,
) -> None:
    """Reading continues; writing continues when the reader has ended."""
    most = 16 * MIB
    async with opened(path, max_bytes=most) as store:
        with endless_reader(path):
            _number, error = await fill(store, "k")
            assert (error.rule, "WAL" in str(error)) == ("database_bytes", True)
            assert 12 * MIB < bytes_on_disk(path) <= most
            before = bytes_on_disk(path)
            with pytest.raises(StoreFull):
                await store.run(remove("k"))
            assert await store.run(lambda tx: meta.read_text(tx, meta.EPOCH))
            await store.run(
                lambda tx: tx.run("INSERT INTO temp.in_flight VALUES ('offline', 1, 1)")
            )
            assert await store.run(lambda tx: tx.row("SELECT count(*) FROM in_flight")) == (1,)
            assert await store.read(lambda tx: meta.read_text(tx, meta.EPOCH))
            assert bytes_on_disk(path) == before
        await store.run(write("k"))
        assert bytes_on_disk(path) < before
        with closing(sqlite3.connect(path, timeout=0)) as other:
            other.execute("INSERT INTO meta VALUES ('other', 1)")
            other.commit()  # the store holds no lock


async def test_reading_units_succeed_in_a_group_with_failing_writes(path: Path) -> None:
    async with opened(path, max_bytes=12 * MIB) as store:
        with endless_reader(path):
            await fill(store, "k")
            outcomes = await asyncio.gather(
                store.run(lambda tx: meta.read_text(tx, meta.EPOCH)),
                store.run(write("k")),
                store.run(lambda tx: meta.read_text(tx, meta.EPOCH)),
                return_exceptions=True,
            )
        assert [type(outcome) for outcome in outcomes] == [str, StoreFull, str]


# Freeing space.


async def test_the_file_shrinks_after_a_backlog(path: Path) -> None:
    async with opened(path, max_bytes=64 * MIB) as store:
        store.reclaim_interval = 0.0
        for number in range(100):
            await store.run(write(f"k{number}"))
        await store.run(write("stays", b"last"))
        await store.run(remove("k%"))
        assert bytes_on_disk(path) > 19 * MIB
        sizes = [await store.run(lambda tx: tx.row("PRAGMA page_count")[0]) for _ in range(40)]
        steps = [before - after for before, after in itertools.pairwise(sizes)]
        assert max(steps) <= space.VACUUM_PAGES + 1, (
            "few pages at once, with one page of the pointer map"
        )
        free_bytes = space.FREE_PAGES * PAGE_BYTES
        assert bytes_on_disk(path) - wal_bytes(path) < free_bytes + MIB
    with closing(database.connect_reader(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert connection.execute("SELECT value FROM meta WHERE key = 'stays'").fetchone()


async def test_reclaiming_space_does_not_wait_for_other_processes(
    path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Space that cannot be freed while another process has the lock is freed later."""
    monkeypatch.setattr(space, "FREE_PAGES", 0)
    await store.run(write("k"))
    await store.run(remove("k"))
    before = await store.run(lambda tx: tx.row("PRAGMA freelist_count")[0])
    assert before > 0
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        guard = space.SpaceGuard(path, None)
        async with asyncio.timeout(database.BUSY_TIMEOUT / 2):
            await store._writer.call(guard.reclaim, store._writer.raw)
        assert not await store.read(lambda tx: tx.row("PRAGMA freelist_count") == (0,))
        other.execute("ROLLBACK")
    store.reclaim_interval = 0.0
    await store.run(lambda _tx: None)
    assert await store.run(lambda tx: tx.row("PRAGMA freelist_count")) == (0,)


async def test_units_run_if_the_size_of_the_wal_cannot_be_read(
    path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failing disk is reported by the transactions."""

    def fail(_path: str) -> int:
        raise OSError(errno.EIO, "on purpose")

    guard = space.SpaceGuard(path, None)
    with monkeypatch.context() as patched:
        patched.setattr(space, "_file_size", fail)
        await store._writer.call(guard.reclaim, store._writer.raw)
    await store.run(write("k"))


async def test_a_slow_query_is_interrupted(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    endless = (
        "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n"
    )
    monkeypatch.setattr(group_commit, "READ_TIME", 0.05)
    with pytest.raises(StoreError, match="interrupted"):
        await store.read(lambda tx: tx.row(endless))
    monkeypatch.setattr(group_commit, "READ_TIME", 60.0)
    assert await store.read(lambda tx: meta.read_text(tx, meta.EPOCH))


async def test_a_removed_database_accepts_no_messages(path: Path, store: Store) -> None:
    """An acknowledged message would be lost when the process ends."""
    broken: list[StoreBroken] = []
    store.on_broken = broken.append
    os.unlink(path)  # noqa: PTH108 - at once, in a coroutine
    with pytest.raises(StoreBroken, match="was removed"):
        await store.run(lambda tx: space.reserve(tx, 1, Limits()))
    assert len(broken) == 1
