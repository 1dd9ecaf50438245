"""Handling of messages that a session has no room for.

The session continues. Of messages that replace each other, as a later presence of the same sender
does, the latest is kept, within a limit, and sent when there is room: those whose type has a
`replacement_key`. All other messages are returned, that is stored or refused, at once
(`Hooks.on_overflow`). Order is kept: while messages are being returned, later plain messages
are returned, too.
"""

from __future__ import annotations

from typing import Final, Protocol

from edge.engine.store.database import Receipt, SentMessage
from edge.errors import StoreError
from edge.features.messages.service import AccountMessage
from edge.server.server_context import ServerContext

KEPT_SHARE: Final = 8
"""`limits.unacknowledged_bytes` divided by this is the maximum bytes of messages that wait for
room here. Messages above it are returned, like others."""

KEPT_OVERHEAD: Final = 256
"""Bytes of memory that each kept message takes in addition to its encoded size."""


class OverflowingSession(Protocol):
    """The methods of a session that its overflow calls."""

    generation: int

    def deliver(self, message: SentMessage, receipt: Receipt | None) -> None:
        """Send a message, or pass it to the overflow if the session has no room for it."""

    def count_unacknowledged(self, size: int) -> None:
        """Add to the session's unacknowledged bytes."""


class Overflow:
    """The messages that one session has no room for: kept or returned, as the module describes."""

    __slots__ = ("_context", "_kept", "_kept_bytes", "_limit", "_returning", "_session")

    def __init__(self, context: ServerContext, session: OverflowingSession) -> None:
        self._context = context
        self._session = session
        self._limit = context.settings.limits.unacknowledged_bytes // KEPT_SHARE
        self._kept: dict[str, tuple[SentMessage, int]] = {}
        self._kept_bytes = 0
        self._returning: list[SentMessage] = []

    def holds_predecessor(self, message: SentMessage) -> bool:
        """Return whether the overflow has messages that `message` must not overtake."""
        if isinstance(message, AccountMessage):
            return bool(self._returning)
        return bool(self._kept and _replacement_key(message))

    def add(self, message: SentMessage, size: int) -> None:
        """Keep or return a message that the session has no room for, as the module describes.

        `size` is the number of its bytes when it is encoded.
        """
        if (key := _replacement_key(message)) and self._keep(key, message, size):
            return
        self._returning.append(message)
        if len(self._returning) == 1:
            self._return_messages()

    def send_kept(self) -> None:
        """Send the messages that wait here, and keep those that still have no room."""
        if self._kept:
            kept = list(self._kept.values())
            self._kept.clear()
            self._count(-self._kept_bytes)
            for message, _size in kept:
                self._session.deliver(message, None)

    def _keep(self, key: str, message: SentMessage, size: int) -> bool:
        """Keep a message in place of the one with the same key; return whether there is room."""
        if (before := self._kept.pop(key, None)) is not None:
            self._count(-before[1])
        size += KEPT_OVERHEAD
        if self._kept_bytes + size > self._limit:
            return False
        self._kept[key] = message, size
        self._count(size)
        return True

    def _count(self, size: int) -> None:
        self._kept_bytes += size
        self._session.count_unacknowledged(size)

    def _return_messages(self) -> None:
        """Store or refuse all messages to be returned, also those added before the unit runs."""
        messages, lifecycle = self._returning, self._context.lifecycle
        generation = self._session.generation

        def answer(outcome: int | StoreError) -> None:
            if isinstance(outcome, StoreError):
                self._refuse_messages()
            else:
                self._mark_returned(outcome)

        self._context.store.submit(
            lambda tx: lifecycle.reroute_overflow(tx, generation, list(messages)), answer
        )

    def _refuse_messages(self) -> None:
        """Send errors to the messages' senders, which needs no room on the disk; if that fails,
        too, count the messages as refused."""
        messages, lifecycle = list(self._returning), self._context.lifecycle

        def answer(outcome: StoreError | None) -> None:
            if isinstance(outcome, StoreError):
                self._context.refusals.add("returned", len(messages))
            self._mark_returned(len(messages))

        self._context.store.submit(lambda tx: lifecycle.reject(tx, messages), answer)

    def _mark_returned(self, count: int) -> None:
        del self._returning[:count]
        if self._returning:
            self._return_messages()


def _replacement_key(message: SentMessage) -> str:
    return getattr(message, "replacement_key", "")
