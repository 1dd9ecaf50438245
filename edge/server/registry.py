"""The registry of an XMPP listener: its connections, and its sessions by stream management id.

A connection is a socket; a session is a bound resource, which may outlive its connection
(XEP-0198). `admission` limits their numbers, and `outputs` finds a session by its generation.
"""

from __future__ import annotations

import asyncio
from typing import Final, NamedTuple

from edge.engine import access
from edge.engine.outputs import EndReason, Outputs
from edge.engine.quota import ExceededLimit
from edge.server.admission import Admission
from edge.server.session import Session, SessionConnection

ENDED_SESSIONS: Final = 256
"""Maximum number of ended sessions that are remembered, so that a peer that cannot resume learns
how many of its stanzas were handled."""


class EndedSession(NamedTuple):
    """The account of an ended session, and the number of stanzas handled from its device."""

    account: str
    handled: int


class Registry:
    """The connections and sessions of a listener.

    Attributes:
        no_connections: an event that is set while there are no connections.
    """

    def __init__(self, outputs: Outputs, admission: Admission) -> None:
        self._outputs = outputs
        self._admission = admission
        self._connections: dict[SessionConnection, None] = {}
        self._sessions: dict[int, Session] = {}
        self._resumable: dict[str, Session] = {}
        self._ended: dict[str, EndedSession] = {}
        self.no_connections = asyncio.Event()
        self.no_connections.set()

    # Connections

    def add_connection(self, connection: SessionConnection, source: str, now: float) -> bool:
        """Add a connection; return False if there are too many.

        Args:
            source: its source address, as `login_throttle.source_of` returns it.
            now: the present time in seconds.
        """
        admitted = self._admission.admit_connection(connection, source, now)
        if admitted:
            self._connections[connection] = None
            self.no_connections.clear()
        return admitted

    def mark_bound(self, connection: SessionConnection) -> None:
        """Record that a connection has a session, so it does not count as unauthenticated."""
        self._admission.unauthenticated.remove(connection)

    def remove_connection(self, connection: SessionConnection) -> None:
        """Remove a closed connection."""
        self._connections.pop(connection, None)
        self._admission.unauthenticated.remove(connection)
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

    def sessions(self) -> list[Session]:
        """Return the sessions that have not ended."""
        return [session for session in self._sessions.values() if not session.ended]

    def admit(self, session: Session) -> ExceededLimit | None:
        """Add a session that is about to be bound; return the limit that prevents it, if any."""
        exceeded = self._admission.admit(session)
        if exceeded is None:
            self._sessions[session.generation] = session
            self._outputs.attach(session.generation, session)
        return exceeded

    def mark_resumable(self, session: Session) -> None:
        """Make a session resumable by its stream management id."""
        self._resumable[session.sm_id] = session

    def find_resumable(self, sm_id: str) -> Session | None:
        """Return the session that can be resumed by a stream management id, if any."""
        return self._resumable.get(sm_id)

    def mark_ended(self, session: Session) -> None:
        """Record that a session has ended; stanzas still reach it until `remove_session`."""
        self._admission.remove(session)
        if self._resumable.pop(session.sm_id, None) is not None:
            self._ended[session.sm_id] = EndedSession(session.account, session.handled)
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
        self._outputs.detach(generation)

    def end_all(self) -> None:
        """End all connections and sessions, because the gateway stops."""
        for connection in list(self._connections):
            connection.end("system-shutdown")
        for session in list(self._sessions.values()):
            session.end(EndReason.SHUTDOWN)
