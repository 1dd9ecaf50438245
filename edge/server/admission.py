"""Admission of connections and sessions: limits on their numbers, for all endpoints together.

A connection is a socket. A session may outlive its connection: it is detached then, and ended if
its place is needed.
"""

from __future__ import annotations

from typing import Protocol

from edge.config.limits import Limits
from edge.engine.dispatch.outputs import EndReason, Receiver
from edge.engine.rules.quota import ExceededLimit
from edge.server.unauthenticated import UnauthenticatedConnections


class AdmittedConnection(Protocol):
    """The method of a connection that the admission calls."""

    def displace(self) -> None:
        """Close at once, because a newer connection takes its place."""


class AdmittedSession(Receiver, Protocol):
    """The attributes and methods of a session that the admission uses.

    Attributes:
        source: its source address, as `login_throttle.source_of` returns it, or "" if unknown.
    """

    generation: int
    bare: str
    full: str
    source: str

    @property
    def unacknowledged_bytes(self) -> int:
        """Bytes of what it keeps in memory until its peer has acknowledged it."""


Group = dict[int, AdmittedSession]


class Admission:
    """The unauthenticated connections and the sessions of all endpoints.

    Attributes:
        unauthenticated: the connections without a session.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self.unauthenticated = UnauthenticatedConnections[AdmittedConnection](limits)
        self._sessions: Group = {}
        self._by_account: dict[str, Group] = {}
        self._by_source: dict[str, Group] = {}
        self._detached: Group = {}

    def admit_connection(self, connection: AdmittedConnection, source: str, now: float) -> bool:
        """Add an unauthenticated connection; return whether there was room for it.

        It may displace another one. The arguments are those of `UnauthenticatedConnections.admit`.
        """
        admitted, replaced = self.unauthenticated.admit(connection, source, now)
        if replaced is not None:
            replaced.displace()
        return admitted

    @property
    def session_count(self) -> int:
        """The number of sessions."""
        return len(self._sessions)

    def count_of_account(self, bare: str) -> int:
        """Return the number of sessions of an account."""
        return len(self._by_account.get(bare, ()))

    def largest_groups(self) -> tuple[int, int]:
        """Return the largest number of sessions of one account, and of one source address."""
        groups = self._by_account, self._by_source
        account, source = (max(map(len, group.values()), default=0) for group in groups)
        return account, source

    def admit(self, session: AdmittedSession) -> ExceededLimit | None:
        """Add a session that is about to be bound; return the limit that prevents it, if any.

        If there are too many sessions in all, of the account or of the source address, the one of
        them that has been detached longest is ended. Sessions of the same full address do not
        count, because the new session replaces them.
        """
        replaced = self._of_same_address(session)
        groups = (
            ("sessions_per_account", self._by_account.get(session.bare, {})),
            ("sessions_per_address", self._by_source.get(session.source, {})),
            ("sessions", self._sessions),
        )
        for name, group in groups:
            limit = getattr(self._limits, name)
            used = len(group) - sum(other.generation in group for other in replaced)
            if used >= limit and not self._evict_detached(replaced, group):
                return ExceededLimit(name, limit)
        self.add(session)
        return None

    def add(self, session: AdmittedSession) -> None:
        """Add a session whatever the limits; the caller makes sure that they are met."""
        generation = session.generation
        self._sessions[generation] = session
        self._by_account.setdefault(session.bare, {})[generation] = session
        self._add_to_source(session)

    def _add_to_source(self, session: AdmittedSession) -> None:
        if session.source:
            self._by_source.setdefault(session.source, {})[session.generation] = session

    def _of_same_address(self, session: AdmittedSession) -> list[AdmittedSession]:
        own = self._by_account.get(session.bare, {}).values()
        return [other for other in own if other.full == session.full]

    def _evict_detached(self, keep: list[AdmittedSession], group: Group) -> bool:
        """End the session of a group that has been detached longest, but not one of `keep`; return
        whether there was one."""
        for session in self._detached.values():
            if session not in keep and session.generation in group:
                session.end(EndReason.EVICTED)
                return True
        return False

    def move(self, session: AdmittedSession, source: str) -> bool:
        """Count a session for another source address, from which it is resumed; return False if
        that address has too many."""
        group = self._by_source.get(source, {})
        if session.generation not in group and len(group) >= self._limits.sessions_per_address:
            return False
        _remove_from(self._by_source, session.source, session.generation)
        session.source = source
        if session.generation in self._sessions:
            self._add_to_source(session)
        return True

    def mark_detached(self, session: AdmittedSession) -> None:
        """Record that a session waits for its device to come back."""
        self._detached[session.generation] = session

    def mark_attached(self, session: AdmittedSession) -> None:
        """Record that a session has a connection again."""
        self._detached.pop(session.generation, None)

    def remove(self, session: AdmittedSession) -> None:
        """Remove a session, because it has ended."""
        generation = session.generation
        if self._sessions.pop(generation, None) is not None:
            self._detached.pop(generation, None)
            _remove_from(self._by_account, session.bare, generation)
            _remove_from(self._by_source, session.source, generation)

    def replace_others(self, session: AdmittedSession) -> None:
        """End the other sessions with the full address of a session that is about to be bound."""
        for other in self._of_same_address(session):
            if other is not session:
                other.end(EndReason.REPLACED)

    def end_largest(self) -> str:
        """End the session with the most unacknowledged bytes; return its account's address."""
        session = max(self._sessions.values(), key=lambda each: each.unacknowledged_bytes)
        session.end(EndReason.MEMORY)
        return session.bare


def _remove_from(groups: dict[str, Group], key: str, generation: int) -> None:
    group = groups.get(key, {})
    group.pop(generation, None)
    if not group:
        groups.pop(key, None)
