"""A wire in another process, over a link that is slow and breaks at any moment.

What the peer sends, what the connection does, and how far the link carries either side's messages
are drawn. The connection must see what it would see from a wire of its own process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from edge.config.limits import Limits
from edge.server.front_process import _act
from edge.server.link import messages
from edge.server.link.batches import Batches
from edge.server.link.front_link import FrontLink
from edge.server.link.linked_handler import LinkedHandler
from edge.server.link.messages import ITEM_COST, WINDOW, Figures
from edge.server.wire import SLICE, SocketWire, Wire, WireContext

LINE = 512
"""Maximum bytes of an item."""


class Lines:
    """A parser whose items are lines."""

    def __init__(self) -> None:
        self._rest = b""

    @property
    def pending(self) -> int:
        return len(self._rest)

    def feed(self, data: bytes | memoryview) -> Sequence[bytes]:
        *lines, self._rest = (self._rest + bytes(data)).split(b"\n")
        return lines

    def set_limit(self, max_bytes: int) -> None:
        pass

    def reset(self) -> None:
        self._rest = b""

    def release(self) -> None:
        pass

    def release_if_idle(self) -> None:
        pass

    def close(self) -> None:
        pass


class Options:
    """A socket's options."""

    def setsockopt(self, *_values: int) -> None:
        pass


class Socket(asyncio.Transport):
    """A transport whose peer reads when the test lets it."""

    def __init__(self, wire: SocketWire) -> None:
        super().__init__()
        self.wire = wire
        self.buffer = b""
        self.peer = b""
        self.reads = True
        self.ended = False
        self.high = 1 << 16
        self.is_full = False

    def write(self, data: Any) -> None:
        if not self.ended:
            self.buffer += data
            if len(self.buffer) > self.high and not self.is_full:
                self.is_full = True
                self.wire.pause_writing()

    def read_by_peer(self, count: int) -> None:
        self.peer += self.buffer[:count]
        self.buffer = self.buffer[count:]
        if self.is_full and len(self.buffer) <= self.high // 4:
            self.is_full = False
            self.wire.resume_writing()

    def get_write_buffer_size(self) -> int:
        return len(self.buffer)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self.high = high or 0

    def pause_reading(self) -> None:
        self.reads = False

    def resume_reading(self) -> None:
        self.reads = True

    def is_closing(self) -> bool:
        return self.ended

    def close(self) -> None:
        self.ended = True

    def abort(self) -> None:
        self.buffer = b""
        self.ended = True

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return {"peername": ("127.0.0.1", 5), "socket": Options()}.get(name, default)


class Connection:
    """The connection of a wire in the core, which handles as many items as the test lets it."""

    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        self.handled: list[bytes] = []
        self.waiting: list[bytes] = []
        self.bytes = 0
        self.may_handle = 0
        self.is_ahead = False
        self.closed = False
        self.lost = 0
        self.written = b""
        self.awaited: list[int] = []  # the ends of what was written with `reports`
        wire.handler = self

    def open(self) -> None:
        pass

    def receive(self, items: Sequence[bytes], size: int) -> None:
        self.bytes += size
        if not self.closed:
            self.waiting += items
            self.process()

    def count_bytes(self, size: int) -> None:
        self.bytes += size
        self.process()

    def process(self) -> None:
        while self.waiting and self.may_handle and not (self.wire.stalled or self.closed):
            self.may_handle -= 1
            self.handled.append(self.waiting.pop(0))
        self.wire.want(not self.waiting and not self.wire.stalled)

    def stall(self) -> None:
        pass

    def resume_reading(self) -> None:
        self.process()

    def note_left(self) -> None:
        pass

    def lose(self) -> None:
        self.lost += 1

    def count_request(self, number: int = 1) -> None:
        raise AssertionError

    def refuse(self, rule: str) -> None:
        raise AssertionError

    def continue_secured(self, certificate: object) -> None:
        raise AssertionError

    def fail_tls(self, rule: str, reason: str) -> None:
        raise AssertionError


