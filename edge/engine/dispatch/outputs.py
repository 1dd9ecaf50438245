"""The receivers of what committed units of work send: sessions of any protocol, and listeners.

Each receiver has a number, the generation, by which rows and units of work refer to it. All parts
of the process take their generations from one counter.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from enum import Enum
from itertools import count
from typing import Protocol

from edge.engine.store.database import Receipt, Send, SentMessage


class EndReason(Enum):
    """Why the gateway ends a session or a connection; each protocol has its own errors for them."""

    REVOKED = "the account was revoked"
    REPLACED = "replaced by a new session"
    EVICTED = "another session needed its place"
    MEMORY = "it had the most unacknowledged bytes"
    UNREAD = "too much that was sent was not read"
    STALLED = "the peer does not read"
    UNACKNOWLEDGED = "too much that was sent was not acknowledged"
    SILENT = "the peer does not acknowledge"
    MOVED = "its session continues on another connection"
    UNBOUND = "no session was bound in time"
    CROWDED = "too many unauthenticated connections"
    DISPLACED = "another unauthenticated connection needed its place"
    SHUTDOWN = "the gateway stops"


class Receiver(Protocol):
    """The methods of a session, or of another receiver, that are called by its generation."""

    def deliver(self, message: SentMessage, receipt: Receipt | None) -> None:
        """Encode a message and send it; `receipt` names the row that stores it, if any."""

    def end(self, reason: EndReason) -> None:
        """End; a receiver that has ended already may still be attached."""


class Outputs:
    """The receivers by generation."""

    def __init__(self) -> None:
        self._generations = count(1)  # 0 is `sessions.WITHOUT_SESSION`
        self._receivers: dict[int, Receiver] = {}

    def next_generation(self) -> int:
        """Return the generation of a new receiver."""
        return next(self._generations)

    def attach(self, generation: int, receiver: Receiver) -> None:
        """Pass what is sent to `generation` to this receiver from now on."""
        self._receivers[generation] = receiver

    def detach(self, generation: int) -> None:
        """Drop what is sent to `generation` from now on."""
        self._receivers.pop(generation, None)

    def deliver(self, sends: Iterable[Send]) -> None:
        """Pass messages to their receivers; drop those without a receiver.

        A receiver that fails is reported, and does not keep the others from their messages.
        """
        for generation, message, receipt in sends:
            if (receiver := self._receivers.get(generation)) is not None:
                try:
                    receiver.deliver(message, receipt)
                except Exception as error:
                    report = {"message": f"a message is not sent: {error!r}", "exception": error}
                    asyncio.get_running_loop().call_exception_handler(report)

    def end(self, generation: int, reason: EndReason) -> None:
        """End the receiver of `generation`, if there is one."""
        if (receiver := self._receivers.get(generation)) is not None:
            receiver.end(reason)
