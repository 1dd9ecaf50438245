"""A front process is not trusted: what it sends ends its link or the named connection alone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import msgspec
import pytest

from edge.server.link import messages
from edge.server.link.front_link import FrontLink
from edge.server.link.messages import (
    MAX_ITEMS,
    MAX_REQUESTS,
    MAX_WAITING,
    MAX_WRITE,
    WINDOW,
    Certificate,
    Figures,
    Left,
    LinkFault,
    Lost,
    Opened,
    Received,
    Refused,
    Secured,
    Stalled,
    TlsFailed,
    Write,
)
from edge.server.wire import Wire


class Recorder:
    """A handler that notes how it was called."""

    def __init__(self, wire: Wire) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.wire = wire
        self.fails = ""
        wire.handler = self

    def _note(self, name: str, *values: Any) -> None:
        self.calls.append((name, *values))
        if name == self.fails:
            raise RuntimeError(name)

    def open(self) -> None:
        self._note("open")

    def receive(self, items: Sequence[Any], size: int) -> None:
        self._note("receive", list(items), size)

    def count_bytes(self, size: int) -> None:
        self._note("count_bytes", size)

    def count_request(self, number: int = 1) -> None:
        self._note("count_request", number)

    def refuse(self, rule: str) -> None:
        self._note("refuse", rule)

    def continue_secured(self, certificate: object) -> None:
        self._note("continue_secured", certificate)

    def fail_tls(self, rule: str, reason: str) -> None:
        self._note("fail_tls", rule, reason)

    def stall(self) -> None:
        self._note("stall")

    def note_left(self) -> None:
        self._note("note_left")

    def resume_reading(self) -> None:
        self._note("resume_reading")

    def lose(self) -> None:
        self._note("lose")


class Core:
    """The owner of a link and its listener."""

    transport: ClassVar[str] = ""
    sockets: ClassVar[str] = ""

    def __init__(self) -> None:
        self.handlers: list[Recorder] = []
        self.lost = 0
        self.errors: list[object] = []
        asyncio.get_running_loop().set_exception_handler(
            lambda _loop, context: self.errors.append(context["exception"])
        )
        self.link = FrontLink(self)

    def port(self, place: int) -> Core:
        return [self][place]

    def connect(self, wire: Wire) -> None:
        self.handlers.append(Recorder(wire))

    def decoder(self) -> Callable[[bytes], Sequence[Any]]:
        return msgspec.msgpack.decode

    def begin_serving(self) -> None:
        pass

    def count_refusals(self, figures: Figures) -> None:
        pass

    def lose(self) -> None:
        self.lost += 1

    def take(self, *received: Any) -> None:
        self.link._on_batch(memoryview(messages.encode(received)))

    def open(self, number: int = 1, *, direct: bool = False) -> Recorder:
        self.take(Opened(number, 0, "127.0.0.1", direct))
        return self.handlers[-1]

    def sent(self) -> list[Any]:
        """Return what is about to be sent to the front."""
        return self.link.batches._messages


@pytest.fixture
async def core() -> Core:
    return Core()


def data(number: int, *items: int, size: int = 10) -> Received:
    return Received(number, messages.encode(items) if items else b"", size, False, 0)


async def test_requests_are_counted_at_once(core: Core) -> None:
    handler = core.open()
    core.take(Received(1, b"", 3, False, MAX_REQUESTS))
    assert handler.calls[1:] == [("count_request", MAX_REQUESTS), ("count_bytes", 3)]


async def test_a_front_that_sends_more_than_it_may_is_ended(core: Core) -> None:
    handler = core.open()
    handler.wire.want(False)
    core.take(data(1, 1, size=MAX_WAITING))
    with pytest.raises(LinkFault):
        core.take(data(1, 2), data(1, 3))
    assert ("receive", [3], 10) not in handler.calls
    assert MAX_WAITING > 2 * WINDOW


@pytest.mark.parametrize(
    "sent",
    [
        Refused(1, "anything"),
        TlsFailed(1, "anything", ""),
        Opened(2, 0, "<b>a host</b>", False),
        Opened(1, 0, None, False),
        Opened(2, 1, None, False),
        Opened(2, -1, None, False),
        data(1, size=1 << 40),
        Received(1, b"\xc1", 1, False, 0),
        Received(1, b"", 1, False, MAX_REQUESTS + 1),
        Secured(1, Certificate(b"short", "1", 0, 0), True),
        Stalled(1, -1),
    ],
)
async def test_other_values_end_the_link(core: Core, sent: Any) -> None:
    core.open()
    with pytest.raises((LinkFault, msgspec.ValidationError, IndexError)):
        core.take(sent)


async def test_number_of_connections_is_limited(
    core: Core, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("edge.server.link.front_link.MAX_CONNECTIONS", 2)
    core.open(1)
    core.open(2)
    core.take(Lost(1))
    core.open(3)
    with pytest.raises(LinkFault):
        core.open(4)


async def test_tls_begins_where_the_core_allows_it_alone(core: Core) -> None:
    """A log-in is not begun anew by a front's word."""
    secured = Secured(1, None, True)
    handler = core.open()
    core.take(secured)  # the first byte began TLS
    assert handler.calls[-1] == ("continue_secured", None)
    with pytest.raises(LinkFault):
        core.take(secured)


