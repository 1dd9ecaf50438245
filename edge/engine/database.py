"""Opening the database: its settings, its migrations, and what a unit of work sees of it.

Nothing here begins or commits a transaction of the running gateway: `commit` does. `single` does it
for commands that run beside or without the gateway.
"""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from edge.engine.meta import MIGRATED
from edge.engine.space_rules import WAL_SHARE
from edge.engine.temporary_tables import TABLES
from edge.errors import SetupError, StoreBroken, StoreBusy, StoreError, StoreFull
from sync.common.regular_files import NotRegularError, check_regular

if TYPE_CHECKING:
    from edge.engine.service_time import Now

    Values = Sequence[Any] | Mapping[str, Any]

FILE_NAME: Final = "fieldpost.db"

BUSY_TIMEOUT: Final = 5.0
"""Seconds to wait for another process's transaction; those of the commands take milliseconds."""

PAGE_BYTES: Final = 4096

_SETTINGS: Final = (
    "PRAGMA journal_mode = WAL",
    "PRAGMA synchronous = FULL",
    "PRAGMA foreign_keys = ON",
    "PRAGMA temp_store = MEMORY",
    "PRAGMA cache_size = -4096",  # KiB
    "PRAGMA journal_size_limit = 4194304",  # bytes that a WAL file keeps after a checkpoint
)

_NOTE_MIGRATED: Final = """
INSERT INTO meta (key, value) VALUES ('{key}', {version})
ON CONFLICT (key) DO UPDATE SET value = excluded.value WHERE value = 0;
"""
"""Notes which version there was, until a start tells it."""

_BROKEN: Final = (
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_CORRUPT,
    sqlite3.SQLITE_NOTADB,
    sqlite3.SQLITE_READONLY,  # how a file system tells that it was mounted anew after an error
    sqlite3.SQLITE_CANTOPEN,
)


class Receipt(NamedTuple):
    """Which row a stanza came from: it stays there until the peer has the stanza."""

    kind: str
    row: int


AWAITS_ANSWER: Final = Receipt("", 0)
"""The receipt of a stanza whose row waits for an answer of its own: nobody is told that it arrived,
and one that never did does not go back."""


class Send(NamedTuple):
    """One stanza for a session, to be handed over after the commit."""

    generation: int
    stanza: bytes
    receipt: Receipt | None = None


class Transaction:
    """What a unit of work may touch: rows, the moment it runs at, what to send, and the next alarm.

    `memo` and `known` are for the files of `store`: what they have read and keep true themselves.
    `memo` ends with the transaction; `known` goes on until one is rolled back, or another process
    has changed the database.
    """

    __slots__ = (
        "_connection", "_earlier", "_endings", "due", "known", "memo", "now", "run", "sends",
    )  # fmt: skip

    def __init__(
        self, connection: sqlite3.Connection, now: Now, known: dict[str, Any] | None = None
    ) -> None:
        self._connection = connection
        self.run: Callable[..., sqlite3.Cursor] = connection.execute
        self.known = {} if known is None else known
        self.now = now
        self.due: float | None = None
        self.memo: dict[str, Any] = {}
        self.sends: list[Send] = []
        self._earlier: list[list[Send]] = []  # of the units before in this transaction
        self._endings: list[Callable[[Transaction], None]] = []

    def row(self, sql: str, values: Values = ()) -> Any:
        """Return the first row, or `None`."""
        return self._connection.execute(sql, values).fetchone()

    def rows(self, sql: str, values: Values = ()) -> list[Any]:
        """Return all rows: the statement bounds how many they are."""
        return self._connection.execute(sql, values).fetchall()

    def before_commit(self, ending: Callable[[Transaction], None]) -> None:
        """Have `ending` run once when all units of this transaction have."""
        self._endings.append(ending)

    def run_before_commit(self) -> None:
        """Run what was to run before the commit."""
        for ending in self._endings:
            ending(self)

    def send(self, generation: int, stanza: bytes, receipt: Receipt | None = None) -> None:
        """Have one stanza sent to a session, if this transaction commits.

        With a `receipt`, its row is told when the peer has the stanza, or that it never got it.
        """
        self.sends.append(Send(generation, stanza, receipt))

    def take_sends(self) -> list[Send]:
        """Return what a unit of work has to send, and begin the next unit."""
        sends, self.sends = self.sends, []
        if sends:
            self._earlier.append(sends)
        return sends

    def withdraw_sends(self, generation: int) -> list[Send]:
        """Return what units before in this transaction have for a session; it is not sent then."""
        found = []
        for sends in self._earlier:
            found += [send for send in sends if send.generation == generation]
            sends[:] = [send for send in sends if send.generation != generation]
        return found

    def wake_at(self, service: float) -> None:
        """Ask for the alarm to ring at `service` seconds, if not earlier."""
        if self.due is None or service < self.due:
            self.due = service


