"""Open and migrate the database; `Transaction` is the interface of units of work.

The running gateway's transactions are in `group_commit`. `transaction` is for commands, whether the
gateway runs or not.
"""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

import msgspec

from edge.engine.rules.service_time import Now
from edge.engine.rules.space_rules import WAL_SHARE
from edge.engine.store import tables
from edge.errors import SetupError, StoreBroken, StoreBusy, StoreDamaged, StoreError, StoreFull
from sync.common.regular_files import NotRegularError, check_regular

T = TypeVar("T")

Values: TypeAlias = Sequence[Any] | Mapping[str, Any]

FILE_NAME: Final = "fieldpost.db"

BUSY_TIMEOUT: Final = 5.0
"""Seconds to wait for a transaction of another process, such as a command, before `StoreBusy` is
raised. Such transactions take milliseconds."""

PAGE_BYTES: Final = 4096

_SETTINGS: Final = (
    "PRAGMA journal_mode = WAL",
    "PRAGMA synchronous = FULL",
    "PRAGMA foreign_keys = ON",
    "PRAGMA temp_store = MEMORY",
    "PRAGMA cache_size = -4096",  # KiB
    "PRAGMA journal_size_limit = 4194304",  # bytes that a WAL file keeps after a checkpoint
)

MIGRATED: Final = "migrated_from"
"""The key in `meta` of the schema version before a migration; 0 once the migration is logged."""

_NOTE_MIGRATED: Final = """
INSERT INTO meta (key, value) VALUES ('{key}', {version})
ON CONFLICT (key) DO UPDATE SET value = excluded.value WHERE value = 0;
"""
"""Statement that stores the old schema version, unless an earlier migration is not logged yet."""

_pack: Final = msgspec.msgpack.Encoder().encode

# Python's sqlite3 looks for an adapter of each value that is no int, float or str, by several
# look-ups that fail and take 1,500 instructions. These adapters return the value as it is.
_NOTHING: Final[Any] = {}
sqlite3.register_adapter(type(None), _NOTHING.get)
sqlite3.register_adapter(bytes, bytes.__bytes__)

_BROKEN: Final = (
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_READONLY,  # the file system was remounted after an error
    sqlite3.SQLITE_CANTOPEN,
)


class Receipt(NamedTuple):
    """The kind and number of the row that a message was made from.

    While the row is in flight (`in_flight`), the hooks of its kind run when the peer acknowledges
    the message, or when its session ends. They run even if the row was deleted meanwhile.
    """

    kind: str
    row: int


AWAITS_ANSWER: Final = Receipt("", 0)
"""The receipt of a message whose row is in flight until the peer's application answers. No hook
runs when the message is acknowledged (XEP-0198). If the session ends without the answer, the hooks
for rows in flight run (`Hooks.on_unacknowledged`)."""


SentMessage: TypeAlias = tuple[Any, ...]
"""A message to a session: a `NamedTuple` of a type that a feature declares. The session's protocol
encodes it (`Hooks.encode`). If the message comes from another account, its attribute `sender` is
the address of this account or of one of its sessions."""


class MessageBytes(NamedTuple):
    """A message as rows store it; it can be sent like other messages.

    Attributes:
        body: what a device handed over for another one, unchanged; or, if there is a `kind`, the
            fields of a message of the gateway (`encoding.pack`).
        kind: the name of the message's type (`Hooks.store`); "" if a device handed it over.
        content_type: the media type of what a device handed over; "" is an XML element.
    """

    body: bytes
    kind: str = ""
    content_type: str = ""


MESSAGE_OVERHEAD: Final = 128
"""Bytes of memory that a message to send takes beside the texts and bytes in it."""


class Send(NamedTuple):
    """A message that is sent to a session after the commit."""

    generation: int
    message: SentMessage
    receipt: Receipt | None = None


def estimate_size(message: SentMessage, known: dict[int, int]) -> int:
    """Return about how many bytes of memory a message takes until it is sent.

    `known` has the sizes of structs, by identity, that earlier messages have counted: a struct may
    be in many of them.
    """
    size = MESSAGE_OVERHEAD
    for field in message:
        if isinstance(field, (bytes, str)):
            size += len(field)
        elif isinstance(field, tuple):
            size += estimate_size(field, known)
        elif isinstance(field, msgspec.Struct):
            found = known.get(id(field))
            if found is None:
                found = estimate_size(msgspec.structs.astuple(field), known)
                known[id(field)] = found
            size += found
    return size


