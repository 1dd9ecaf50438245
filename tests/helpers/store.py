"""A gateway without sockets for tests: real SQLite, real handlers, and a clock that the test sets.

`Gateway` runs each stanza in its own transaction. `opened` opens the group-committing store on an
event loop. Stanzas are parsed from bytes by the real parser, and answers are parsed to trees.
"""

from __future__ import annotations

import hashlib
import sqlite3
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, closing, contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from edge.config.limits import Limits
from edge.config.options import AccessRule, Pubsub, Readings, Uplink, Xmpp
from edge.engine.dispatch.encoding import encode
from edge.engine.dispatch.hooks import OffloadedWork, Work, new_context
from edge.engine.rules.service_time import Now
from edge.engine.sessions.session_lifecycle import Bound, SessionLifecycle
from edge.engine.sessions.sessions import DEFAULT, Declaration, guarded
from edge.engine.store import database, events, meta, space, tables
from edge.engine.store.database import MessageBytes, Receipt, Send, SentMessage, Transaction
from edge.engine.store.events import LANES, NewEvent, StoredEvent
from edge.engine.store.group_commit import Store, UnitLimits
from edge.engine.time import timers
from edge.features.accounts.store import accounts
from edge.features.messages.service import StoredMessage
from edge.routing.xmpp.router import Router
from edge.xmpp import PROTOCOL
from edge.xmpp.parser import StreamParser
from edge.xmpp.stanza import Stanza

T = TypeVar("T")

DOMAIN: Final = "gw.example"
EPOCH: Final = "01JZ0000000000000000000000"
WALL: Final = 1_760_000_000_000
BOUNDS: Final = UnitLimits(4096, 8 * 1024 * 1024)
QOS: Final = "urn:xmpp:qos"
STANZAS: Final = "urn:ietf:params:xml:ns:xmpp-stanzas"

_FIRST_EPOCH: Final = "INSERT INTO epochs VALUES (?, 0, 'created', 0)"
_OPEN: Final = (
    b"<?xml version='1.0'?><stream:stream xmlns='jabber:client'"
    b" xmlns:stream='http://etherx.jabber.org/streams' version='1.0' to='gw.example'>"
)


class Clock:
    """A clock that stands still until a test moves it; call it for the current moment."""

    def __init__(self, service: float = 1000.0) -> None:
        self.service = service
        self.wall_offset = 0

    def __call__(self) -> Now:
        """Return the current moment; the wall clock is the service seconds plus `wall_offset`."""
        return Now(self.service, WALL + round(self.service * 1000) + self.wall_offset, True)


def new_database(folder: Path) -> Path:
    """Create the database of a new gateway, as `fieldpost init` does."""
    path = folder / database.FILE_NAME
    path.touch(mode=0o600, exist_ok=False)
    path.write_bytes(_new_database_file())
    return path


@cache
def _new_database_file() -> bytes:
    """Return the content of a new database file, cached because creating one takes time."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / database.FILE_NAME
        database.create(path)
        with (
            closing(database.connect(path)) as connection,
            database.transaction(connection, Clock()()) as tx,
        ):
            tx.run(_FIRST_EPOCH, (EPOCH,))
            meta.write(tx, meta.EPOCH, EPOCH)
            meta.write(tx, meta.DECOY, bytes(32))
        return path.read_bytes()


@contextmanager
def in_memory() -> Iterator[sqlite3.Connection]:
    """Open a database in memory with the same schema, for tests that need many."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        _migrated().backup(connection)
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute(_FIRST_EPOCH, (EPOCH,))
        connection.execute("INSERT INTO meta VALUES (?, ?)", (meta.EPOCH, EPOCH))
        connection.executescript(tables.temporary())
        yield connection


@cache
def _migrated() -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    database.migrate(connection)
    return connection


@asynccontextmanager
async def opened(
    path: Path,
    clock: Clock | None = None,
    bounds: UnitLimits = BOUNDS,
    max_bytes: int | None = None,
) -> AsyncIterator[Store]:
    store = await Store.open(path, clock or Clock(), bounds, max_bytes)
    try:
        yield store
    finally:
        await store.close()


