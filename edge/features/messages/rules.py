"""Where a message or an iq goes that is for an account of this gateway (RFC 6121, section 8.5).

One table: the address, who is there, and the type of the message, to what is done. Who may reach an
account is decided in `access` before: to somebody who may not, the account does not exist, and so
the answer tells nothing. Presence and subscriptions are not routed here.

Where the specification leaves a choice: what may be ignored or refused is refused, so that nothing
is lost silently; the most available session gets a message that could go to several, and it alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Final, NamedTuple, Protocol, TypeVar


class MessageType(Enum):
    """The type of a message (RFC 6121, section 5.2.2)."""

    NORMAL = "normal"
    CHAT = "chat"
    GROUPCHAT = "groupchat"
    HEADLINE = "headline"
    ERROR = "error"


class Address(Enum):
    """How an account is addressed."""

    BARE = "its bare JID"
    MATCH = "the full JID of a session that is bound"
    NO_MATCH = "a full JID that no session has"


class Availability(Enum):
    """Who is there of the account."""

    NO_ACCOUNT = "there is no such account for the sender"
    NOBODY = "no session is available, or all have a negative priority"
    SOMEBODY = "at least one is available, with a priority that is not negative"


class Outcome(Enum):
    """What is done with a message."""

    DELIVER = "sent to the session of the full JID"
    BEST = "sent to the most available session"
    ALL = "sent to all available sessions of priorities that are not negative"
    STORE = "stored until somebody is there, or refused where nothing is stored"
    REFUSE = "answered with service-unavailable"
    IGNORE = "dropped without an answer"


class BoundSession(Protocol):
    """A bound session as routing sees it."""

    @property
    def generation(self) -> int:
        """Its number."""

    @property
    def full(self) -> str:
        """Its full JID."""

    @property
    def available(self) -> bool:
        """Whether it has sent initial presence."""

    @property
    def priority(self) -> int:
        """The priority of its presence."""

    @property
    def detached(self) -> bool:
        """Whether it lost its connection and waits to be resumed."""


R = TypeVar("R", bound=BoundSession)


class Route(NamedTuple):
    """What is done with a message, and the sessions that get it."""

    outcome: Outcome
    to: Sequence[BoundSession] = ()


_D, _B, _A = Outcome.DELIVER, Outcome.BEST, Outcome.ALL
_S, _R, _I = Outcome.STORE, Outcome.REFUSE, Outcome.IGNORE

_ROWS: Final = {
    # of the types:                             normal chat group headline error
    (Address.BARE, Availability.NO_ACCOUNT): (_R, _R, _R, _R, _I),
    (Address.BARE, Availability.NOBODY): (_S, _S, _R, _I, _I),
    (Address.BARE, Availability.SOMEBODY): (_B, _B, _R, _A, _I),
    (Address.MATCH, Availability.NO_ACCOUNT): (_R, _R, _R, _R, _I),
    (Address.MATCH, Availability.NOBODY): (_D, _D, _D, _D, _D),
    (Address.MATCH, Availability.SOMEBODY): (_D, _D, _D, _D, _D),
    (Address.NO_MATCH, Availability.NO_ACCOUNT): (_R, _R, _R, _R, _I),
    (Address.NO_MATCH, Availability.NOBODY): (_R, _S, _R, _R, _I),
    (Address.NO_MATCH, Availability.SOMEBODY): (_R, _B, _R, _R, _I),
}

TABLE: Final = {
    (address, availability, kind): outcome
    for (address, availability), outcomes in _ROWS.items()
    for kind, outcome in zip(MessageType, outcomes, strict=True)
}
"""RFC 6121, Table 1, as it is done here."""


def parse_type(type_: str | None) -> MessageType:
    """Read the type of a message: none, and one that is not known, is `normal`."""
    try:
        return MessageType(type_)
    except ValueError:
        return MessageType.NORMAL


def route(
    kind: MessageType, sessions: Sequence[BoundSession], full: str | None, *, exists: bool
) -> Route:
    """Decide where a message goes (RFC 6121, sections 8.5.1 to 8.5.3).

    Args:
        kind: the type of the message.
        sessions: those of the account that are bound, of equal priority the newest first.
        full: the full JID it is for, or None if it is for the bare JID.
        exists: there is such an account, and the sender may reach it.
    """
    address = Address.BARE
    if full is not None:
        found = any(session.full == full for session in sessions)
        address = Address.MATCH if found else Address.NO_MATCH
    availability = Availability.NO_ACCOUNT
    if exists:
        availability = Availability.SOMEBODY if _available(sessions) else Availability.NOBODY
    outcome = TABLE[address, availability, kind]
    return Route(outcome, _chosen(outcome, sessions, full))


def reroute(kind: MessageType, sessions: Sequence[BoundSession], *, exists: bool) -> Route:
    """Decide where a message goes that a session had, which ended and did not confirm it.

    It is the account's from then on (XEP-0198, section 5), whatever its full JID was. A headline
    goes nowhere: the other sessions have had it.
    """
    if kind is MessageType.HEADLINE:
        return Route(Outcome.IGNORE)
    return route(kind, sessions, None, exists=exists)


def best_session(sessions: Sequence[R]) -> R | None:
    """Return the most available session, or None if none may have a message for the bare JID.

    One that has its connection goes before one that waits to be resumed; then the highest priority,
    then the newest.
    """
    return next(iter(sorted(_available(sessions), key=lambda s: (s.detached, -s.priority))), None)


def _available(sessions: Sequence[R]) -> list[R]:
    return [session for session in sessions if session.available and session.priority >= 0]


def _chosen(
    outcome: Outcome, sessions: Sequence[BoundSession], full: str | None
) -> Sequence[BoundSession]:
    if outcome is Outcome.DELIVER:
        return [session for session in sessions if session.full == full]
    if outcome is Outcome.ALL:
        return _available(sessions)
    chosen = best_session(sessions) if outcome is Outcome.BEST else None
    return () if chosen is None else (chosen,)
