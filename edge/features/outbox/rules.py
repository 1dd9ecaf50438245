"""Rules of the sending side of QoS: the states of an outgoing message and what to send next.

Theory of operation. A message waits in the outbox of its recipient's account. At level 2
(`assured`) it is offered, received, and released (`deliver`). At level 1 (`acknowledged`) it is
sent until it is answered. Each step is one entry of `TABLE` and is stored before the message that
depends on it is sent. After `received`, a message is never offered again: it belongs to the session
that received it. If a session does not support QoS and its account allows it, the message is sent
as a plain message, and stays one.

`plan` decides which messages of one account are sent now. Order is kept per source: a message is
first offered when all earlier messages of its source are received or finished, and is delivered
when they are finished. To an ordered session (`SessionWindow`), it is offered when all earlier ones
are sent, and delivered as soon as it is received, because what is sent arrives in order. Sources do
not wait for each other, and nothing waits for a message whose session is gone.
If the device asks to wait with a message, first offers of later messages wait too, but messages
that have been sent continue.

The plan cannot deadlock. The earliest message of each source waits for no other message, so it is
sent or waits for its own timer. A message with which its device asked to wait blocks others only
until it is sent again or fails, which the number of attempts bounds. A device that has no room
because of what it has received is still sent the releases of exactly these messages.

Source: XEP QoS, "Use Cases", as the project's protocol decisions complete it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum, IntEnum, StrEnum
from typing import Final, NamedTuple, TypeAlias

from edge.engine.rules.quota import NO_USAGE, Usage


class Level(IntEnum):
    """The QoS level at which a message came and is sent."""

    ACKNOWLEDGED = 1
    ASSURED = 2


class State(StrEnum):
    """The progress of a message."""

    QUEUED = "queued"
    OFFERED = "offered"
    REPEATED = "repeated"
    RECEIVED = "received"
    RELEASED = "released"
    PLAIN = "plain"
    DONE = "done"
    FAILED = "failed"
    IN_DOUBT = "in doubt"


TERMINAL: Final = frozenset({State.DONE, State.FAILED, State.IN_DOUBT})
"""States in which the message leaves the outbox."""

BOUND: Final = frozenset({State.RECEIVED, State.RELEASED})
"""States in which the message belongs to the full JID that received it."""


class Input(StrEnum):
    """The inputs of the state machine of a message."""

    SEND = "ready to send"
    SEND_PLAIN = "ready to send as a plain message"
    RECEIVED = "received"
    RESULT = "empty result"
    WAIT_ERROR = "wait error"
    FINAL_ERROR = "final error"
    TIMEOUT = "no answer in time"
    EXHAUSTED = "no attempts left"
    EXPIRED = "expired"
    SESSION_LOST = "session lost"


class Action(Enum):
    """An action that a transition requires besides the change of the message's state."""

    NONE = "nothing"
    SEND = "send the request of the next state"
    DEFER = "wait as long as for an answer, then send again"
    REFUND_ATTEMPT = "do not count the attempt"


class Transition(NamedTuple):
    """An entry of `TABLE`: the next state, and what else to do."""

    state: State
    action: Action = Action.NONE


_Rows: TypeAlias = "dict[str, dict[Input, Transition]]"

_ASSURED: Final[_Rows] = {
    State.QUEUED: {
        Input.SEND: Transition(State.OFFERED, Action.SEND),
        Input.SEND_PLAIN: Transition(State.PLAIN, Action.SEND),
        Input.EXPIRED: Transition(State.FAILED),
    },
    State.OFFERED: {
        Input.SEND: Transition(State.OFFERED, Action.SEND),
        Input.SEND_PLAIN: Transition(State.PLAIN, Action.SEND),
        Input.RECEIVED: Transition(State.RECEIVED),
        Input.WAIT_ERROR: Transition(State.OFFERED, Action.DEFER),
        Input.FINAL_ERROR: Transition(State.FAILED),
        Input.TIMEOUT: Transition(State.OFFERED, Action.SEND),
        Input.EXHAUSTED: Transition(State.FAILED),
        Input.EXPIRED: Transition(State.FAILED),
        Input.SESSION_LOST: Transition(State.OFFERED, Action.REFUND_ATTEMPT),
    },
    State.RECEIVED: {
        Input.SEND: Transition(State.RELEASED, Action.SEND),
        Input.EXPIRED: Transition(State.FAILED),
    },
    State.RELEASED: {
        Input.SEND: Transition(State.RELEASED, Action.SEND),
        Input.RESULT: Transition(State.DONE),
        Input.WAIT_ERROR: Transition(State.RELEASED, Action.DEFER),
        Input.FINAL_ERROR: Transition(State.IN_DOUBT),
        Input.TIMEOUT: Transition(State.RELEASED, Action.SEND),
        Input.EXHAUSTED: Transition(State.IN_DOUBT),
        Input.EXPIRED: Transition(State.IN_DOUBT),
        Input.SESSION_LOST: Transition(State.RELEASED, Action.REFUND_ATTEMPT),
    },
}

