"""The registry of connections and sessions, and the limits on their numbers.

A connection is a socket; a session is a bound resource, which may outlive its connection
(XEP-0198). Presence is in the database, whose rows refer to a session by its number, the
generation.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from itertools import count
from typing import Final, NamedTuple

from edge.config.limits import Limits
from edge.engine import access
from edge.engine.database import Send
from edge.engine.quota import ExceededLimit
from edge.server.session import Session, SessionConnection
from edge.server.unauthenticated import UnauthenticatedConnections

ENDED_SESSIONS: Final = 256
"""Maximum number of ended sessions that are remembered, so that a peer that cannot resume learns
how many of its stanzas were handled."""


class EndedSession(NamedTuple):
    """The account of an ended session, and the number of stanzas handled from its device."""

    account: str
    handled: int


class Registry:
    """The connections and sessions of the process.

    Attributes:
        session_count: number of sessions that have not ended.
        no_connections: an event that is set while there are no connections.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._generations = count(1)
        self._connections: dict[SessionConnection, None] = {}
        self.unauthenticated: UnauthenticatedConnections[SessionConnection] = (
            UnauthenticatedConnections(limits)
        )
        self._sessions: dict[int, Session] = {}
        self._by_account: dict[str, dict[int, Session]] = {}
        self._by_source: dict[str, dict[int, Session]] = {}
        self._resumable: dict[str, Session] = {}
        self._detached: dict[int, Session] = {}
        self._ended: dict[str, EndedSession] = {}
        self.session_count = 0
        self.no_connections = asyncio.Event()
        self.no_connections.set()

    # Connections

    def add_connection(self, connection: SessionConnection, source: str, now: float) -> bool:
        """Add a connection; return False if there are too many.

        Args:
            source: its source address, as `login_throttle.source_of` returns it.
            now: the present time in seconds.
        """
        admitted, replaced = self.unauthenticated.admit(connection, source, now)
        if replaced is not None:
            replaced.end("resource-constraint", "replaced by a newer connection", at_once=True)
        if admitted:
            self._connections[connection] = None
            self.no_connections.clear()
        return admitted

    def mark_bound(self, connection: SessionConnection) -> None:
        """Record that a connection has a session, so it does not count as unauthenticated."""
        self.unauthenticated.remove(connection)

    def remove_connection(self, connection: SessionConnection) -> None:
        """Remove a closed connection."""
        self._connections.pop(connection, None)
        self.unauthenticated.remove(connection)
        if not self._connections:
            self.no_connections.set()

    def resume_reading(self) -> None:
        """Resume reading on all connections."""
        for connection in list(self._connections):
            connection.resume_reading()

    def release_idle(self) -> None:
        """Free the memory that idle connections do not need."""
        for connection in self._connections:
            connection.release_idle()

    # Sessions

    def largest_groups(self) -> tuple[int, int]:
        """Return the largest number of sessions of one account, and of one source address."""
        groups = self._by_account, self._by_source
        account, source = (max(map(len, group.values()), default=0) for group in groups)
        return account, source

    def sessions(self) -> list[Session]:
        """Return the sessions that have not ended."""
        return [session for session in self._sessions.values() if not session.ended]

    def next_generation(self) -> int:
        """Return the number (generation) for a new session."""
        return next(self._generations)

    def admit(self, session: Session) -> ExceededLimit | None:
        """Add a session that is about to be bound; return the limit that prevents it, if any.

        If there are too many sessions in all, of the account or of the source address, the one of
        them that has waited longest to be resumed is ended. Sessions of the same full JID do not
        count, because the new session replaces them.
        """
        replaced = [
            other
            for other in self._by_account.get(session.account, {}).values()
            if other.full == session.full
        ]
        groups = (
            ("sessions_per_account", self._by_account.get(session.account, {})),
            ("sessions_per_address", self._by_source.get(session.source, {})),
            ("sessions", None),  # all
        )
        for name, group in groups:
            limit = getattr(self._limits, name)
            used = (self.session_count if group is None else len(group)) - _count(replaced, group)
            if used >= limit and not self._evict_detached(replaced, group):
                return ExceededLimit(name, limit)
        self.session_count += 1
        generation = session.generation
        self._sessions[generation] = session
        self._by_account.setdefault(session.account, {})[generation] = session
        self._by_source.setdefault(session.source, {})[generation] = session
        return None

    def _evict_detached(self, keep: list[Session], group: dict[int, Session] | None) -> bool:
        """End the session that has waited longest to be resumed, of all or of a group, but not of
        `keep`; return whether there was one."""
        for session in self._detached.values():
            if session not in keep and (group is None or session.generation in group):
                session.set_end_reason("evicted")
                session.end("resource-constraint")
                return True
        return False

    def move(self, session: Session, source: str) -> bool:
        """Count a session for another source address, from which it is resumed; return False if
        that address has too many."""
        group = self._by_source.get(source, {})
        if session.generation not in group and len(group) >= self._limits.sessions_per_address:
            return False
        self._remove_from(self._by_source, session.source, session.generation)
        session.source = source
        if not session.ended:
            self._by_source.setdefault(source, {})[session.generation] = session
        return True

    @staticmethod
    def _remove_from(groups: dict[str, dict[int, Session]], key: str, generation: int) -> None:
        group = groups.get(key, {})
        group.pop(generation, None)
        if not group:
            groups.pop(key, None)

    def mark_resumable(self, session: Session) -> None:
        """Make a session resumable by its stream management id."""
        self._resumable[session.sm_id] = session

    def find_resumable(self, sm_id: str) -> Session | None:
        """Return the session that can be resumed by a stream management id, if any."""
        return self._resumable.get(sm_id)

    def mark_detached(self, session: Session) -> None:
        """Record that a session waits to be resumed."""
        self._detached[session.generation] = session

    def mark_attached(self, session: Session) -> None:
        """Record that a session has a connection again."""
        self._detached.pop(session.generation, None)

    def mark_ended(self, session: Session) -> None:
        """Record that a session has ended; stanzas still reach it until `remove_session`."""
        generation, account = session.generation, session.account
        self.session_count -= 1
        self._detached.pop(generation, None)
        self._remove_from(self._by_account, account, generation)
        self._remove_from(self._by_source, session.source, generation)
        if self._resumable.pop(session.sm_id, None) is not None:
            self._ended[session.sm_id] = EndedSession(account, session.handled)
            if len(self._ended) > ENDED_SESSIONS:
                del self._ended[next(iter(self._ended))]

    def update_ended(self, sm_id: str, handled: int) -> None:
        """Set `h` of an ended session (XEP-0198), if a stanza was handled after its end."""
        if (ended := self._ended.get(sm_id)) is not None:
            self._ended[sm_id] = ended._replace(handled=handled)

    def handled_by_ended(self, sm_id: str, account: str) -> int | None:
        """Return the number of stanzas that an account's ended session had handled, if known."""
        ended = self._ended.get(sm_id)
        if ended is None or not access.may_resume(account, ended.account):
            return None
        return ended.handled

    def remove_session(self, generation: int) -> None:
        """Remove a session whose row was removed from the store."""
        self._sessions.pop(generation, None)

    def deliver(self, sends: Iterable[Send]) -> None:
        """Pass stanzas to their sessions; drop those to removed sessions."""
        for generation, stanza, receipt in sends:
            if (session := self._sessions.get(generation)) is not None:
                session.deliver(stanza, receipt)

    def replace_others(self, session: Session) -> None:
        """End the other sessions with the full JID of a session that is about to be bound."""
        group = self._by_account.get(session.account, {}).values()
        for other in [other for other in group if other.full == session.full]:
            if other is not session:
                other.replace()

    def end_largest(self) -> str:
        """End the session with the most unacknowledged bytes; return its bare JID."""
        session = max(self._sessions.values(), key=lambda each: each.unacknowledged_bytes)
        session.end("resource-constraint")
        return session.bare

    def replace(self, generation: int) -> None:
        """End session `generation`: in the store, a new one with its full JID has replaced it."""
        if (session := self._sessions.get(generation)) is not None:
            session.replace()

    def end(self, generation: int, condition: str, text: str = "") -> None:
        """End a session with a stream error, if it exists."""
        if (session := self._sessions.get(generation)) is not None:
            session.end(condition, text)

    def end_all(self, condition: str) -> None:
        """End all connections and sessions with a stream error."""
        for connection in list(self._connections):
            connection.end(condition)
        for session in list(self._sessions.values()):
            session.end(condition)


def _count(sessions: list[Session], group: dict[int, Session] | None) -> int:
    return sum(group is None or session.generation in group for session in sessions)