def stanza(xml: str) -> Stanza:
    """Parse one stanza as the listener would."""
    parser = StreamParser(1024 * 1024, 64, 2000, 64)
    parser.feed(_OPEN)
    (item,) = parser.feed(xml.encode())
    assert isinstance(item, Stanza)
    parser.close()
    return item


class Reply(NamedTuple):
    """A parsed answer: its attributes, its payload (not the error), and its error."""

    attrs: dict[str, str]
    payload: Element | None
    error: tuple[str, str] | None
    text: str

    @property
    def type(self) -> str:
        return self.attrs["type"]

    @property
    def content(self) -> Element:
        """The payload of an answer that must have one."""
        assert self.payload is not None, (self.error, self.text)
        return self.payload


def refused(reply: Reply | None) -> str:
    """Return the type and the condition of an error, such as `cancel/not-allowed`."""
    assert reply is not None
    assert reply.type == "error", reply
    assert reply.error is not None
    return "/".join(reply.error)


def read_reply(answer: bytes) -> Reply | None:
    if not answer:
        return None
    root = read_element(answer)
    error = root.find("{jabber:client}error")
    payloads = [child for child in root if child is not error]
    assert len(payloads) <= 1
    type_and_condition, text = None, ""
    if error is not None:
        condition = error[0].tag.removeprefix(f"{{{STANZAS}}}")
        type_and_condition = (error.get("type", ""), condition)
        text = error.findtext(f"{{{STANZAS}}}text", "")
    return Reply(dict(root.attrib), payloads[0] if payloads else None, type_and_condition, text)


def read_element(stanza: bytes) -> Element:
    """Parse a stanza of the gateway as a client would."""
    return read_elements(stanza)[0]


def read_elements(stanzas: bytes) -> list[Element]:
    """Parse stanzas of the gateway as a client would."""
    return list(ElementTree.fromstring(b"<s xmlns='jabber:client'>%b</s>" % stanzas))  # noqa: S314


_OFFLINE = """
SELECT a.name, o.sender, o.received, o.stanza, o.kind, o.content_type
FROM offline AS o JOIN accounts AS a ON a.id = o.account ORDER BY o.id
"""


class Sent(NamedTuple):
    """A message that a session was sent, and the stanza that it got."""

    generation: int
    message: SentMessage
    receipt: Receipt | None
    stanza: bytes


