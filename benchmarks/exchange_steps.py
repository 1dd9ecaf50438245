"""The exchange as a micro benchmark: its steps, without sockets or commits; and its core.

The core of an exchange is what one process does with decoded requests: sessions, units of work and
group commit, without sockets, parsing and write buffers (`Core`).

A message's id can be reused after its release, so a few alternating messages are enough for any
number of exchanges.
"""

from __future__ import annotations

import asyncio
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path
from typing import Any, ClassVar, Final, TypeAlias, cast

from benchmarks import payload
from edge.config.limits import Limits
from edge.config.load import Config
from edge.config.options import Gateway, Pubsub, Readings
from edge.engine.dispatch.hooks import new_context
from edge.engine.dispatch.outputs import EndReason
from edge.engine.rules.commit_window import CommitWindow
from edge.engine.sessions import sessions
from edge.engine.sessions.sessions import DEFAULT, Declaration, guarded
from edge.engine.store import database, space
from edge.engine.store.database import Transaction
from edge.engine.store.group_commit import Store, UnitLimits
from edge.engine.time.clock import Clock
from edge.features.accounts.store import accounts
from edge.mqtt.codec import encode
from edge.mqtt.packets import (
    MAX_ID,
    V5,
    Connect,
    Packet,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
)
from edge.routing.xmpp.router import Router
from edge.server.mqtt.session import MqttSession
from edge.server.mqtt.traffic import Traffic
from edge.server.refusal_counters import RefusalCounters
from edge.server.registry import Registry
from edge.server.server_context import ServerContext
from edge.server.session import Session
from edge.server.xmpp.session import ResumableSessions, Streams, XmppSession
from edge.xmpp.envelopes import EnvelopeParser
from edge.xmpp.parser import StreamParser
from edge.xmpp.stanza import Stanza

LIMITS = Limits(unsealed_events=1_000_000_000)
"""The gateway's defaults, except for the limit of unsealed events: nothing seals them here."""


MESSAGES = 3
"""Messages that alternate. Their number does not divide that of the remembered keys, so that each
remembered key replaces another one, as it does with ids that are never reused."""

Unit: TypeAlias = "Callable[[Transaction], bytes]"
Exchange: TypeAlias = tuple[Unit, Unit]
"""The two units of work of an exchange: hold a message, and deliver it."""


class SensorStream:
    """A client's stream, ready for exchanges."""

    def __init__(self, number: int = 0) -> None:
        self.name = f"sensor{number:04d}"
        self.full = f"{self.name}@{payload.DOMAIN}/fw"
        self._generation = number + 1
        self._parser = StreamParser(LIMITS.stanza_bytes, envelopes=EnvelopeParser())
        self._parser.feed(payload.HEADER)
        self._router = Router(new_context(payload.DOMAIN, LIMITS))
        self._messages = cycle([_message(number, count) for count in range(MESSAGES)])
        self._assured, _deliver = next(self._messages)

    def parse(self) -> Stanza:
        """Parse the assured iq."""
        return self._stanza(self._assured)

    def route(self) -> Unit:
        """Parse the assured iq, find its handler, and decode it into a unit of work."""
        return self._unit(self._assured)

    def units(self) -> Exchange:
        """Return the units of work of the next message's exchange."""
        assured, deliver = next(self._messages)
        return self._unit(assured), self._unit(deliver)

    def exchange(self, tx: Transaction) -> int:
        """Run both halves of the exchange, and return the number of bytes of the answers."""
        hold, release = self.units()
        answers = hold(tx), release(tx)
        if not all(b"type='result'" in answer for answer in answers):
            raise RuntimeError(f"an exchange failed: {answers!r}")
        return len(answers[0]) + len(answers[1])

    def bind_session(self, tx: Transaction) -> None:
        """Bind the session in the database."""
        bare = self.full.partition("/")[0]
        sessions.bind(tx, self._generation, self.name, bare, self.full)

    def _stanza(self, data: bytes) -> Stanza:
        (item,) = self._parser.feed(data)
        if not isinstance(item, Stanza):
            raise TypeError(f"the parser returned {item!r} instead of a stanza")
        return item

    def _unit(self, data: bytes) -> Unit:
        work = self._router.route(self._stanza(data), self.full)
        if not callable(work):
            raise TypeError(f"the router returned {work!r} instead of a unit of work")
        return guarded(work, self._generation)


def _message(number: int, count: int) -> tuple[bytes, bytes]:
    key, tail = payload.msg_id(0, number, count), b"%04x%08x" % (number, count)
    return payload.assured(b"a" + tail, key), payload.deliver(b"d" + tail, key)