class LinkedWires(RuleBasedStateMachine):
    """A peer, a front, a link, the core and a connection."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.now = 0.0
        self.sent: list[bytes] = []
        self.unread = b""
        self.is_cut = False
        self.core_dead = False
        self.loop.run_until_complete(self._begin())

    async def _begin(self) -> None:
        self.link = FrontLink(self)
        front = Batches(lambda _data: None, lambda _is_paused: None, lambda _error: None)
        # messages in order, which arrive when the test carries them
        self.to_front, self.to_core = self.link.batches._messages, front._messages
        self.context = WireContext(Limits(send_buffer=1024))
        self.wire = SocketWire(self.context, Lines(), None)  # type: ignore[arg-type]
        self.front: LinkedHandler | None = LinkedHandler(
            front,
            self.wire,
            1,
            0,
            msgspec.msgpack.encode,
            lambda: self.now,
            lambda _number: None,
            self._forget,
        )
        self.socket = Socket(self.wire)
        self.wire.connection_made(self.socket)
        self.carry(1, of_front=True)
        self.connection = self._connection

    # The owner of the core's link, and its listener

    transport: ClassVar[str] = ""
    sockets: ClassVar[str] = ""

    def port(self, place: int) -> LinkedWires:
        return [self][place]

    def connect(self, wire: Wire) -> None:
        self._connection = Connection(wire)

    def decoder(self) -> Callable[[bytes], Sequence[Any]]:
        return msgspec.msgpack.Decoder(list[bytes]).decode

    def begin_serving(self) -> None:
        raise AssertionError

    def count_refusals(self, figures: Figures) -> None:
        raise AssertionError

    def lose(self) -> None:
        self.core_dead = True

    def _forget(self, _number: int) -> None:
        self.front = None

    # The link

    def carry(self, count: int, *, of_front: bool) -> None:
        """Carry messages from the front to the core, or from the core to the front."""
        waiting = self.to_core if of_front else self.to_front
        found = waiting[:count]
        del waiting[:count]
        if not found:
            return
        data = messages.encode(found)
        if of_front:
            if not self.core_dead:
                self.link._on_batch(memoryview(data))
        else:
            for message in messages.decode_from_core(data):
                if self.front is not None and not self.is_cut:
                    _act(self.front, message)  # type: ignore[arg-type]

    @rule(count=st.integers(1, 5), of_front=st.booleans())
    def carry_some(self, count: int, of_front: bool) -> None:
        if not self.is_cut:
            self.carry(count, of_front=of_front)
        self.feed()

    @rule(is_paused=st.booleans())
    def pause(self, is_paused: bool) -> None:
        if self.front is not None:
            self.front.pause(is_paused)

    # The peer

    @rule(sizes=st.lists(st.integers(0, LINE), min_size=1, max_size=200))
    def send(self, sizes: list[int]) -> None:
        for size in sizes:
            line = b"%d:" % len(self.sent) + b"x" * size
            self.sent.append(line)
            self.unread += line + b"\n"
        self.feed()

    def feed(self) -> None:
        """Let the front read what the peer has sent, as the event loop does."""
        while self.unread and self.socket.reads and not self.socket.ended:
            data, self.unread = self.unread[:32_768], self.unread[32_768:]
            self.wire.get_buffer(0)[: len(data)] = data
            self.wire.buffer_updated(len(data))

    @rule(count=st.integers(1, 4000))
    def read(self, count: int) -> None:
        if not self.socket.ended:
            self.socket.read_by_peer(count)
            self.feed()

    @rule(seconds=st.sampled_from([0.1, 1.5]))
    def check(self, seconds: float) -> None:
        self.now += seconds
        if self.front is not None:
            self.front.report_left()

    # The connection

    @rule(count=st.integers(1, 100))
    def handle(self, count: int) -> None:
        self.connection.may_handle += count
        if not self.connection.lost:
            self.connection.process()

    @rule()
    def allow_ahead(self) -> None:
        if not self.connection.lost:
            self.connection.is_ahead = True
            self.connection.wire.allow_ahead()

    @rule(size=st.integers(1, 2000), reports=st.booleans())
    def write(self, size: int, reports: bool) -> None:
        connection = self.connection
        data = b"%d" % (len(connection.written) % 10) * size
        if not connection.lost and connection.wire.write(data, reports=reports):
            connection.written += data
            if reports:
                connection.awaited.append(len(connection.written))

    @rule(aborts=st.booleans())
    @precondition(lambda self: len(self.sent) > 300)
    def close(self, aborts: bool) -> None:
        connection = self.connection
        if not connection.lost:
            connection.closed = True
            connection.waiting.clear()
            if aborts:
                connection.wire.abort()
            else:
                connection.wire.close()

    # The ends

    @rule()
    @precondition(lambda self: len(self.sent) > 300)
    def lose_connection(self) -> None:
        self.socket.ended = True
        self.wire.connection_lost(None)

    @rule()
    @precondition(lambda self: len(self.sent) > 300 and not self.is_cut)
    def cut(self) -> None:
        """End the front, or its link."""
        self.is_cut = True
        self.to_core.clear()
        self.link._on_lost(None)
        assert self.core_dead
        assert self.connection.lost == 1

    # What must hold

    @invariant()
    def input_is_handled_in_order(self) -> None:
        handled = self.connection.handled
        assert handled == self.sent[: len(handled)]
        assert self.connection.lost <= 1

    @invariant()
    def waiting_input_is_bounded(self) -> None:
        on_its_way = [one for one in self.to_core if isinstance(one, messages.Received)]
        size = sum(len(line) for line in self.connection.waiting)
        items = len(self.connection.waiting)
        for message in on_its_way:
            found = msgspec.msgpack.decode(message.items) if message.items else []
            size += sum(len(line) for line in found)
            items += len(found)
        slice_cost = 2 * SLICE + ITEM_COST * SLICE // 2
        assert size + ITEM_COST * items <= WINDOW + slice_cost
        if items and not self.connection.is_ahead:
            assert size <= SLICE + LINE + 16  # one slice

    @invariant()
    def only_what_left_counts_as_left(self) -> None:
        wire, connection = self.wire, self.connection
        written = connection.written
        assert written.startswith(self.socket.peer + self.socket.buffer)
        if not (self.socket.ended or connection.lost):
            left = len(written) - connection.wire.backlog()
            assert not [end for end in connection.awaited if len(self.socket.peer) < end <= left]
        assert not wire.closed or self.socket.ended

    def teardown(self) -> None:
        try:
            self._settle()
        finally:
            for timer in (self.wire._stall_timer, self.wire._close_timer):
                if timer is not None:
                    timer.cancel()
            self.loop.close()

    def _settle(self) -> None:
        """Without more faults, everything arrives."""
        self.pause(False)
        connection = self.connection
        while not self.socket.ended and not connection.closed:
            self.handle(100)
            self.carry(100, of_front=True)
            self.carry(100, of_front=False)
            self.socket.read_by_peer(10_000)
            self.check(1.5)
            if self.is_cut or (
                len(connection.handled) == len(self.sent) and not self.to_core and not self.to_front
            ):
                break
            self.feed()
        if not (self.is_cut or self.socket.ended or connection.closed):
            self.carry(100, of_front=False)
            self.socket.read_by_peer(1 << 20)
            self.check(1.5)
            self.carry(100, of_front=True)
            assert connection.handled == self.sent
            assert connection.bytes == sum(len(line) + 1 for line in self.sent)
            assert self.socket.peer == connection.written
            assert connection.wire.backlog() == 0
            assert not connection.wire.stalled


TestLinkedWires = LinkedWires.TestCase
TestLinkedWires.settings = settings(stateful_step_count=40)