class Gateway:
    """A gateway on one database connection; each stanza is one committed transaction.

    Images of rows are kept until a rollback, or until a test changes rows itself (`tx`).
    """

    def __init__(
        self,
        path: Path,
        limits: Limits | None = None,
        clock: Clock | None = None,
        xmpp: Xmpp | None = None,
        pubsub: Pubsub | None = None,
        *,
        accounts: bool = True,
        topics: Sequence[str] = (),
        access: Sequence[AccessRule] = (),
        readings: Sequence[Readings] = (),
    ) -> None:
        self.path = path
        self.limits = limits or Limits()
        self.clock = clock or Clock()
        uplink = Uplink(topics=list(topics))
        self.access = list(access)
        """The rules `[[access]]`, which a test may change in place, as a reload does."""
        options = DOMAIN, self.limits, xmpp, pubsub
        context = new_context(
            *options, accounts=accounts, uplink=uplink, access=self.access, readings=readings
        )
        self.router = Router(context)
        self.lifecycle = SessionLifecycle(self.router.context)
        self.sent: list[Sent] = []
        self.due: float | None = None
        self._generation = 0
        self._bound: dict[str, int] = {}
        self.is_resumed = False
        """Whether the last session that was bound found a state of earlier sessions."""
        self.routes: dict[str, Callable[[str], Work]] = {}
        """The functions that return the work of what sessions of other protocols send."""
        self._protocols: dict[int, str] = {}
        self.managed: set[str] = set()
        """Full JIDs whose sessions have stream management (XEP-0198)."""
        self.cache: dict[str, Any] = {}
        self._changes = 0
        self.connection = self._connect()

    def _connect(self) -> sqlite3.Connection:
        """Open the database without syncs, because these tests do not cut the power."""
        connection = database.connect(self.path)
        connection.execute("PRAGMA synchronous = OFF")
        return connection

    def close(self) -> None:
        self.connection.close()

    def crash(self) -> None:
        """Lose what is not committed, as after `kill -9`."""
        self.connection.close()
        self.connection = self._connect()
        self.cache.clear()
        self._bound.clear()

    def tx(self, unit: Callable[[Transaction], T]) -> T:
        """Run a unit of work of a test in its own transaction, and commit it."""
        changes = self.connection.total_changes
        outcome = self.commit(unit)
        if self.connection.total_changes != changes:
            self.cache.clear()
        return outcome

    def commit(self, unit: Callable[[Transaction], T]) -> T:
        """Run a unit of work of the gateway in its own transaction, and commit it."""
        if self.connection.total_changes != self._changes:
            self.cache.clear()
        try:
            with database.transaction(self.connection, self.clock()) as tx:
                tx.cache = self.cache
                outcome = unit(tx)
                self.due = tx.due
        except BaseException:
            self.cache.clear()
            raise
        self._changes = self.connection.total_changes
        self._deliver(tx.sends)
        return outcome

    def _deliver(self, sends: Sequence[Send]) -> None:
        for send in sends:
            protocol = self._protocols.get(send.generation, PROTOCOL)
            stanza = encode(self.router.context, protocol, send.message)
            self.sent.append(Sent(*send, stanza))

    def commit_in_memory(self, unit: Callable[[Transaction], T]) -> T:
        """Run a unit of work without statements, as during another commit, and commit its changes.

        Raises `NeedsDatabase` if it needs a statement.
        """
        space.measure_room(Transaction(self.connection, self.clock(), self.cache))
        tx = Transaction(None, self.clock(), self.cache)
        outcome = unit(tx)
        sends = tx.take_sends()
        self.connection.execute("BEGIN IMMEDIATE")
        tx.connect(self.connection, self.clock())
        tx.run_before_commit()
        self.connection.execute("COMMIT")
        self._changes = self.connection.total_changes
        self._deliver(sends)
        return outcome

    def add(self, name: str, *, trusted: bool = True) -> None:
        """Provision a device, without credentials."""
        self.tx(lambda tx: accounts.add(tx, name, (), trusted=trusted))

    def bind(self, full: str, declared: Declaration = DEFAULT, protocol: str = PROTOCOL) -> int:
        self._generation += 1
        generation = self._generation
        self._protocols[generation] = protocol
        bare = full.partition("/")[0]
        account = bare.partition("@")[0]
        names = account, bare, full
        bound = self.commit(
            lambda tx: self.lifecycle.bind(tx, generation, *names, declared=declared)
        )
        assert isinstance(bound, Bound), bound
        self.is_resumed = bound.is_resumed
        self._bound[full] = generation
        return generation

    def bound(self) -> list[str]:
        return list(self._bound)

    def is_bound(self, full: str) -> bool:
        return full in self._bound

    def is_generation_bound(self, generation: int) -> bool:
        return generation in self._bound.values()

    def generation(self, full: str) -> int:
        return self._bound[full]

    def work(self, full: str, xml: str) -> Callable[[Transaction], bytes]:
        """Route a stanza, or what another protocol has; return its unit of work."""
        generation = self._bound[full] if full in self._bound else self.bind(full)
        protocol = self._protocols[generation]
        if protocol in self.routes:
            return guarded(self.routes[protocol](xml), generation)
        received = stanza(xml)
        received.acknowledged = full in self.managed
        work = self.router.route(received, full)
        if isinstance(work, bytes):
            answer = work
            return lambda _tx: answer
        if isinstance(work, OffloadedWork):
            work = work.prepare()
        return guarded(work, generation)

    def send(self, full: str, xml: str) -> Reply | None:
        """Handle a stanza of a session; return the answer."""
        return read_reply(self.commit(self.work(full, xml)))

    def ask(self, full: str, xml: str) -> Reply:
        """Handle a stanza that must be answered; return the answer."""
        reply = self.send(full, xml)
        assert reply is not None
        return reply

    def received(self, full: str) -> list[Reply]:
        """Return the stanzas sent to a session, except answers, since the last call."""
        replies = [read_reply(send.stanza) for send in self.sends(full)]
        return [reply for reply in replies if reply is not None]

    def sends(self, full: str) -> list[Sent]:
        """Return the stanzas that a session was sent since the last call, with receipts."""
        generation = self._bound[full]
        sends = [send for send in self.sent if send.generation == generation]
        self.sent = [send for send in self.sent if send.generation != generation]
        return sends

    def elements(self, full: str) -> list[Element]:
        """Return the stanzas of `sends` as trees, and acknowledge them."""
        sends = self.sends(full)
        receipts = [send.receipt for send in sends if send.receipt is not None]
        if receipts:
            self.acknowledge(full, *receipts)
        return [read_element(send.stanza) for send in sends]

    def detach(self, full: str) -> None:
        generation = self.generation(full)
        self.commit(lambda tx: self.lifecycle.detach(tx, generation))

    def resume(self, full: str) -> bool:
        generation = self.generation(full)
        return self.commit(lambda tx: self.lifecycle.resume(tx, generation))

    def acknowledge(self, full: str, *receipts: Receipt) -> None:
        generation = self.generation(full)
        self.commit(lambda tx: self.lifecycle.acknowledge(tx, generation, receipts))

    def end(self, full: str, *unacknowledged: SentMessage) -> None:
        generation = self._bound.pop(full)
        self.commit(lambda tx: self.lifecycle.end(tx, generation, unacknowledged))

    def run_timers(self) -> None:
        self.commit(lambda tx: timers.run(self.router.context, tx))

    def events(self, lane: str | None = None, name: str | None = None) -> list[StoredEvent]:
        """Return the unsealed events, of one lane or all, of one name or any."""
        return unsealed_events(self.connection, lane, name)

    def offline(self) -> list[tuple[str, str, bytes]]:
        """Return what the offline store has: the account, the sender and the stanza of each row."""
        rows = self.connection.execute(_OFFLINE).fetchall()
        context = self.router.context
        return [
            (account, sender, encode(context, PROTOCOL, StoredMessage(content, sender, received)))
            for account, sender, received, *values in rows
            for content in [MessageBytes(*values)]
        ]

    def count(self, sql: str, *values: Any) -> Any:
        """Return the first column of the first row of a query."""
        return self.connection.execute(sql, values).fetchone()[0]


