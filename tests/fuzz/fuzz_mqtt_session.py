"""Target: connections of MQTT on a real store, whose clients send any bytes.

An input is steps separated by bytes 0xFF. The first byte of a step names its client: `1` and `2`
are devices that speak 5.0, `3` speaks 3.1.1 and has the account of `1`; any other byte is part of
what `1` sends. A client without a connection makes one, and sends a CONNECT of its own unless the
step begins with one. With a client's digit, `A` answers what it was sent, and `L` loses its
connection; `T` lets two hours pass. Each input begins with the same database.

- The gateway raises no unexpected error, neither in units of work nor on the event loop.
- It sends legal packets of the client's version, after one CONNACK, and within the size and the
  number of unacknowledged messages that the client accepts.
- Each request is answered once, in order. Nothing follows the end of a connection.
- No session is left when all connections are lost.
"""

from __future__ import annotations

import asyncio
import atexit
import re
import sqlite3
import tempfile
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future
from functools import cache, partial
from pathlib import Path
from typing import Any, Final, ParamSpec, TypeGuard, TypeVar

from edge import credentials
from edge.config import load
from edge.engine.dispatch.hooks import Context, new_context
from edge.engine.store import database
from edge.engine.store.database_thread import DatabaseThread
from edge.engine.store.group_commit import Store
from edge.engine.store.space import SpaceGuard
from edge.engine.time import timers
from edge.features.accounts.store import accounts
from edge.mqtt.codec import PacketParser, encode
from edge.mqtt.packets import (
    MAX_ID,
    MAX_PACKET,
    V5,
    V311,
    Auth,
    ConnAck,
    Connect,
    Disconnect,
    Fault,
    Packet,
    Property,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
    SubAck,
    Subscribe,
    Subscription,
    UnsubAck,
    Unsubscribe,
)
from edge.mqtt.reasons import FAILURE
from edge.server.login import PLAIN_KEYS
from edge.server.mqtt.connection import MqttConnection
from edge.server.mqtt.packet_input import PacketInput
from edge.server.mqtt.session import MqttSession
from edge.server.mqtt.traffic import Traffic
from edge.server.refusal_counters import RefusalCounters
from edge.server.registry import Registry
from edge.server.server_context import ServerContext
from edge.server.wire import SocketWire
from tests.helpers.mqtt_packets import PACKETS
from tests.helpers.store import BOUNDS, DOMAIN, Clock, new_database

P = ParamSpec("P")
T = TypeVar("T")

MAX_BYTES: Final = 1024
MAX_STEPS: Final = 16
PASSED: Final = 7200.0
"""Seconds after which silent clients are lost."""
DAY: Final = 86_400
LARGEST: Final = 1 << 20
"""Maximum bytes of a packet of the gateway: far more than any in an input."""

ANONYMOUS: Final = "pump1"
PASSWORD: Final = b"p"
CONFIGURATION: Final = f"""
gateway.domain = "{DOMAIN}"
mqtt.require_tls = false
mqtt.anonymous = "{ANONYMOUS}"
pubsub.auto_create = ["#"]
[limits]
stanzas_per_second = 1_000_000
stanzas_at_once = 1_000_000
held_messages_per_source = 3
outbox_messages_per_account = 8
outbox_window = 2
nodes_per_account = 3
subscriptions_per_account = 4
""".encode()

CLIENTS: Final = {b"1": ("pump1", V5), b"2": ("pump2", V5), b"3": ("pump1", V311)}
_EVENT: Final = re.compile(rb"([TAL])([123]?)")
_CONNECT: Final = 0x10


def check(data: bytes) -> None:
    """Let clients connect, send and leave."""
    _loop().run_until_complete(_run(data))