@contextmanager
def transaction(subject: SensorStream) -> Iterator[Transaction]:
    """Open a transaction of a new database with the client bound; roll it back at the end."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / database.FILE_NAME
        database.create(path)
        connection = database.connect(path)
        connection.execute("BEGIN IMMEDIATE")
        tx = Transaction(connection, Clock(0.0)())
        accounts.add(tx, subject.name, [], trusted=True)
        subject.bind_session(tx)
        yield tx
        connection.execute("ROLLBACK")
        connection.close()


async def open_senders(folder: Path, count: int) -> tuple[Store, list[list[Exchange]]]:
    """Open the store of a gateway's folder with sessions of senders; return their exchanges."""
    store = await _open_store(folder)
    subjects = [SensorStream(number) for number in range(count)]
    for subject in subjects:
        await store.run(subject.bind_session)
    return store, [[subject.units() for _ in range(MESSAGES)] for subject in subjects]


async def _open_store(folder: Path) -> Store:
    bounds = UnitLimits(LIMITS.waiting_units, LIMITS.waiting_bytes)
    return await Store.open(folder / database.FILE_NAME, Clock(0.0), bounds)


# The core of an exchange

KINDS: Final = ("xmpp", "mqtt_qos1", "mqtt_qos2")
"""Kinds of exchanges: `assured` and `deliver`; PUBLISH; PUBLISH and PUBREL. All are readings, which
end in the event log."""

PARTS: Final = ("handle", "units", "rows", "empty", "whole")
"""The parts of the core of an exchange, as `repeat_part` repeats them: `handle` is sessions that
handle requests, with a store that runs no units; `units` adds the units, in groups whose rows are
made and not written; `rows` adds the rows, not committed; `empty` is the whole with units that do
nothing; `whole` is all."""

SENDERS: Final = 50

WARM_UP: Final = 500
"""Exchanges before a measurement."""

_TOPIC: Final = "sensors/temperature"
_VALUE: Final = b"63.4"

_Request: TypeAlias = "Stanza | Packet"


class _FastDisk(CommitWindow):
    """A commit window for which no disk is slow, so that counts do not depend on the disk."""

    @property
    def is_slow(self) -> bool:
        return False


class _NoDatabase:
    """A connection that stores nothing."""

    def execute(self, _sql: str, _values: object = ()) -> None:
        pass

    def executemany(self, _sql: str, _values: object) -> None:
        pass


class _Peer:
    """A connection without a socket, whose peer sends requests that are decoded already.

    `answered` are the peers that send their next request in the next iteration of the event loop.
    """

    transport: ClassVar[str] = ""
    address = None
    allowance = 0
    last_input = 0.0
    closed = False
    written = 0

    def __init__(
        self,
        session: Session[Any],
        requests: Sequence[tuple[_Request, bytes]],
        answered: list[_Peer],
    ) -> None:
        self._session = session
        self._answered = answered
        self._requests = cycle(requests)
        self._expected = b""
        self._left = 0
        self._loop = asyncio.get_running_loop()
        self._done = self._loop.create_future()

    def start(self, requests: int) -> asyncio.Future[None]:
        """Send requests; the future is done after the last answer."""
        self._left, self._done = requests, self._loop.create_future()
        self.handle()
        return self._done

    def handle(self) -> None:
        """Let the session handle the next request."""
        request, self._expected = next(self._requests)
        self._session.handle(request)

    def _handle_next(self) -> None:
        peers = self._answered[:]
        self._answered.clear()
        for peer in peers:
            peer.handle()

    def send(self, data: bytes) -> None:
        self._left -= 1
        if self._expected not in data:
            self._done.set_exception(RuntimeError(f"an exchange failed: {data!r}"))
        elif self._left:
            if not self._answered:
                self._loop.call_soon(self._handle_next)
            self._answered.append(self)
        else:
            self._done.set_result(None)

    def backlog(self) -> int:
        return 0

    def flush(self) -> None:
        pass

    def end(self, reason: EndReason) -> None:
        self._done.set_exception(RuntimeError(f"a session has ended: {reason}"))

    detach = end

    def resume_reading(self) -> None:
        pass