def connect(path: Path, max_bytes: int | None = None) -> sqlite3.Connection:
    """Open an existing database, bring it to the newest version, and return the connection.

    Of `max_bytes`, `space.WAL_SHARE` are its WAL's, and the file takes no more than the rest.

    Raises `SetupError` where there is none or a newer version made it, `StoreError` where it cannot
    be opened.
    """
    connection = _existing(path, _connect)
    try:
        _set_up(connection)
        if max_bytes is not None:
            most = (max_bytes - WAL_SHARE) // PAGE_BYTES
            connection.execute(f"PRAGMA max_page_count = {most}")
        connection.executescript(TABLES)
    except sqlite3.Error as error:
        connection.close()
        raise translate(error) from error
    except SetupError:
        connection.close()
        raise
    return connection


def create(path: Path) -> None:
    """Make an empty database of the newest version.

    Raises `SetupError` if there is one, `StoreError` where it cannot be made.
    """
    if path.exists():
        raise SetupError(f"{path} exists already")
    path.touch(mode=0o600)
    try:
        with closing(_connect(path)) as connection:
            connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
            _set_up(connection)
    except sqlite3.Error as error:
        raise translate(error) from error


def connect_reader(path: Path) -> sqlite3.Connection:
    """Open the database for reading alone.

    Raises `SetupError` where there is none, `StoreError` where it cannot be opened.
    """
    return _existing(path, _connect_reader)


def connect_guard(path: Path) -> sqlite3.Connection:
    """Open the database for its locks alone; it waits for nobody."""
    return sqlite3.connect(path, timeout=0, isolation_level=None)


def _existing(path: Path, connect: Callable[[Path], sqlite3.Connection]) -> sqlite3.Connection:
    """Open what `create` made, and nothing else: an empty file would be migrated as if it were."""
    if not path.exists():
        raise SetupError(f"{path} does not exist; `fieldpost init` makes it")
    try:
        check_regular(path)  # SQLite would wait for a FIFO
    except NotRegularError as error:
        raise SetupError(f"{path} cannot be read: {error.strerror}") from None
    if not os.access(path, os.R_OK):  # SQLite says no more than that it cannot
        raise SetupError(f"{path} cannot be read: {os.strerror(errno.EACCES)}")
    try:
        connection = connect(path)
    except sqlite3.Error as error:
        raise translate(error) from error
    try:
        if connection.execute("PRAGMA user_version").fetchone() == (0,):
            raise SetupError(f"{path} is empty or not a gateway's database: put a copy of it back")
    except sqlite3.Error as error:
        connection.close()
        raise translate(error) from error
    except SetupError:
        connection.close()
        raise
    return connection


def _connect_reader(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(
        f"{path.absolute().as_uri()}?mode=ro",
        uri=True,
        timeout=BUSY_TIMEOUT,
        isolation_level=None,
        check_same_thread=False,
    )


def _connect(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(
        path, timeout=BUSY_TIMEOUT, isolation_level=None, check_same_thread=False
    )


def _set_up(connection: sqlite3.Connection) -> None:
    for setting in _SETTINGS:
        connection.execute(setting)
    migrate(connection)


def migrations() -> list[tuple[int, str]]:
    """Return the migrations in order: their number and their SQL."""
    folder = resources.files("edge.engine") / "migrations"
    files = sorted(
        (entry for entry in folder.iterdir() if entry.name.endswith(".sql")),
        key=lambda entry: entry.name,
    )
    return [(int(entry.name[:4]), entry.read_text("utf-8")) for entry in files]


def migrate(connection: sqlite3.Connection) -> None:
    """Bring the schema to the newest version, each step in a transaction of its own."""
    steps = migrations()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version > steps[-1][0]:
        raise SetupError(
            f"the database is of version {version} and this fieldpost knows {steps[-1][0]}:"
            " install the newer fieldpost again"
        )
    noted = _NOTE_MIGRATED.format(key=MIGRATED, version=version) if version else ""
    for number, sql in steps:
        if number > version:
            connection.executescript(
                f"BEGIN IMMEDIATE; {sql}; {noted} PRAGMA user_version = {number}; COMMIT;"
            )


@contextmanager
def transaction(
    connection: sqlite3.Connection, now: Now, begin: str = "BEGIN IMMEDIATE"
) -> Iterator[Transaction]:
    """Run one transaction on a connection of one's own; commits at the end of the block."""
    try:
        connection.execute(begin)
        tx = Transaction(connection, now)
        yield tx
        tx.run_before_commit()
        connection.execute("COMMIT")
    except sqlite3.Error as error:
        raise translate(error) from error
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def translate(error: sqlite3.Error) -> StoreError:
    """Turn what SQLite raised into what it means for the gateway."""
    code = _code(error) & 0xFF
    text = f"the database: {error}"
    if code == sqlite3.SQLITE_FULL or _code(error) == sqlite3.SQLITE_IOERR_SHMSIZE:
        return StoreFull(text)
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return StoreBusy(text)
    if code in _BROKEN:
        return StoreBroken(text)
    return StoreError(text)


def _code(error: sqlite3.Error) -> int:
    return getattr(error, "sqlite_errorcode", 0)