_ACKNOWLEDGED: Final[_Rows] = {
    State.QUEUED: {
        Input.SEND: Transition(State.OFFERED, Action.SEND),
        Input.SEND_PLAIN: Transition(State.PLAIN, Action.SEND),
        Input.EXPIRED: Transition(State.FAILED),
    },
    State.OFFERED: {
        Input.SEND: Transition(State.REPEATED, Action.SEND),
        Input.SEND_PLAIN: Transition(State.PLAIN, Action.SEND),
        Input.RESULT: Transition(State.DONE),
        Input.WAIT_ERROR: Transition(State.OFFERED, Action.DEFER),
        Input.FINAL_ERROR: Transition(State.FAILED),
        Input.TIMEOUT: Transition(State.REPEATED, Action.SEND),
        Input.EXHAUSTED: Transition(State.IN_DOUBT),
        Input.EXPIRED: Transition(State.IN_DOUBT),
        Input.SESSION_LOST: Transition(State.OFFERED, Action.REFUND_ATTEMPT),
    },
    State.REPEATED: {
        Input.SEND: Transition(State.REPEATED, Action.SEND),
        Input.SEND_PLAIN: Transition(State.PLAIN, Action.SEND),
        Input.RESULT: Transition(State.DONE),
        Input.WAIT_ERROR: Transition(State.REPEATED, Action.DEFER),
        Input.FINAL_ERROR: Transition(State.IN_DOUBT),
        Input.TIMEOUT: Transition(State.REPEATED, Action.SEND),
        Input.EXHAUSTED: Transition(State.IN_DOUBT),
        Input.EXPIRED: Transition(State.IN_DOUBT),
        Input.SESSION_LOST: Transition(State.REPEATED, Action.REFUND_ATTEMPT),
    },
}

_PLAIN: Final[_Rows] = {
    State.PLAIN: {
        Input.SEND: Transition(State.PLAIN, Action.SEND),
        Input.SEND_PLAIN: Transition(State.PLAIN, Action.SEND),
        Input.RESULT: Transition(State.DONE),
        Input.EXHAUSTED: Transition(State.IN_DOUBT),
        Input.EXPIRED: Transition(State.IN_DOUBT),
        Input.SESSION_LOST: Transition(State.PLAIN, Action.REFUND_ATTEMPT),
    },
}

TABLE: Final[Mapping[int, _Rows]] = {
    Level.ASSURED: _ASSURED | _PLAIN,
    Level.ACKNOWLEDGED: _ACKNOWLEDGED | _PLAIN,
}
"""All transitions; an input without an entry changes nothing.

For a plain message, the empty result means that the session has acknowledged it (XEP-0198)
or that it was written to the socket. A result without `received` does not answer an offer: it is a
final error.
"""


def transition(level: int, state: str, event: Input) -> Transition | None:
    """Return the transition for an input, or `None` if it changes nothing."""
    return TABLE[level][state].get(event)


class SessionWindow(NamedTuple):
    """The limits and the order of a session whose messages do not count for its account's window.

    Attributes:
        full: its full address.
        window: the maximum number and bytes of messages that were sent to it and are not finished.
        ids: how many ids it has for these messages (`message_id`); `None` if it has enough.
        ordered: whether messages are sent without waiting for the answers to earlier ones, and
            released in the order in which it has received them.
    """

    full: str
    window: Usage
    ids: int | None
    ordered: bool


def message_id(row: int, ids: int) -> int:
    """Return the id, from 1 to `ids`, of the message with a row number."""
    return 1 + row % ids


class Candidate(NamedTuple):
    """A message of an account's outbox, as the planner sees it.

    A message that belongs to a session is a candidate while that session is bound.

    Args:
        row: its number; messages with lower numbers are older.
        source: the key within which order is kept, as in `OutboxRow`.
        in_flight: whether it was sent and has not been answered.
        deferred: whether the device asked to wait with it.
        own: the input that sends a message which is for one session only (`SEND` or
            `SEND_PLAIN`); `None` if that session does not accept it, and for other messages.
        turn: as in `OutboxRow`.
        session: the session that it was or would be sent to, if that has a window of its own.
        joins: whether it was not sent to that session yet.
    """

    row: int
    source: str
    level: int
    state: str
    bytes: int
    in_flight: bool = False
    deferred: bool = False
    own: Input | None = None
    turn: int = 0
    session: SessionWindow | None = None
    joins: bool = False