MakeGateway = Callable[..., Gateway]
"""Makes a gateway with limits and options; the fixture `make_gateway` is one."""


def unsealed_events(
    connection: sqlite3.Connection, lane: str | None = None, name: str | None = None
) -> list[StoredEvent]:
    """Return the unsealed events in a database, optionally of one lane and of one name."""
    tx = Transaction(connection, Clock()())
    lanes = LANES if lane is None else (lane,)
    rows = [row for one in lanes for row in events.read(tx, one, 0, 100_000, 2**40)]
    return [row for row in rows if name is None or row.name == name]


def delete_unsealed(tx: Transaction, lane: str) -> None:
    """Delete the unsealed events of a lane, as if they were sealed."""
    sealed, last = events.last_numbers(tx, lane)
    if last > sealed:
        events.delete_sealed(tx, lane, last)


def append(tx: Transaction, lane: str, count: int, event: NewEvent) -> None:
    """Append the same event several times in a transaction."""
    for _ in range(count):
        events.append(tx, lane, event)
    tx.run_before_commit()


def digest_of(name: str) -> bytes:
    return hashlib.sha256(name.encode()).digest()


def log(text: str, **attrs: str) -> str:
    attributes = "".join(f" {key}='{value}'" for key, value in attrs.items())
    return (
        f"<message xmlns='jabber:client'><log xmlns='urn:xmpp:eventlog'{attributes}>"
        f"<message>{text}</message></log></message>"
    )


def assured(msg_id: str, message: str, to: str | None = DOMAIN, ns: str = QOS) -> str:
    address = "" if to is None else f" to='{to}'"
    return (
        f"<iq type='set' id='a-{msg_id}'{address}>"
        f"<assured xmlns='{ns}' msgId='{msg_id}'>{message}</assured></iq>"
    )


def deliver(msg_id: str, to: str | None = DOMAIN, ns: str = QOS) -> str:
    address = "" if to is None else f" to='{to}'"
    return f"<iq type='set' id='d-{msg_id}'{address}><deliver xmlns='{ns}' msgId='{msg_id}'/></iq>"


def acknowledged(message: str, to: str | None = DOMAIN, ns: str = QOS) -> str:
    address = "" if to is None else f" to='{to}'"
    payload = f"<acknowledged xmlns='{ns}'>{message}</acknowledged>"
    return f"<iq type='set' id='k'{address}>{payload}</iq>"
