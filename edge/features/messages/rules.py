"""Rules for routing a message or an iq that is addressed to an account (RFC 6121, section 8.5).

`TABLE` maps the kind of address, the availability of the account and the type of the message to an
outcome. If the sender may not reach an account, the account is treated as if it did not exist, so
that the answer reveals nothing.

Where the specification leaves a choice, a message is refused rather than ignored, so that nothing
is lost silently. A message that several sessions could receive goes only to the most available
session.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, StrEnum
from typing import Final, NamedTuple, Protocol, TypeVar


class MessageType(StrEnum):
    """The type of a message (RFC 6121, section 5.2.2)."""

    NORMAL = "normal"
    CHAT = "chat"
    GROUPCHAT = "groupchat"
    HEADLINE = "headline"
    ERROR = "error"


class Address(StrEnum):
    """Kinds of addresses of an account: its bare JID, or a full JID with or without a session."""

    BARE = "the bare JID"
    MATCH = "the full JID of a bound session"
    NO_MATCH = "the full JID of no bound session"


class Availability(StrEnum):
    """Availability of an account for messages: its sessions that accept them."""

    NO_ACCOUNT = "the account does not exist, or the sender may not reach it"
    NOBODY = "no session accepts messages for the account"
    SOMEBODY = "at least one session accepts messages for the account"


class Outcome(Enum):
    """The handling of a message."""

    DELIVER = "send to the session of the full JID"
    BEST = "send to the most available session"
    ALL = "send to all sessions that accept messages for the account"
    STORE = "store until a session is available; refuse if storing is disabled"
    REFUSE = "answer with service-unavailable"
    IGNORE = "drop without an answer"


class BoundSession(Protocol):
    """The properties of a bound session on which the routing of messages depends."""

    @property
    def generation(self) -> int:
        """Return the session's number."""

    @property
    def full(self) -> str:
        """Return the session's full JID."""

    @property
    def accepts(self) -> bool:
        """Return whether the session accepts messages for its account."""

    @property
    def rank(self) -> int:
        """Return the session's rank among those of its account."""

    @property
    def detached(self) -> bool:
        """Return whether the session lost its connection and can be resumed."""


R = TypeVar("R", bound=BoundSession)


class Route(NamedTuple):
    """The handling of a message, and the sessions that receive it."""

    outcome: Outcome
    sessions: Sequence[BoundSession] = ()


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
"""The outcome for each address kind, availability and message type (RFC 6121, table 1)."""


_TYPES: Final[dict[str | None, MessageType]] = {type_.value: type_ for type_ in MessageType}


def parse_type(type_: str | None) -> MessageType:
    """Parse the type of a message; a missing or unknown type is `normal`."""
    return _TYPES.get(type_, MessageType.NORMAL)


def route(
    kind: MessageType, sessions: Sequence[BoundSession], full: str | None, *, exists: bool
) -> Route:
    """Return the route of a message (RFC 6121, sections 8.5.1 to 8.5.3).

    Args:
        sessions: the account's bound sessions; among equal ranks the newest first.
        full: the full JID that is addressed, or `None` for the bare JID.
        exists: whether the account exists and the sender may reach it.
    """
    address = Address.BARE
    if full is not None:
        found = any(session.full == full for session in sessions)
        address = Address.MATCH if found else Address.NO_MATCH
    available = _available(sessions)
    availability = Availability.NO_ACCOUNT
    if exists:
        availability = Availability.SOMEBODY if available else Availability.NOBODY
    outcome = TABLE[address, availability, kind]
    if outcome is Outcome.ALL:
        return Route(outcome, available)
    if outcome is Outcome.BEST:
        return Route(outcome, (_best(available),))
    if outcome is Outcome.DELIVER:
        return Route(outcome, [session for session in sessions if session.full == full])
    return Route(outcome)


def reroute(kind: MessageType, sessions: Sequence[BoundSession], *, exists: bool) -> Route:
    """Return the route of a message that a session received but did not acknowledge before it
    ended.

    The message is now addressed to the account's bare JID (XEP-0198, section 5). A headline is
    dropped because the other sessions have received it.
    """
    if kind is MessageType.HEADLINE:
        return Route(Outcome.IGNORE)
    return route(kind, sessions, None, exists=exists)


def best_session(sessions: Sequence[R]) -> R | None:
    """Return the most available session that accepts messages for the bare JID, or `None`.

    Connected sessions come before detached ones, then higher ranks, then newer sessions.
    """
    available = _available(sessions)
    return _best(available) if available else None


def _best(available: Sequence[R]) -> R:
    if len(available) == 1:
        return available[0]
    return min(available, key=lambda session: (session.detached, -session.rank))


def _available(sessions: Sequence[R]) -> list[R]:
    return [session for session in sessions if session.accepts]
