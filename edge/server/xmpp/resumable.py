"""The sessions of a listener that can be resumed, by their stream management ids (XEP-0198)."""

from __future__ import annotations

from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from edge.engine import access

ENDED_SESSIONS: Final = 256
"""Maximum number of ended sessions that are remembered, so that a peer that cannot resume learns
how many of its stanzas were handled."""


class ResumableSession(Protocol):
    """The attributes of a session that are used here."""

    account: str
    sm_id: str

    @property
    def handled(self) -> int:
        """Number of the peer's stanzas that were handled."""


S = TypeVar("S", bound=ResumableSession)


class EndedSession(NamedTuple):
    """The account of an ended session, and the number of stanzas handled from its device."""

    account: str
    handled: int


class ResumableSessions(Generic[S]):
    """The sessions that can be resumed, and what is remembered of those that have ended."""

    def __init__(self) -> None:
        self._sessions: dict[str, S] = {}
        self._ended: dict[str, EndedSession] = {}

    def add(self, session: S) -> None:
        """Make a session resumable by its id."""
        self._sessions[session.sm_id] = session

    def find(self, sm_id: str) -> S | None:
        """Return the session that can be resumed by an id, if any."""
        return self._sessions.get(sm_id)

    def mark_ended(self, session: S) -> None:
        """Record that a session, resumable or not, has ended."""
        if self._sessions.pop(session.sm_id, None) is not None:
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