@pytest.mark.parametrize("direct", [True, False])
async def test_a_front_begins_tls_as_the_core_expects(core: Core, direct: bool) -> None:
    handler = core.open(direct=not direct)
    if direct:
        handler.wire.start_tls()
    with pytest.raises(LinkFault):
        core.take(Secured(1, None, direct))


async def test_input_before_tls_is_not_handled_after_starttls(core: Core) -> None:
    handler = core.open()
    core.take(data(1, 1))
    with pytest.raises(LinkFault):
        core.take(Secured(1, None, False))
    handler.wire.start_tls()
    core.take(data(1, 2), Secured(1, None, False), data(1, 3))
    assert [call for call in handler.calls if call[0] == "receive"] == [
        ("receive", [1], 10),
        ("receive", [3], 10),
    ]


async def test_nothing_is_handled_after_the_end(core: Core) -> None:
    handler = core.open(direct=True)
    handler.wire.close()
    before = len(handler.calls)
    core.take(
        Secured(1, None, True),
        data(1, 1),
        Received(1, b"", 1, False, 5),
        Stalled(1, 5),
        TlsFailed(1, "tls", ""),
        Refused(1, "tls"),
    )
    assert handler.calls[before:] == []
    core.take(Lost(1), Lost(1), data(1, 2))
    assert handler.calls[before:] == [("lose",)]
    assert handler.wire.backlog() == 0


async def test_encoded_input_that_waits_is_bounded_whatever_size_it_has(core: Core) -> None:
    wire = core.open().wire
    item = msgspec.msgpack.encode([b"x" * (MAX_ITEMS - 16)])
    for _ in range(5):
        core.take(Received(1, item, 0, False, 0))
        wire.want(True)  # it was handled
    for _ in range(3):
        core.take(Received(1, item, 0, False, 0))
    with pytest.raises(LinkFault, match="more than it may"):
        core.take(Received(1, item, 0, False, 0))


async def test_whatever_a_front_sends_shows_that_it_does_not_hang(core: Core) -> None:
    core.link.is_silent = True
    core.take(Figures(0, 0))
    assert not core.link.is_silent


async def test_a_front_that_goes_on_reading_does_not_hang(core: Core) -> None:
    for is_paused, is_silent in ((True, True), (False, False)):
        core.link.is_silent = True
        core.link._on_pause(is_paused)
        assert core.link.is_silent is is_silent


@pytest.mark.parametrize("fails", ["open", "receive", "lose"])
async def test_an_error_of_a_handler_ends_its_connection_alone(core: Core, fails: str) -> None:
    if fails == "open":
        core.connect = lambda wire: setattr(_record(core, wire), "fails", "open")  # type: ignore[method-assign]
    first = core.open(1)
    first.fails = fails
    second = core.open(2)
    core.take(data(1, 1), data(2, 2))
    core.link._on_lost(None)
    assert not first.wire.write(b"more", reports=False)
    assert [handler.calls[-1] for handler in (first, second)] == [("lose",), ("lose",)]
    assert core.errors
    assert core.lost == 1


def _record(core: Core, wire: Wire) -> Recorder:
    core.handlers.append(Recorder(wire))
    return core.handlers[-1]


async def test_an_untracked_write_counts_as_left_after_tracked_ones(core: Core) -> None:
    wire = core.open().wire
    wire.write(b"tracked", reports=True)
    wire.write(b"tracked", reports=True)
    core.take(Left(1, 7))
    wire.write(b"untracked", reports=False)
    assert wire.backlog() == 16
    core.take(Left(1, 14))  # the front reports no more
    assert wire.backlog() == 0
    core.take(Left(1, 5), Left(1, 1000))
    assert wire.backlog() == 0


async def test_a_large_write_is_divided(core: Core) -> None:
    output = bytes(range(256)) * (MAX_WRITE // 100)
    core.open().wire.write(output, reports=True)
    written = [message for message in core.sent() if isinstance(message, Write)]
    assert b"".join(message.data for message in written) == output
    assert max(len(message.data) for message in written) <= MAX_WRITE