def may_send_alone(one: Candidate, send: Input | None) -> bool:
    """Return whether `plan` would choose `one` if it were the only candidate."""
    if one.in_flight or one.deferred:
        return False
    return one.state in BOUND or (one.own or send) is not None


def plan(candidates: Iterable[Candidate], send: Input | None, window: Usage) -> list[int]:
    """Choose which messages of one account are sent now; return their row numbers in order.

    Args:
        candidates: all messages that have been sent, and the first queued ones of each source: one,
            or for an ordered session several.
        send: `Input.SEND` if a session accepts QoS messages, `SEND_PLAIN` if one accepts plain
            messages instead, `None` if no session accepts any. It does not matter for messages that
            belong to a session, or are addressed to one that accepts them.
        window: the maximum number and bytes of messages that were sent and are not finished. One
            message is always allowed. Sessions with a `SessionWindow` have a window of their own.
    """
    known = sorted(candidates, key=lambda one: (one.state == State.QUEUED, one.turn, one.row))
    order, room = _Ordering(known), _Room(known, window)
    chosen: list[int] = []
    held: set[str] = set()  # sources with a message that must not be overtaken
    for one in known:
        if one.in_flight or one.deferred:
            continue
        if one.source not in held and order.is_ready(one, send) and room.take(one):
            chosen.append(one.row)
        elif one.state == State.QUEUED:
            held.add(one.source)
    return chosen


class _Room:
    """The rest of the windows of the account and its sessions, and of the sessions' ids."""

    def __init__(self, known: Sequence[Candidate], window: Usage) -> None:
        self._window = window
        self._used: dict[str | None, Usage] = {}
        self._full: set[str | None] = set()
        self._ids: set[tuple[str, int]] = set()
        self._ids_in_flight: set[tuple[str, int]] = set()
        for one in known:
            if not _joins(one):
                self._count(one)
            if one.in_flight and (id := _id_in_session(one)) is not None:
                self._ids_in_flight.add(id)

    def take(self, one: Candidate) -> bool:
        """Return whether there is room for a message, which is then used."""
        id = _id_in_session(one)
        if not _joins(one):
            has_room = id not in self._ids_in_flight
        else:
            has_room = id not in self._ids and self._fits(one)
        if not has_room:
            return False
        if _joins(one):
            self._count(one)
        if id is not None:
            self._ids_in_flight.add(id)
        return True

    def _fits(self, one: Candidate) -> bool:
        session = one.session
        name, window = (None, self._window) if session is None else (session.full, session.window)
        if not window.has_room(self._used.get(name, NO_USAGE), one.bytes):
            self._full.add(name)  # a smaller message must not pass
        return name not in self._full

    def _count(self, one: Candidate) -> None:
        name = None if one.session is None else one.session.full
        used = self._used.get(name, NO_USAGE)
        self._used[name] = Usage(used.messages + 1, used.bytes + one.bytes)
        if (id := _id_in_session(one)) is not None:
            self._ids.add(id)


def _joins(one: Candidate) -> bool:
    """Return whether a message would become an unfinished one of its session or account."""
    return not one.in_flight and (one.state == State.QUEUED or one.joins)


def _id_in_session(one: Candidate) -> tuple[str, int] | None:
    session = one.session
    if session is None or session.ids is None:
        return None
    return session.full, message_id(one.row, session.ids)


class _Ordering:
    def __init__(self, candidates: Sequence[Candidate]) -> None:
        self._first = _first_by_source(candidates)
        self._unreceived = _first_by_source(one for one in candidates if one.state not in BOUND)
        self._barrier = min((one.row for one in candidates if one.deferred), default=None)

    def is_ready(self, one: Candidate, send: Input | None) -> bool:
        """Return whether a session accepts `one` (see `plan`) and no earlier message blocks it."""
        if one.state == State.RELEASED:
            return True
        in_turn = one.session is not None and one.session.ordered
        if one.state == State.RECEIVED:
            return in_turn or self._is_first(one)
        send = one.own or send
        if send is None:
            return False
        if not in_turn and _is_delivered_by_sending(one, send) and not self._is_first(one):
            return False
        if one.state != State.QUEUED:
            return True
        blocked = self._barrier is not None and self._barrier < one.row
        return not blocked and (in_turn or self._unreceived[one.source] == one.row)

    def _is_first(self, one: Candidate) -> bool:
        return self._first[one.source] == one.row


def _first_by_source(candidates: Iterable[Candidate]) -> dict[str, int]:
    found: dict[str, int] = {}
    for one in candidates:
        found[one.source] = min(one.row, found.get(one.source, one.row))
    return found


def _is_delivered_by_sending(one: Candidate, send: Input) -> bool:
    return one.level == Level.ACKNOWLEDGED or one.state == State.PLAIN or send is Input.SEND_PLAIN
