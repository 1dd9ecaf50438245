"""The core's side of the link to one front process: the wires of its connections.

A front is not trusted. What it sends has an effect only on its own connections, of which the core
knows which have logged in. `LinkFault` ends the link.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Protocol

from edge.server.link.batches import Batches
from edge.server.link.linked_wire import LinkedWire
from edge.server.link.messages import (
    MAX_CONNECTIONS,
    MAX_TEXT,
    VERSION,
    Figures,
    Left,
    LinkFault,
    Lost,
    OfConnection,
    OfFront,
    Opened,
    Ready,
    Received,
    Refused,
    Secured,
    Stalled,
    TlsFailed,
    decode_from_front,
)
from edge.server.wire import Wire


class LinkedListener(Protocol):
    """A listener whose sockets are in the fronts."""

    sockets: ClassVar[str]
    transport: ClassVar[str]

    def connect(self, wire: Wire) -> None:
        """Make the connection of a new wire."""

    def decoder(self) -> Callable[[bytes], Sequence[Any]]:
        """Return a function that decodes the items of one connection."""


class Owner(Protocol):
    """The owner of a link."""

    def port(self, place: int) -> LinkedListener:
        """Return a listener by its place in `Begin.listening`; raises `IndexError`."""

    def begin_serving(self) -> None:
        """Note that the front accepts connections."""

    def count_refusals(self, figures: Figures) -> None:
        """Count what the front could not use, or had no room for."""

    def lose(self) -> None:
        """Note that the link has ended; `FrontLink.fault` says why."""


class FrontLink:
    """A link.

    Attributes:
        wires: the wires by the numbers of their connections.
        is_ready: whether the front accepts connections.
        is_confined: whether it can open no files but those that it needs.
        is_silent: whether nothing has come since this was set.
        handshakes: its number of TLS handshakes now.
        fault: why the link has ended.
    """

    def __init__(self, owner: Owner) -> None:
        self._owner = owner
        self._loop = asyncio.get_running_loop()
        self._last = 0  # the highest number of a connection
        self.batches = Batches(self._on_batch, self._on_pause, self._on_lost)
        self.wires: dict[int, LinkedWire] = {}
        self.is_ready = False
        self.is_confined = False
        self.is_silent = False
        self.handshakes = 0
        self.fault = "it has ended"

    def _on_batch(self, data: memoryview) -> None:
        wires = self.wires
        self.is_silent = False
        for message in decode_from_front(data):
            if isinstance(message, Received):  # most often
                wire = wires.get(message.connection)
                if wire is not None:
                    self._act(wire, message)
            elif isinstance(message, OfFront):
                self._control(message)
            elif (wire := wires.get(message.connection)) is not None:
                self._act(wire, message)

    def _act(self, wire: LinkedWire, message: OfConnection) -> None:
        """Act on a message; a fault of the gateway's own ends the connection alone."""
        try:
            if isinstance(message, Received):
                wire.receive(message)
            elif isinstance(message, Left):
                wire.note_left(message.position)
            elif isinstance(message, Stalled):
                wire.stall(message.backlog)
            elif isinstance(message, Secured):
                wire.continue_secured(message)
            elif wire.closed:
                pass  # what ends a connection was counted
            elif isinstance(message, TlsFailed):
                wire.handler.fail_tls(message.rule, message.reason)
            elif isinstance(message, Refused):
                wire.handler.refuse(message.rule)
        except LinkFault:
            raise
        except Exception as error:
            self._report(error)
            wire.abort()

    def _report(self, error: Exception) -> None:
        text = "a message of a device could not be handled"
        self._loop.call_exception_handler({"message": text, "exception": error})

    def _lose(self, wire: LinkedWire) -> None:
        try:
            wire.lose()
        except Exception as error:
            self._report(error)

    def _control(self, message: Ready | Opened | Lost | Figures) -> None:
        if isinstance(message, Opened):
            self._open(message)
        elif isinstance(message, Lost):
            wire = self.wires.pop(message.connection, None)
            if wire is not None:
                self._lose(wire)
        elif isinstance(message, Figures):
            self.handshakes = message.handshakes
            self._owner.count_refusals(message)
        else:
            if message.version != VERSION:
                raise LinkFault(f"it speaks version {message.version}, and not {VERSION}")
            self.is_ready = True
            self.is_confined = message.confined
            self._owner.begin_serving()

    def _open(self, message: Opened) -> None:
        if message.connection <= self._last:
            raise LinkFault("it has used a number of a connection again")
        if len(self.wires) >= MAX_CONNECTIONS:
            raise LinkFault(f"it has more than {MAX_CONNECTIONS} connections")
        self._last = message.connection
        listener = self._owner.port(message.listener)
        wire = LinkedWire(
            self.batches,
            message.connection,
            listener.decoder(),
            message.address,
            listener.transport,
            direct=message.direct,
        )
        listener.connect(wire)
        self.wires[message.connection] = wire
        try:
            wire.handler.open()
        except Exception as error:
            self._report(error)
            wire.abort()

    def _on_pause(self, is_paused: bool) -> None:
        """Read no requests while the front does not read the answers."""
        self.is_silent = self.is_silent and is_paused  # it goes on reading: it does not hang
        self.batches.set_reading(not is_paused)

    def _on_lost(self, error: Exception | None) -> None:
        if error is not None and not isinstance(error, OSError):  # these say only that it has ended
            self.fault = str(error)[:MAX_TEXT]
        self.is_ready = False
        self.handshakes = 0
        wires, self.wires = self.wires, {}
        for wire in wires.values():
            self._lose(wire)
        self._owner.lose()
