"""The registry of a listener: its connections, and its sessions.

A connection is a socket; a session may outlive its connection. `admission` limits their numbers,
and `outputs` finds a session by its generation.
"""

from __future__ import annotations

import asyncio
from typing import Any, Generic, Protocol, TypeVar

from edge.engine.dispatch.outputs import EndReason, Outputs
from edge.engine.rules.quota import ExceededLimit
from edge.server.admission import Admission, AdmittedConnection
from edge.server.session import Session

S = TypeVar("S", bound=Session[Any])


class RegisteredConnection(AdmittedConnection, Protocol):
    """The methods of a connection that the registry calls."""

    def end(self, reason: EndReason) -> None:
        """Send the reason to the peer, and close."""

    def resume_reading(self) -> None:
        """Resume reading after a pause, unless there is another reason to pause."""

    def release_idle(self) -> None:
        """Free memory that is needed only while the peer sends."""


class Registry(Generic[S]):
    """The connections and sessions of a listener.

    Attributes:
        no_connections: an event that is set while there are no connections.
    """

    def __init__(self, outputs: Outputs, admission: Admission) -> None:
        self._outputs = outputs
        self._admission = admission
        self._connections: dict[RegisteredConnection, None] = {}
        self._sessions: dict[int, S] = {}
        self.no_connections = asyncio.Event()
        self.no_connections.set()

    # Connections

    def add_connection(self, connection: RegisteredConnection, source: str, now: float) -> bool:
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

    def mark_bound(self, connection: RegisteredConnection) -> None:
        """Record that a connection has a session, so it does not count as unauthenticated."""
        self._admission.unauthenticated.remove(connection)

    def remove_connection(self, connection: RegisteredConnection) -> None:
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

    def sessions(self) -> list[S]:
        """Return the sessions that have not ended."""
        return [session for session in self._sessions.values() if not session.ended]

    def admit(self, session: S) -> ExceededLimit | None:
        """Add a session that is about to be bound; return the limit that prevents it, if any."""
        exceeded = self._admission.admit(session)
        if exceeded is None:
            self._sessions[session.generation] = session
            self._outputs.attach(session.generation, session)
        return exceeded

    def remove_session(self, generation: int) -> None:
        """Remove a session whose row was removed from the store."""
        self._sessions.pop(generation, None)
        self._outputs.detach(generation)

    def end_all(self) -> None:
        """End all connections and sessions, because the gateway stops."""
        for connection in list(self._connections):
            connection.end(EndReason.SHUTDOWN)
        for session in list(self._sessions.values()):
            session.end(EndReason.SHUTDOWN)