class NeedsDatabase(Exception):
    """A unit of work in memory needs SQL: it is undone, and runs again with a connection."""


class Transaction:
    """The interface of a unit of work: rows, the current moment, messages to send, and the timer.

    A feature's store may hold an image of its rows (a copy in memory) in `cache`. The store changes
    the image at once, and writes the rows with `write_later`, before the next statement; so every
    statement reads rows that equal the image. Without a connection, a unit can only use images
    (`group_commit`).

    Attributes:
        now: the moment of the transaction.
        due: the service second that the timer is set to, if any.
        sends: the messages that the current unit sends.
        outcomes: levels of quality of service and outcomes of messages (`message_counts`).
        memo: what stores cache until the end of the transaction.
        cache: what stores cache until a rollback or a change by another process.
    """

    __slots__ = (
        "_connection",
        "_earlier",
        "_endings",
        "_outcomes_before",
        "_undo",
        "_unwritten",
        "cache",
        "due",
        "memo",
        "now",
        "outcomes",
        "sends",
    )  # fmt: skip

    def __init__(
        self,
        connection: sqlite3.Connection | None,
        now: Now,
        cache: dict[str, Any] | None = None,
    ) -> None:
        self._connection = connection
        self.cache = {} if cache is None else cache
        self.now = now
        self.due: float | None = None
        self.memo: dict[str, Any] = {}
        self.sends: list[Send] = []
        self.outcomes: list[tuple[int, str]] = []
        self._outcomes_before = 0  # the number of those of earlier units
        self._earlier: list[list[Send]] = []  # of earlier units of this transaction
        self._endings: list[Callable[[Transaction], None]] = []
        self._unwritten: list[Callable[[Transaction], None]] = []
        self._undo: list[tuple[Callable[..., object], tuple[Any, ...]]] = []

    def connect(self, connection: sqlite3.Connection, now: Now) -> None:
        """Set the connection, so that statements can run, and the current moment."""
        self._connection = connection
        self.now = now

    @property
    def is_in_memory(self) -> bool:
        """Return whether there is no connection, so that statements raise `NeedsDatabase`."""
        return self._connection is None

    def run(self, sql: str, values: Values = ()) -> sqlite3.Cursor:
        """Execute a statement and return its cursor."""
        if self._unwritten:
            self.write()
        if self._connection is None:
            raise NeedsDatabase
        return self._connection.execute(sql, values)

    def run_many(self, sql: str, values: Iterable[Values]) -> sqlite3.Cursor:
        """Execute a statement once for each of several sequences of values."""
        if self._unwritten:
            self.write()
        if self._connection is None:
            raise NeedsDatabase
        return self._connection.executemany(sql, values)

    def row(self, sql: str, values: Values = ()) -> Any:
        """Return the first row, or `None`."""
        return self.run(sql, values).fetchone()

    def rows(self, sql: str, values: Values = ()) -> list[Any]:
        """Return all rows; the statement has to limit their number."""
        return self.run(sql, values).fetchall()

    def write_later(self, write: Callable[[Transaction], None]) -> None:
        """Call `write` once, before the next statement or the commit, whichever is first.

        `write` writes to the database what has changed only in an image (a copy of rows in memory).
        """
        if write not in self._unwritten:
            self._unwritten.append(write)

    def unwritten(
        self, key: str, create: Callable[[], T], write: Callable[[Transaction], None]
    ) -> T:
        """Return `memo[key]`: an object with changes of an image that are not in its rows yet.

        `create` makes the object if there is none. Before the next statement or the commit, `write`
        is called: it must remove the object from `memo` and write the changes.
        """
        found: T | None = self.memo.get(key)
        if found is None:
            found = self.memo[key] = create()
            self._unwritten.append(write)
        return found

    def write(self) -> None:
        """Write the changes that are only in images (copies in memory) so far to the database."""
        if self._connection is None:
            raise NeedsDatabase
        unwritten, self._unwritten = self._unwritten, []
        for write in unwritten:
            write(self)

    def on_undo(self, function: Callable[..., object], *args: Any) -> None:
        """Register a function that `undo` calls to undo a change of an image (see the class)."""
        self._undo.append((function, args))

    def undo(self) -> None:
        """Undo the changes that the current unit made in images, drop its sends and outcomes."""
        while self._undo:
            function, args = self._undo.pop()
            function(*args)
        self.sends = []
        del self.outcomes[self._outcomes_before :]

    def before_commit(self, ending: Callable[[Transaction], None]) -> None:
        """Run a function once, after all units of this transaction and before its commit."""
        self._endings.append(ending)

    def run_before_commit(self) -> None:
        """Run the functions registered by `before_commit`, and write changes made in memory."""
        for ending in self._endings:
            ending(self)
        self._endings.clear()
        self.write()

    def send(self, generation: int, message: SentMessage, receipt: Receipt | None = None) -> None:
        """Send a message to a session when this transaction commits.

        With a `receipt`, hooks of its kind run when the peer has received the message, or when the
        session ends before that (see `Receipt`).
        """
        self.sends.append(Send(generation, message, receipt))

    def take_sends(self) -> Sequence[Send]:
        """End the current unit, and return the messages that it sends."""
        self._undo.clear()
        self._outcomes_before = len(self.outcomes)
        sends = self.sends
        if not sends:
            return ()
        self.sends = []
        self._earlier.append(sends)
        return sends

    def withdraw_sends(self, generation: int) -> list[Send]:
        """Remove and return messages that earlier units of this transaction sent to a session."""
        found = []
        for sends in self._earlier:
            withdrawn = [send for send in sends if send.generation == generation]
            if withdrawn:
                found += withdrawn
                self.on_undo(sends.__setitem__, slice(None), list(sends))
                sends[:] = [send for send in sends if send.generation != generation]
        return found

    def wake_at(self, service: float) -> None:
        """Set the timer to fire at a service second, unless it is set to an earlier one."""
        if self.due is None or service < self.due:
            self.due = service


