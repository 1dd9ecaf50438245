"""Who is connected and which sessions there are, and how many may be.

A connection is a socket; a session is what is bound, and may wait for its connection to come back
(XEP-0198). Who is present is not known here: that is in the store, whose sends find their session
by its generation.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from itertools import count
from typing import Final, Protocol

from edge.config.limits import Limits
from edge.engine import access
from edge.engine.database import Send
from edge.engine.quota import ExceededLimit
from edge.server.session import Session
from edge.server.unauthenticated import Strangers

REMEMBERED: Final = 256
"""Sessions that are over of which it is known how many stanzas they had handled: a peer that wants
to resume one learns which of its stanzas not to send again."""

RESERVED: Final = 4
"""One part in so many of what may wait for acknowledgement is not for what sessions send to each
other."""


class Connected(Protocol):
    """What the registry can ask of a connection."""

    def end(self, condition: str, text: str = "", *, at_once: bool = False) -> None:
        """Send a stream error and close; `at_once`, without waiting for the peer."""

    def read_on(self) -> None:
        """Read again, if nothing else holds the connection back."""


class Handled:
    """How many stanzas a session had handled when it was over, of whose account."""

    __slots__ = ("account", "h")

    def __init__(self, account: str, h: int) -> None:
        self.account = account
        self.h = h


class Registry:
    """The connections and the sessions of the process, bounded in number."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._generations = count(1)
        self._connections: dict[Connected, None] = {}
        self._strangers: Strangers[Connected] = Strangers(limits)
        self._sessions: dict[int, Session] = {}
        self._bound: dict[str, dict[int, Session]] = {}
        self._by_source: dict[str, dict[int, Session]] = {}
        self._tokens: dict[str, Session] = {}
        self._detached: dict[int, Session] = {}
        self._over: dict[str, Handled] = {}
        self._live = 0  # sessions that are not over
        self.unacknowledged = 0
        self.returning = 0  # bytes of what sessions that are over still have to give back
        self.empty = asyncio.Event()
        self.empty.set()

    # Connections

    def add(self, connection: Connected, source: str, now: float) -> bool:
        """Take a new connection in; false if there are too many.

        Args:
            connection: the new one.
            source: its address, as `throttle.source` gives it.
            now: the present second.
        """
        stays, goes = self._strangers.admit(connection, source, now)
        if goes is not None:
            goes.end("resource-constraint", "made room for a newcomer", at_once=True)
        if stays:
            self._connections[connection] = None
            self.empty.clear()
        return stays

    def known(self, connection: Connected) -> None:
        """Note that this one has a session: until then, who has logged in is a stranger too."""
        self._strangers.remove(connection)

    def remove(self, connection: Connected) -> None:
        """Forget a connection."""
        self._connections.pop(connection, None)
        self._strangers.remove(connection)
        if not self._connections:
            self.empty.set()

    def read_on(self) -> None:
        """Let all connections read again."""
        for connection in list(self._connections):
            connection.read_on()

    # What there is

    @property
    def live(self) -> int:
        """Sessions that are not over."""
        return self._live

    @property
    def strangers(self) -> Strangers[Connected]:
        """Those who have not logged in yet."""
        return self._strangers

    def fullest(self) -> tuple[int, int]:
        """Return how many sessions the account has that has most, and the address that has most."""
        groups = self._bound, self._by_source
        account, address = (max(map(len, group.values()), default=0) for group in groups)
        return account, address

    def sessions(self) -> Iterable[Session]:
        """Name the sessions that are not over, or have not left yet."""
        return self._sessions.values()

    # Sessions

    def generation(self) -> int:
        """Return the number of the next session."""
        return next(self._generations)

    def admit(self, session: Session) -> ExceededLimit | None:
        """Take a session in that is about to be bound; returns the limit that there is no room in.

        Where there are too many, one that waits to be resumed makes room: of its account or address
        where those have too many, the one that has waited longest. One of the same full JID does
        not count: the new session replaces it.
        """
        replaced = [
            other
            for other in self._bound.get(session.account, {}).values()
            if other.full == session.full
        ]
        for over, of in self._groups(session):
            there = (self._live if of is None else len(of)) - _count(replaced, of)
            if there >= over.value and not self._make_room(replaced, of):
                return over
        self._live += 1
        generation = session.generation
        self._sessions[generation] = session
        self._bound.setdefault(session.account, {})[generation] = session
        self._by_source.setdefault(session.source, {})[generation] = session
        return None

    def _groups(self, session: Session) -> list[tuple[ExceededLimit, dict[int, Session] | None]]:
        """Name what a session counts in: the limit, and those who count too; `None` for all."""
        limits = self._limits
        return [
            (
                ExceededLimit("sessions_per_account", limits.sessions_per_account),
                self._bound.get(session.account, {}),
            ),
            (
                ExceededLimit("sessions_per_address", limits.sessions_per_address),
                self._by_source.get(session.source, {}),
            ),
            (ExceededLimit("sessions", limits.sessions), None),
        ]

    def _make_room(self, stay: list[Session], of: dict[int, Session] | None) -> bool:
        """End the one that has waited longest; false if none waits."""
        for session in self._detached.values():
            if session not in stay and (of is None or session.generation in of):
                session.because("evicted")
                session.end("resource-constraint")
                return True
        return False

    def moves(self, session: Session, source: str) -> bool:
        """Note that a session goes on from another address; false if that has too many."""
        there = self._by_source.get(source, {})
        if session.generation not in there and len(there) >= self._limits.sessions_per_address:
            return False
        self._leave(self._by_source, session.source, session.generation)
        session.source = source
        if not session.over:
            self._by_source.setdefault(source, {})[session.generation] = session
        return True

    @staticmethod
    def _leave(groups: dict[str, dict[int, Session]], key: str, generation: int) -> None:
        group = groups.get(key, {})
        group.pop(generation, None)
        if not group:
            groups.pop(key, None)

    def resumable(self, session: Session) -> None:
        """Let a session be found by its token."""
        self._tokens[session.token] = session

    def find(self, token: str) -> Session | None:
        """Return the session that can be resumed by this token."""
        return self._tokens.get(token)

    def detached(self, session: Session) -> None:
        """Note that a session waits to be resumed."""
        self._detached[session.generation] = session

    def attached(self, session: Session) -> None:
        """Note that a session has a connection again."""
        self._detached.pop(session.generation, None)

    def over(self, session: Session) -> None:
        """Note that a session is over; sends still find it until it has left the store."""
        generation, account = session.generation, session.account
        self._live -= 1
        self._detached.pop(generation, None)
        self._leave(self._bound, account, generation)
        self._leave(self._by_source, session.source, generation)
        if self._tokens.pop(session.token, None) is not None:
            self._over[session.token] = Handled(account, session.handled)
            if len(self._over) > REMEMBERED:
                del self._over[next(iter(self._over))]

    def handled(self, token: str, h: int) -> None:
        """Note that a session that is over has handled more."""
        if (remembered := self._over.get(token)) is not None:
            remembered.h = h

    def handled_before(self, token: str, account: str) -> int | None:
        """Tell how many stanzas a session of an account had handled that is over, if known."""
        remembered = self._over.get(token)
        if remembered is None or not access.may_resume(account, remembered.account):
            return None
        return remembered.h

    def forget(self, generation: int) -> None:
        """Forget a session that has left the store."""
        self._sessions.pop(generation, None)

    def deliver(self, sends: Iterable[Send]) -> None:
        """Hand stanzas over to their sessions; one that has left has given its rows back."""
        for generation, stanza, receipt in sends:
            if (session := self._sessions.get(generation)) is not None:
                session.deliver(stanza, receipt)

    def vacate(self, session: Session) -> None:
        """End the sessions whose address another is about to have."""
        bound = self._bound.get(session.account, {}).values()
        for other in [other for other in bound if other.full == session.full]:
            if other is not session:
                other.replaced()

    def has_room(self, size: int) -> bool:
        """Tell whether so many bytes more may wait for acknowledgement that one session sends to
        another: a part of all is for answers and rows."""
        most = self._limits.unacknowledged_total_bytes // RESERVED * (RESERVED - 1)
        return self.unacknowledged + size <= most

    def relieve(self) -> str:
        """End the session that holds most of what is not acknowledged, since there is too much of
        it; returns whose it was, a bare JID."""
        session = max(self._sessions.values(), key=_held)
        session.end("resource-constraint")
        return session.bare

    def replaced(self, generation: int) -> None:
        """End a session whose address another has now: it has left the store."""
        if (session := self._sessions.get(generation)) is not None:
            session.replaced()

    def end(self, generation: int, condition: str, text: str = "") -> None:
        """End a session with a stream error, if it is still there."""
        if (session := self._sessions.get(generation)) is not None:
            session.end(condition, text)

    def end_all(self, condition: str) -> None:
        """End every connection, and every session."""
        for connection in list(self._connections):
            connection.end(condition)
        for session in list(self._sessions.values()):
            session.end(condition)


def _count(sessions: list[Session], group: dict[int, Session] | None) -> int:
    return sum(group is None or session.generation in group for session in sessions)


def _held(session: Session) -> int:
    return 0 if session.over else session.held
