"""Which sockets there are: generation to session, and how many may be.

Who is bound and who is present is not known here: that is in the store.
"""

from __future__ import annotations

import asyncio
from itertools import count
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from edge.options import Limits


class Connection(Protocol):
    """What the registry can ask of a session."""

    def end(self, condition: str, text: str = "") -> None:
        """Send a stream error and close."""

    def read_on(self) -> None:
        """Read again, if nothing else holds the session back."""


class Registry:
    """The sessions of the process, bounded in number."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._generations = count(1)
        self._sessions: dict[int, Connection] = {}
        self._strangers: set[int] = set()
        self.empty = asyncio.Event()
        self.empty.set()

    def __len__(self) -> int:
        return len(self._sessions)

    def add(self, session: Connection) -> int | None:
        """Take a new connection in; returns its generation, or `None` if there are too many."""
        if len(self._sessions) >= self._limits.sessions:
            return None
        if len(self._strangers) >= self._limits.unauthenticated:
            return None
        generation = next(self._generations)
        self._sessions[generation] = session
        self.empty.clear()
        self._strangers.add(generation)
        return generation

    def known(self, generation: int) -> None:
        """Note that this one has logged in."""
        self._strangers.discard(generation)

    def remove(self, generation: int) -> None:
        """Forget a connection."""
        self._sessions.pop(generation, None)
        self._strangers.discard(generation)
        if not self._sessions:
            self.empty.set()

    def end(self, generation: int, condition: str, text: str = "") -> None:
        """End a session with a stream error, if it is still there."""
        if (session := self._sessions.get(generation)) is not None:
            session.end(condition, text)

    def end_all(self, condition: str) -> None:
        """End every session."""
        for session in list(self._sessions.values()):
            session.end(condition)

    def read_on(self) -> None:
        """Let all sessions read again."""
        for session in list(self._sessions.values()):
            session.read_on()