class Core:
    """The core of a gateway with sessions of one kind (`KINDS`), whose peers have no sockets."""

    def __init__(self, context: ServerContext, kind: str, senders: int) -> None:
        self.store = context.store
        self._context = context
        self._registry: Registry[Any] = Registry(context.outputs, context.admission)
        self._streams = Streams(Router(context.engine), ResumableSessions())
        self._requests = 1 if kind == "mqtt_qos1" else 2
        self._kind = kind
        self._answered: list[_Peer] = []
        self.sessions = [self._session(number) for number in range(senders)]
        self.peers = [self._peer(number, one) for number, one in enumerate(self.sessions)]

    @classmethod
    async def open(cls, folder: Path, kind: str, senders: int = SENDERS) -> Core:
        """Create a database in a folder, open it, and bind the sessions."""
        database.create(folder / database.FILE_NAME)
        store = await _open_store(folder)
        store.commit_window = _FastDisk(store._is_full, lambda: store.waiting.units)
        engine = new_context(
            payload.DOMAIN,
            LIMITS,
            pubsub=Pubsub(auto_create=[_TOPIC]),
            readings=[Readings(filter=_TOPIC)],
        )
        store.load_images = engine.load_images
        settings = Config(gateway=Gateway(domain=payload.DOMAIN), limits=LIMITS)
        core = cls(ServerContext(folder, settings, store, engine, RefusalCounters()), kind, senders)
        await store.run(core._bind)
        return core

    def _session(self, number: int) -> Session[Any]:
        context, name = self._context, f"sensor{number:04d}"
        full = f"{name}@{payload.DOMAIN}/fw"
        own = context.outputs.next_generation(), name, full, ""
        if self._kind == "xmpp":
            return XmppSession(context, self._streams, self._registry, *own)
        return MqttSession(
            context, self._registry, *own, Connect(name), Traffic(), lambda _reason: None
        )

    def _peer(self, number: int, session: Session[Any]) -> _Peer:
        if self._kind == "xmpp":
            parser = StreamParser(LIMITS.stanza_bytes, envelopes=EnvelopeParser())
            parser.feed(payload.HEADER)
            sent = [data for count in range(MESSAGES) for data in _message(number, count)]
            stanzas = [cast("Stanza", parser.feed(data)[0]) for data in sent]
            requests: list[tuple[_Request, bytes]] = [(one, b"type='result'") for one in stanzas]
        else:
            requests = [one for id in range(1, MESSAGES + 1) for one in self._packets(id)]
        peer = _Peer(session, requests, self._answered)
        session.attach(peer)
        return peer

    def _packets(self, id: int) -> list[tuple[_Request, bytes]]:
        qos = int(self._kind[-1])
        publish = Publish(_TOPIC, _VALUE, qos, id=id)
        if qos == 1:
            return [(publish, encode(PubAck(id), V5))]
        return [(publish, encode(PubRec(id), V5)), (PubRel(id), encode(PubComp(id), V5))]

    def _bind(self, tx: Transaction) -> None:
        declared = DEFAULT
        if self._kind != "xmpp":
            declared = Declaration(
                qos="mqtt", adopts=False, resends=False, ordered=True, ids=MAX_ID, durable=3600.0
            )
        for one in self.sessions:
            accounts.add(tx, one.account, [], trusted=True)
            grant = accounts.login_grant(tx, one.account)
            sessions.bind(tx, one.generation, one.account, one.bare, one.full, grant, declared)

    async def exchange(self, times: int) -> None:
        """Let each peer have exchanges, `times` in all; each waits for its answers."""
        number = times // len(self.peers) * self._requests
        await asyncio.gather(*(peer.start(number) for peer in self.peers))

    async def idle(self, times: int) -> None:
        """Submit units that do nothing, as many as exchanges have, in groups of the same size."""
        store, loop, size = self.store, asyncio.get_running_loop(), len(self.peers)
        for _ in range(times // size * self._requests):
            done = loop.create_future()
            for _unit in range(size - 1):
                store.submit(_do_nothing, _ignore)
            store.submit(_do_nothing, done.set_result)
            await done

    async def close(self) -> None:
        self._context.close()
        await self.store.close()

    async def run_units(self, times: int, *, stores: bool) -> None:
        """Run the units of exchanges in one transaction, in groups; `stores` is whether their rows
        are stored."""
        store = self.store

        def run(tx: Transaction) -> None:
            space.reserve(tx, 0, LIMITS)  # measures the room, as the first unit of a group does
            if not stores:
                tx.connect(cast("sqlite3.Connection", _NoDatabase()), tx.now)
            self.collect(times, tx)
            tx.connect(store._writer.raw, tx.now)

        await store.run(run)

    def collect(self, times: int, tx: Transaction | None) -> None:
        """Let the sessions handle the requests of exchanges, and run the units in `tx`, in groups
        whose changes are written. Nothing is answered."""
        store = self.store
        for _ in range(times // len(self.peers) * self._requests):
            for peer in self.peers:
                peer.handle()
            if tx is not None:
                for unit in store._waiting:
                    unit.run(tx)
                    tx.take_sends()
                tx.run_before_commit()
            store._waiting.clear()


def _do_nothing(_tx: Transaction) -> None:
    pass


def _ignore(_outcome: object) -> None:
    pass


async def repeat_part(part: str, kind: str, times: int, folder: Path) -> float:
    """Repeat a part (`PARTS`) of the core of an exchange, in a new folder; return the seconds of
    processor time that it took.

    `times` is a multiple of `SENDERS`.
    """
    core = await Core.open(folder, kind)
    await core.exchange(WARM_UP)
    begun = time.process_time()
    if part == "whole":
        await core.exchange(times)
    elif part == "empty":
        await core.idle(times)
    elif part == "handle":
        core.collect(times, None)
    else:
        await core.run_units(times, stores=part == "rows")
    seconds = time.process_time() - begun
    await core.close()
    return seconds
