"""Target: what a front process sends to the core, on a real store. A front is not trusted.

An input is lists of messages as bytes of MessagePack (`edge.server.link.messages`), separated by
`_SEPARATOR`. The front has a listener of MQTT and one of XMPP. Each input begins with the same
database and a new link.

- Whatever arrives ends the link or the named connections alone. The gateway raises no unexpected
  error, neither in units of work nor on the event loop. Stanzas that are not well-formed, which no
  parser returns, end their connections with an error of the gateway.
- What waits for one connection is bounded.
- Nothing is left when the link has ended.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from typing import Any, Final, cast
from xml.parsers.expat import ExpatError

import msgspec

from edge.config import load
from edge.engine.dispatch.hooks import new_context
from edge.engine.store import database
from edge.engine.store.space import SpaceGuard
from edge.mqtt.batches import encode_batch
from edge.mqtt.packets import V5, V311, Connect, Disconnect, Fault, Input, PingReq, Publish
from edge.mqtt.reasons import Reason
from edge.routing.xmpp.router import Router
from edge.server.link.front_link import FrontLink, LinkedListener
from edge.server.link.linked_wire import LinkedWire
from edge.server.link.messages import (
    ITEM_COST,
    MAX_REQUESTS,
    MAX_WAITING,
    Certificate,
    Figures,
    Left,
    LinkFault,
    Lost,
    Opened,
    Ready,
    Received,
    Refused,
    Secured,
    Stalled,
    TlsFailed,
)
from edge.server.link.messages import encode as encode_messages
from edge.server.mqtt.listener import MqttListener
from edge.server.mqtt.traffic import Traffic
from edge.server.refusal_counters import RefusalCounters
from edge.server.server_context import ServerContext
from edge.server.xmpp.listener import XmppListener
from edge.xmpp.errors import FragmentError
from edge.xmpp.parser import StreamParser
from edge.xmpp.transfer import StreamSender
from tests.fuzz.fuzz_mqtt_session import (
    _database,
    _folder,
    _HereDatabase,
    _HereExecutor,
    _loop,
    _Store,
    settle,
)
from tests.helpers.mqtt_packets import PACKETS
from tests.helpers.parser_corpus import HEADER, STREAMS
from tests.helpers.store import BOUNDS, DOMAIN, Clock

MAX_BYTES: Final = 4096
MAX_LISTS: Final = 16
WINDOW_ITEMS: Final = MAX_WAITING // ITEM_COST + MAX_BYTES
"""Maximum items that wait for a connection: those of the credit, and of one message."""
MQTT: Final = 0
XMPP: Final = 1

_SEPARATOR: Final = b"\xc1\xc1"  # not in MessagePack, and seldom in texts
_PASSWORD: Final = b"p"  # of the database that `fuzz_mqtt_session` makes
_CONFIGURATION: Final = f"""
gateway.domain = "{DOMAIN}"
xmpp.require_tls = false
mqtt.require_tls = false
pubsub.auto_create = ["#"]
[limits]
stanzas_per_second = 1_000_000
stanzas_at_once = 1_000_000
authenticate_delay = 0
unauthenticated = 8
""".encode()
_NOT_WELL_FORMED: Final = (FragmentError, ExpatError)
_FAULTS: Final = (LinkFault, msgspec.DecodeError, IndexError, RecursionError, UnicodeDecodeError)


def check(data: bytes) -> None:
    """Let a front send lists of messages, and end its link."""
    _loop().run_until_complete(_run(data))


async def _run(data: bytes) -> None:
    site = _Site()
    try:
        for part in data.split(_SEPARATOR, MAX_LISTS)[:MAX_LISTS]:
            site.receive(part)
            await site.settle()
        site.link._on_lost(None)
        await site.settle()
        site.check_ended()
    finally:
        await site.close()


class _Site:
    """A gateway with one front during one input."""

    def __init__(self) -> None:
        self._path = _folder() / database.FILE_NAME
        self._path.write_bytes(_database())
        guard = SpaceGuard(self._path, None)
        connections = guard.connect(), database.connect_reader(self._path)
        writer, reader = (_HereDatabase(each) for each in connections)
        self._store = _Store(writer, reader, Clock(), BOUNDS, guard)
        settings = _settings()
        options = settings.gateway.domain, settings.limits, settings.xmpp, settings.pubsub
        self._errors: list[BaseException] = []
        _loop().set_exception_handler(self._on_error)
        router = Router(new_context(*options))
        self._context = context = ServerContext(
            self._path.parent, settings, self._store, router.context, RefusalCounters()
        )
        context.hashing.shutdown()
        context.hashing = _HereExecutor()  # type: ignore[assignment]
        self._listeners = (
            MqttListener(context, [], [], Traffic()),
            XmppListener(context, router, [], []),
        )
        self._ended = False
        self.link = FrontLink(self)

    # The owner of the link

    def port(self, place: int) -> LinkedListener:
        return self._listeners[place]

    def begin_serving(self) -> None:
        pass

    def count_refusals(self, figures: Figures) -> None:
        pass

    def lose(self) -> None:
        self._ended = True

    # What a front does

    def receive(self, data: bytes) -> None:
        """Receive a list, as `Batches` does."""
        if self._ended:
            return
        try:
            self.link._on_batch(memoryview(data))
        except _FAULTS:
            self.link._on_lost(None)
        for wire in self.link.wires.values():
            _check_bounds(wire)

    async def settle(self) -> None:
        """Wait until the gateway has nothing more to do; raise what it has raised."""
        await settle(self._store, self._errors)
        self.link.batches._messages.clear()

    def check_ended(self) -> None:
        """Check that nothing is left of the front's connections."""
        context = self._context
        assert not self.link.wires
        assert not len(context.admission.unauthenticated)
        assert not context.paused_connections
        detached = [session for each in self._listeners for session in each._registry.sessions()]
        assert all(session.connection is None for session in detached)

    def _on_error(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if isinstance(context.get("exception"), _NOT_WELL_FORMED):
            return
        self._errors.append(context.get("exception") or AssertionError(context["message"]))

    async def close(self) -> None:
        self._context.close()
        await self._store.close()
        for path in self._path.parent.iterdir():
            path.unlink()


def _check_bounds(wire: LinkedWire) -> None:
    handler: Any = wire.handler
    assert len(handler._items) <= WINDOW_ITEMS
    assert 0 <= wire._left <= wire._written


@cache
def _settings() -> load.Config:
    return load.parse(_CONFIGURATION)


def _mqtt(number: int, *items: Input, pending: bool = False) -> Received:
    return Received(number, encode_batch(items), 10 * len(items), pending, 0)


def _connect(name: str, version: int = V5) -> Connect:
    return Connect("fw", version, False, user_name=name, password=_PASSWORD)


def _xmpp(number: int, *streams: bytes) -> Iterator[Received]:
    parser, sender = StreamParser(), StreamSender()
    for stream in streams:
        if stream.startswith(b"<?xml"):
            parser.reset()
        with suppress(Exception):  # of streams that end
            items = parser.feed(stream)
            yield Received(number, sender.encode(items), len(stream), False, 0)


def _input(*lists: Any) -> bytes:
    return _SEPARATOR.join(map(encode_messages, lists))


def seeds() -> list[bytes]:
    """Return what a front sends for clients of both protocols, and what none should send."""
    opened = Opened(1, MQTT, "192.0.2.1", False)
    found = [
        _input([Ready(1, True), Figures(1, 1)], [opened, Lost(1), Opened(1, MQTT, None, False)]),
        _input([opened], [_mqtt(1, _connect("pump1", V311)), _mqtt(1, PingReq())], [Lost(1)]),
        _input([opened, Secured(1, Certificate(bytes(32), "a", 0, 1 << 62), True)], [Lost(1)]),
        _input([opened, Received(1, b"", -(1 << 31), True, MAX_REQUESTS)] * 2),
        _input([opened], [Stalled(1, 1 << 50)] * 40 + [Left(1, 1 << 52), Stalled(1, 0)]),
        _input([Opened(n, n % 2, f"192.0.2.{n}", n % 3 == 0) for n in range(1, 60)]),
        _input([opened, TlsFailed(1, "tls", "\0\x1f\n" * 80), Refused(1, "websocket")]),
    ]
    for sent in PACKETS.values():
        if sent.from_client and not isinstance(sent.packet, Connect):
            for version in (V5, V311):  # of the other version, too
                begin = [opened, _mqtt(1, _connect("pump1", version))]
                packet = cast(Input, sent.packet)
                more = [_mqtt(1, packet), _mqtt(1, packet, Publish("a", b"1", 1, id=3))]
                found.append(_input(begin, more, [Left(1, 4)]))
    ends = Disconnect(Reason.SUCCESS), Fault(Reason.MALFORMED_PACKET, "", V5)
    for end in ends:
        after = _mqtt(1, end, Publish("a", b"1", 2, id=1), _connect("pump2"), end, PingReq())
        found.append(_input([opened, _mqtt(1, _connect("pump1"), end)], [after, after]))
    plain = base64.b64encode(b"\0pump1\0" + _PASSWORD)
    auth = b"<auth xmlns='urn:ietf:params:xml:ns:xmpp-sasl' mechanism='PLAIN'>%b</auth>" % plain
    bind = b"<iq type='set' id='b'><bind xmlns='urn:ietf:params:xml:ns:xmpp-bind'/></iq>"
    starttls = b"<starttls xmlns='urn:ietf:params:xml:ns:xmpp-tls'/>"
    begin = [Opened(1, XMPP, "2001:db8::1", True), Secured(1, None, True)]
    for stream in STREAMS.values():
        parts = [[each] for each in _xmpp(1, HEADER, auth, HEADER, bind, stream)]
        found.append(_input(begin, *parts, [Lost(1)]))
    plainly = [Opened(1, XMPP, "192.0.2.1", False), *_xmpp(1, HEADER, starttls + auth, bind)]
    found.append(_input(plainly, [Secured(1, None, False)], list(_xmpp(1, HEADER, auth))))
    return [one for one in found if len(one) <= MAX_BYTES]