def connect(path: Path, max_bytes: int | None = None) -> sqlite3.Connection:
    """Open an existing database, migrate it to the newest version, and return the connection.

    The database file and its WAL together are limited to `max_bytes`.

    Raises:
        SetupError: there is no database, or a newer fieldpost made it.
        StoreError: the database cannot be opened.
    """
    connection = _existing(path, _connect)
    try:
        _set_up(connection)
        if max_bytes is not None:
            connection.execute(limit_pages(max_bytes))
        connection.executescript(tables.temporary())
    except sqlite3.Error as error:
        connection.close()
        raise translate(error) from error
    except SetupError:
        connection.close()
        raise
    return connection


def limit_pages(max_bytes: int) -> str:
    """Return the SQL statement that limits the database file to `max_bytes` minus `WAL_SHARE`."""
    return f"PRAGMA main.max_page_count = {(max_bytes - WAL_SHARE) // PAGE_BYTES}"


def create(path: Path) -> None:
    """Create an empty database of the newest version.

    Raises:
        SetupError: the file exists already.
        StoreError: the file cannot be created.
    """
    if path.exists():
        raise SetupError(f"{path} exists already; choose another folder (`--dir`)")
    path.touch(mode=0o600)
    try:
        with closing(_connect(path)) as connection:
            connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
            _set_up(connection)
    except sqlite3.Error as error:
        raise translate(error) from error


def connect_reader(path: Path) -> sqlite3.Connection:
    """Open the database read-only.

    Raises:
        SetupError: there is no database.
        StoreError: the database cannot be opened.
    """
    return _existing(path, _connect_reader)


def _existing(path: Path, connect: Callable[[Path], sqlite3.Connection]) -> sqlite3.Connection:
    """Open a database that `create` made; refuse an empty file, which `migrate` would fill."""
    if not path.exists():
        raise SetupError(f"{path} does not exist; {lost_advice(path.parent)}")
    try:
        check_regular(path)  # SQLite would block on a FIFO
    except NotRegularError as error:
        raise SetupError(f"{path} cannot be read: {error.strerror}") from None
    if not os.access(path, os.R_OK):  # SQLite does not say why it cannot
        raise SetupError(f"{path} cannot be read: {os.strerror(errno.EACCES)}")
    try:
        connection = connect(path)
    except sqlite3.Error as error:
        raise translate(error) from error
    try:
        if connection.execute("PRAGMA user_version").fetchone() == (0,):
            raise StoreDamaged(f"{path} is empty or not a gateway's database")
    except sqlite3.Error as error:
        connection.close()
        raise translate(error) from error
    except StoreDamaged:
        connection.close()
        raise
    return connection