async def _run(data: bytes) -> None:
    site = await _Site.open()
    try:
        for step in data.split(b"\xff", MAX_STEPS)[:MAX_STEPS]:
            if event := _EVENT.fullmatch(step):
                site.handle_event(event[1], site.clients[event[2] or b"1"])
            else:
                who = step[:1] if step[:1] in CLIENTS else b""
                site.clients[who or b"1"].send(step[len(who) :])
            await site.settle()
        for client in site.clients.values():
            client.lose()
        await site.settle()
        assert not site.registry.sessions()
        assert not site.context.admission.session_count
        assert not site.context.unacknowledged_bytes
    finally:
        await site.close()


def seeds() -> list[bytes]:
    """Return steps with each packet of a client, and exchanges at each QoS."""
    found = []
    for sent in PACKETS.values():
        if sent.from_client:
            who = b"1" if sent.version == V5 else b"3"
            found.append(who + encode(sent.packet, sent.version) + b"\xff" + b"A" + who)
    for qos in range(3):
        for topic, text in (("a/b", "a/+"), ("a", "$share/s/#")):
            subscribe = encode(Subscribe(1, (Subscription(text, qos),)), V5)
            publish = encode(Publish(topic, b"21.5", qos, qos > 0, id=7 if qos else 0), V311)
            release = b"3" + encode(PubRel(7), V311) if qos == 2 else b"T"
            steps = (b"2" + subscribe, b"3" + publish, release, b"A2", b"L2", b"A2", b"A2", b"L3")
            found.append(b"\xff".join(steps))
    return [one for one in found if len(one) <= MAX_BYTES]


class _Loop(asyncio.SelectorEventLoop):
    """An event loop on which the target lets time pass."""

    passed = 0.0

    def time(self) -> float:
        return super().time() + self.passed


class _Store(Store):
    """A store that counts the units of work."""

    submitted = 0

    def submit(self, *args: Any, **options: Any) -> None:
        self.submitted += 1
        super().submit(*args, **options)


class _HereDatabase(DatabaseThread):
    """A database without a thread, so that each input takes the same course."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._raw = connection
        self._raw.execute("PRAGMA synchronous = OFF")

    @property
    def raw(self) -> sqlite3.Connection:
        return self._raw

    async def call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return function(*args, **kwargs)

    call_first = call

    async def close(self) -> None:
        self._raw.close()


class _HereExecutor(Executor):
    """An executor without a thread."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(fn(*args, **kwargs))
        return future


class _Socket:
    """The socket of a connection, of which only options are set."""

    def setsockopt(self, *_options: int) -> None:
        """Set an option."""


class _Transport(asyncio.Transport):
    """The gateway's transport of a connection. What it writes is read at once."""

    def __init__(self, protocol: SocketWire, take: Callable[[bytes], None]) -> None:
        super().__init__({"peername": ("192.0.2.1", 1883), "socket": _Socket()})
        self._protocol = protocol
        self._take = take
        self._unread = b""
        self._is_reading = True
        self.is_closed = False
        protocol.connection_made(self)

    def feed(self, data: bytes) -> None:
        """Let the gateway read what the client sends."""
        self._unread += data
        while self._unread and self._is_reading and not self.is_closed:
            buffer = self._protocol.get_buffer(-1)
            size = min(len(buffer), len(self._unread))
            buffer[:size], self._unread = self._unread[:size], self._unread[size:]
            self._protocol.buffer_updated(size)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        assert not self.is_closed
        self._take(bytes(data))

    def close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            _loop().call_soon(self._protocol.connection_lost, None)

    abort = close

    def pause_reading(self) -> None:
        self._is_reading = False

    def resume_reading(self) -> None:
        self._is_reading = True
        _loop().call_soon(self.feed, b"")

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Ignore the limits: all is read at once."""


class _Client:
    """A client: what it has sent and was sent on its connection."""

    def __init__(self, site: _Site, account: str, version: int) -> None:
        self._site = site
        self._account = account
        self._version = version
        self._wire: _Transport | None = None
        self._pending: list[Packet] = []

    def send(self, data: bytes) -> None:
        """Send bytes; connect before, if there is no connection."""
        if self._wire is None or self._wire.is_closed:
            self._begin()
            if data[:1] != bytes((_CONNECT,)):
                data = encode(self._connect(), self._version) + data
        assert self._wire is not None
        for packet in self._sent.feed(data):
            self._note(packet)
        self._wire.feed(data)

    def _connect(self) -> Connect:
        keep = {Property.SESSION_EXPIRY: DAY} if self._version == V5 else {}
        name = None if self._account == ANONYMOUS else self._account
        password = None if name is None else PASSWORD
        return Connect(
            "fw", self._version, False, user_name=name, password=password, properties=keep
        )

    def _begin(self) -> None:
        self._sent = PacketParser(LARGEST)
        self._received: PacketParser | None = None
        self._asked = Connect("")
        self._answers: deque[tuple[type, int, int]] = deque()  # with the number of reasons
        self._in_flight = set[int]()
        self._pending.clear()
        self._is_connected = self._has_ended = False
        self._wire = _Transport(self._site.accept(), self._take)

    def lose(self) -> None:
        """Lose the connection."""
        if self._wire is not None:
            self._wire.close()

    def answer(self) -> None:
        """Answer each message that the gateway has sent."""
        if self._wire is None or self._wire.is_closed:
            return
        pending, self._pending = self._pending, []
        for packet in pending:
            if isinstance(packet, PubRel):
                self.send(encode(PubComp(packet.id), self._sent.version))
            elif isinstance(packet, Publish):
                answer = PubRec if packet.qos == 2 else PubAck
                self.send(encode(answer(packet.id), self._sent.version))

    def _note(self, packet: Packet | Fault) -> None:
        """Note what the gateway must answer."""
        if isinstance(packet, Connect):
            self._asked = packet
        elif isinstance(packet, Publish):
            if packet.qos:
                self._answers.append((PubRec if packet.qos == 2 else PubAck, packet.id, 0))
        elif isinstance(packet, PubRel):
            self._answers.append((PubComp, packet.id, 0))
        elif isinstance(packet, Subscribe):
            self._answers.append((SubAck, packet.id, len(packet.subscriptions)))
        elif isinstance(packet, Unsubscribe):
            reasons = len(packet.filters) if self._sent.version == V5 else 0
            self._answers.append((UnsubAck, packet.id, reasons))
        elif isinstance(packet, PubAck | PubComp) or _is_refusal(packet):
            self._in_flight.discard(packet.id)

    @property
    def _max_packet(self) -> int:
        most: int = self._asked.properties.get(Property.MAXIMUM_PACKET_SIZE, MAX_PACKET)
        return most

    def _take(self, data: bytes) -> None:
        """Check what the gateway sends."""
        if self._received is None:
            version = self._sent.version or V5
            self._received = PacketParser(LARGEST, version, from_client=False)
        for packet in self._received.feed(data):
            assert not isinstance(packet, Fault), packet
            assert not self._has_ended
            assert len(encode(packet, self._received.version)) <= self._max_packet
            self._check(packet)
        assert not self._received.pending

    def _check(self, packet: Packet) -> None:
        if not self._is_connected:
            assert isinstance(packet, ConnAck | Auth)
            self._is_connected = isinstance(packet, ConnAck)
            self._has_ended = self._is_connected and packet.reason > 0
        elif isinstance(packet, Publish | PubRel):
            self._pending.append(packet)
            if isinstance(packet, Publish) and packet.qos:
                assert packet.id not in self._in_flight
                self._in_flight.add(packet.id)
                most = self._asked.properties.get(Property.RECEIVE_MAXIMUM, MAX_ID)
                assert len(self._in_flight) <= most
        elif isinstance(packet, PubAck | PubRec | PubComp | SubAck | UnsubAck):
            reasons = len(packet.reasons) if isinstance(packet, SubAck | UnsubAck) else 0
            at = self._answers.index((type(packet), packet.id, reasons))
            assert at == 0 or self._max_packet < MAX_PACKET  # others were too large
            for _ in range(at + 1):
                self._answers.popleft()
        elif isinstance(packet, Disconnect):
            self._has_ended = True

    def check_answered(self) -> None:
        """Check that a connection that has not ended has all answers."""
        if self._wire is not None and not self._wire.is_closed and self._is_connected:
            assert not self._answers or self._max_packet < MAX_PACKET


def _is_refusal(packet: Packet | Fault) -> TypeGuard[PubRec]:
    return isinstance(packet, PubRec) and packet.reason >= FAILURE


async def settle(store: _Store, errors: list[BaseException]) -> None:
    """Wait until a gateway has nothing more to do; raise the first of its errors."""
    before = -1
    while before != store.submitted and not errors:
        done = _loop().create_future()
        store.submit(lambda _tx: None, done.set_result)
        before = store.submitted
        await done
        for _ in range(5):  # callbacks of callbacks
            await asyncio.sleep(0.0)
    if errors:
        raise errors[0]


class _Site:
    """A gateway during one input."""

    def __init__(self, store: _Store, clock: Clock, path: Path) -> None:
        self._store = store
        self._clock = clock
        self._path = path
        self._errors: list[BaseException] = []
        engine, settings = _engine()
        self.context = ServerContext(path.parent, settings, store, engine, RefusalCounters())
        self.context.hashing.shutdown()
        self.context.hashing = _HereExecutor()  # type: ignore[assignment]
        self.registry = Registry[MqttSession](self.context.outputs, self.context.admission)
        self._traffic = Traffic()
        self._tls: Any = None  # what begins TLS is not passed to a connection
        self.clients = {name: _Client(self, *values) for name, values in CLIENTS.items()}
        _loop().set_exception_handler(self._on_error)

    @classmethod
    async def open(cls) -> _Site:
        """Begin with a new database."""
        path = _folder() / database.FILE_NAME
        path.write_bytes(_database())
        clock = Clock()
        guard = SpaceGuard(path, None)
        writer, reader = (
            _HereDatabase(one) for one in (guard.connect(), database.connect_reader(path))
        )
        return cls(_Store(writer, reader, clock, BOUNDS, guard), clock, path)

    def accept(self) -> SocketWire:
        """Return the gateway's end of a new connection."""
        wire = SocketWire(self.context.wires, PacketInput(), self._tls)
        MqttConnection(self.context, wire, self.registry, self._traffic)
        return wire

    def handle_event(self, kind: bytes, client: _Client) -> None:
        """Let time pass, or an event happen to a client."""
        if kind == b"T":
            _loop().passed += PASSED
            self._clock.service += PASSED
            engine = self.context.engine
            self._store.submit(partial(timers.run, engine), lambda _outcome: None)
        elif kind == b"A":
            client.answer()
        else:
            client.lose()

    async def settle(self) -> None:
        """Wait until the gateway has nothing more to do; raise what it has raised."""
        await settle(self._store, self._errors)
        for client in self.clients.values():
            client.check_answered()

    def _on_error(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self._errors.append(context.get("exception") or AssertionError(context["message"]))

    async def close(self) -> None:
        self.context.close()
        await self._store.close()
        for path in self._path.parent.iterdir():
            path.unlink()


@cache
def _loop() -> _Loop:
    loop = _Loop()
    atexit.register(loop.close)
    return loop


@cache
def _engine() -> tuple[Context, load.Config]:
    settings = load.parse(CONFIGURATION)
    options = settings.gateway.domain, settings.limits, settings.xmpp, settings.pubsub
    return new_context(*options), settings


@cache
def _folder() -> Path:
    folder = tempfile.TemporaryDirectory()
    atexit.register(folder.cleanup)
    return Path(folder.name)


@cache
def _database() -> bytes:
    """Return the database that each input begins with."""
    with tempfile.TemporaryDirectory() as folder:
        path = new_database(Path(folder))
        connection = database.connect(path)
        with database.transaction(connection, Clock()()) as tx:
            keys = credentials._keys(PASSWORD.decode(), PLAIN_KEYS, b"salt", 1)
            for name in ("pump1", "pump2"):
                accounts.add(tx, name, (keys,), trusted=True)
        connection.close()
        return path.read_bytes()