def restore_advice(folder: Path) -> str:
    """Return how to restore the last backup of the gateway in `folder`."""
    return (
        f"stop the gateway, move {folder} away, and restore the last backup: `fieldpost restore"
        f" FILE --dir {folder}`; it also restores the configuration and the keys"
    )


def lost_advice(folder: Path) -> str:
    """Return what to do if there is no database in `folder`."""
    if not (folder / "fieldpost.toml").exists():
        return f"create a gateway with `fieldpost init --domain NAME --dir {folder}`"
    return (
        f"{restore_advice(folder)}; without a backup, move {folder} away, create a new gateway with"
        f" `fieldpost init --domain NAME --dir {folder}`, copy fieldpost.toml and the folder pki"
        " into it, and add the devices again"
    )


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
    """Return (number, SQL) of each migration, in order."""
    files = sorted((Path(__file__).parents[1] / "migrations").glob("*.sql"))
    return [(int(path.name[:4]), path.read_text("utf-8")) for path in files]


def migrate(connection: sqlite3.Connection) -> None:
    """Migrate the schema to the newest version, in one transaction, so that an upgrade that fails
    leaves a database that the older fieldpost accepts."""
    steps = migrations()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    newest = steps[-1][0]
    if not is_older(version, newest):
        return
    connection.create_function("pack_event", 11, _pack_event, deterministic=True)
    due = "; ".join(sql for number, sql in steps if number > version)
    note_sql = _NOTE_MIGRATED.format(key=MIGRATED, version=version) if version else ""
    connection.executescript(
        f"BEGIN IMMEDIATE; {due}; {note_sql} PRAGMA user_version = {newest}; COMMIT;"
    )


def is_older(version: int, newest: int) -> bool:
    """Return whether a database has an older schema than this program, whose version is `newest`.

    Raises `SetupError` for a newer one.
    """
    if version > newest:
        raise SetupError(
            f"the database has schema version {version}, and this fieldpost supports up to"
            f" {newest}; install the newer fieldpost again, or restore a backup of this version"
        )
    return version < newest


def _pack_event(*fields: Any) -> bytes:
    """Return an event of the table `events` as the data of a batch with one event; for migrations,
    so later versions must not change what it returns."""
    *others, tags = fields
    return _pack([(*others, msgspec.json.decode(tags) if tags else None)])


def schema_version(tx: Transaction) -> int:
    """Return the version of the schema."""
    return int(tx.row("PRAGMA user_version")[0])


def integrity_errors(connection: sqlite3.Connection, max_errors: int, *, deep: bool) -> list[str]:
    """Return errors in a database's structure, at most `max_errors`; with `deep`, check every index
    entry and foreign key, too."""
    check = "integrity_check" if deep else "quick_check"
    found = [row[0] for row in connection.execute(f"PRAGMA {check}({max_errors})")]
    if deep:
        rows = connection.execute("PRAGMA foreign_key_check").fetchmany(max_errors)
        found += [f"row {row[1]} of {row[0]} refers to a missing row of {row[2]}" for row in rows]
    return [text for text in found if text != "ok"]


@contextmanager
def transaction(
    connection: sqlite3.Connection, now: Now, begin: str = "BEGIN IMMEDIATE"
) -> Iterator[Transaction]:
    """Run one transaction on a connection, and commit at the end of the block.

    `begin` is the statement that begins it.
    """
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
    """Return the store error for an error of SQLite."""
    code = _code(error) & 0xFF
    text = f"the database: {error}"
    if _code(error) == sqlite3.SQLITE_IOERR_SHMSIZE:
        return StoreFull("the database: the disk is full")
    if code == sqlite3.SQLITE_FULL:
        return StoreFull(text)
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return StoreBusy(text)
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return StoreDamaged(text)
    if code in _BROKEN:
        return StoreBroken(text)
    return StoreError(text)


def _code(error: sqlite3.Error) -> int:
    return getattr(error, "sqlite_errorcode", 0)
