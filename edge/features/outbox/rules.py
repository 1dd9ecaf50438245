"""The sender's side of quality of service: how far a message has come, and what is sent next.

Theory of operation. A message waits in the line of its recipient's account. At level 2 it is
offered (`assured`), received, and released (`deliver`); at level 1 it is sent (`acknowledged`)
until it is answered. Each step is one entry of one table, and is written down before the stanza
that depends on it leaves. After `received` a message is never offered again: it belongs to the
session that has it. Where a session knows no quality of service and its account allows that, the
message goes as a plain one, and remains one.

`plan` decides which messages of one account are sent now. Order is kept for each source: a message
is first offered when the earlier ones of its source are received or over, and is delivered when
they are over. Sources do not wait for each other, nor does anything wait for a message that belongs
to a session that is not there. What a device asked to wait with holds back first offers behind it,
and nothing that is on its way.

Nothing can lock itself up. Of each source, the earliest message that is there waits for no other,
so it is sent, or waits for a time of its own; what waits for it comes behind. What a device asked
to wait with holds others back until it is sent again or fails, which its attempts bound. And a
device without room, since it holds what it has received, is sent the releases of just those: they
are on their way.

Sending, storing and telling the time are done elsewhere. Source: XEP QoS, "Use Cases", as the
project's protocol decisions complete it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import Final, NamedTuple, TypeAlias

from edge.engine.quota import Usage


class Level(Enum):
    """At which level a message came, and is handed on."""

    ACKNOWLEDGED = 1
    ASSURED = 2


class State(Enum):
    """How far a message has come."""

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
"""The message leaves the line."""

BOUND: Final = frozenset({State.RECEIVED, State.RELEASED})
"""The message belongs to the full JID that has received it."""


class Input(Enum):
    """What may happen to a message."""

    TURN = "its turn"
    PLAIN_TURN = "its turn as a plain message"
    RECEIVED = "received"
    RESULT = "empty result"
    WAIT = "wait error"
    FINAL = "final error"
    LATE = "no answer in time"
    EXHAUSTED = "no attempt left"
    EXPIRED = "expired"
    GONE = "session gone"


class Action(Enum):
    """What is done beside going to the next state."""

    NONE = "nothing"
    SEND = "the stanza of the next state is sent"
    HOLD = "it waits for as long as it would for an answer"
    GIVE_BACK = "the attempt does not count"


class Transition(NamedTuple):
    """One entry of the table."""

    state: State
    act: Action = Action.NONE


_Rows: TypeAlias = "dict[State, dict[Input, Transition]]"

_ASSURED: Final[_Rows] = {
    State.QUEUED: {
        Input.TURN: Transition(State.OFFERED, Action.SEND),
        Input.PLAIN_TURN: Transition(State.PLAIN, Action.SEND),
        Input.EXPIRED: Transition(State.FAILED),
    },
    State.OFFERED: {
        Input.TURN: Transition(State.OFFERED, Action.SEND),
        Input.PLAIN_TURN: Transition(State.PLAIN, Action.SEND),
        Input.RECEIVED: Transition(State.RECEIVED),
        Input.WAIT: Transition(State.OFFERED, Action.HOLD),
        Input.FINAL: Transition(State.FAILED),
        Input.LATE: Transition(State.OFFERED, Action.SEND),
        Input.EXHAUSTED: Transition(State.FAILED),
        Input.EXPIRED: Transition(State.FAILED),
        Input.GONE: Transition(State.OFFERED, Action.GIVE_BACK),
    },
    State.RECEIVED: {
        Input.TURN: Transition(State.RELEASED, Action.SEND),
        Input.EXPIRED: Transition(State.FAILED),
    },
    State.RELEASED: {
        Input.TURN: Transition(State.RELEASED, Action.SEND),
        Input.RESULT: Transition(State.DONE),
        Input.WAIT: Transition(State.RELEASED, Action.HOLD),
        Input.FINAL: Transition(State.IN_DOUBT),
        Input.LATE: Transition(State.RELEASED, Action.SEND),
        Input.EXHAUSTED: Transition(State.IN_DOUBT),
        Input.EXPIRED: Transition(State.IN_DOUBT),
        Input.GONE: Transition(State.RELEASED, Action.GIVE_BACK),
    },
}

_ACKNOWLEDGED: Final[_Rows] = {
    State.QUEUED: {
        Input.TURN: Transition(State.OFFERED, Action.SEND),
        Input.PLAIN_TURN: Transition(State.PLAIN, Action.SEND),
        Input.EXPIRED: Transition(State.FAILED),
    },
    State.OFFERED: {
        Input.TURN: Transition(State.REPEATED, Action.SEND),
        Input.PLAIN_TURN: Transition(State.PLAIN, Action.SEND),
        Input.RESULT: Transition(State.DONE),
        Input.WAIT: Transition(State.OFFERED, Action.HOLD),
        Input.FINAL: Transition(State.FAILED),
        Input.LATE: Transition(State.REPEATED, Action.SEND),
        Input.EXHAUSTED: Transition(State.IN_DOUBT),
        Input.EXPIRED: Transition(State.IN_DOUBT),
        Input.GONE: Transition(State.OFFERED, Action.GIVE_BACK),
    },
    State.REPEATED: {
        Input.TURN: Transition(State.REPEATED, Action.SEND),
        Input.PLAIN_TURN: Transition(State.PLAIN, Action.SEND),
        Input.RESULT: Transition(State.DONE),
        Input.WAIT: Transition(State.REPEATED, Action.HOLD),
        Input.FINAL: Transition(State.IN_DOUBT),
        Input.LATE: Transition(State.REPEATED, Action.SEND),
        Input.EXHAUSTED: Transition(State.IN_DOUBT),
        Input.EXPIRED: Transition(State.IN_DOUBT),
        Input.GONE: Transition(State.REPEATED, Action.GIVE_BACK),
    },
}

_PLAIN: Final[_Rows] = {
    State.PLAIN: {
        Input.TURN: Transition(State.PLAIN, Action.SEND),
        Input.PLAIN_TURN: Transition(State.PLAIN, Action.SEND),
        Input.RESULT: Transition(State.DONE),
        Input.EXHAUSTED: Transition(State.IN_DOUBT),
        Input.EXPIRED: Transition(State.IN_DOUBT),
        Input.GONE: Transition(State.PLAIN, Action.GIVE_BACK),
    },
}

TABLE: Final[Mapping[Level, _Rows]] = {
    Level.ASSURED: _ASSURED | _PLAIN,
    Level.ACKNOWLEDGED: _ACKNOWLEDGED | _PLAIN,
}
"""All transitions; what is not in it changes nothing.

Of a plain message, the empty result is the session's word that it has the stanza (XEP-0198), or
that it was written. A result that does not say `received` answers no offer: it is a final error.
"""


def transition(level: Level, state: State, event: Input) -> Transition | None:
    """Return what an input makes of a message; `None` where it changes nothing."""
    return TABLE[level][state].get(event)


class Candidate(NamedTuple):
    """A message of an account's line, as the planner sees it.

    Args:
        row: its number, which is its place.
        source: the bare JID of its original sender.
        level: its level.
        state: how far it has come.
        bytes: what it weighs.
        there: the session that it was last sent to, or belongs to, is bound.
        under_way: its stanza was sent, and no answer has come yet.
        held: the device asked to wait with it.
    """

    row: int
    source: str
    level: Level
    state: State
    bytes: int
    there: bool = False
    under_way: bool = False
    held: bool = False


def plan(lines: Iterable[Candidate], turn: Input | None, window: Usage) -> list[int]:
    """Choose the messages of one account that are sent now, in order.

    Args:
        lines: all that are on their way, and of the queued ones the first of each source.
        turn: `Input.TURN` if a session takes messages with quality of service, `PLAIN_TURN` if one
            takes plain ones instead, `None` if nobody takes any. A message that belongs to a
            session has its turn with that.
        window: the most that may be on their way, in number and in bytes; one always may.
    """
    known = [line for line in lines if line.there or line.state not in BOUND]
    known.sort(key=lambda line: (line.state is State.QUEUED, line.row))
    order = _Order(known)
    flight = [line for line in known if line.state is not State.QUEUED]
    count, weight = len(flight), sum(line.bytes for line in flight)
    chosen = []
    for line in known:
        if line.under_way or line.held or not order.ready(line, turn):
            continue
        if line.state is State.QUEUED:
            if count and (count >= window.messages or weight + line.bytes > window.bytes):
                break
            count, weight = count + 1, weight + line.bytes
        chosen.append(line.row)
    return chosen


class _Order:
    """What waits for what."""

    def __init__(self, lines: Sequence[Candidate]) -> None:
        self._first = _first(lines)
        self._unreceived = _first(line for line in lines if line.state not in BOUND)
        self._barrier = min((line.row for line in lines if line.held), default=None)

    def ready(self, line: Candidate, turn: Input | None) -> bool:
        """Tell whether nothing that is earlier holds a message back, and somebody takes it."""
        if line.state is State.RELEASED:
            return True
        if line.state is State.RECEIVED:
            return self._is_first(line)
        if turn is None:
            return False
        if _delivers(line, turn) and not self._is_first(line):
            return False
        if line.state is not State.QUEUED:
            return True
        behind = self._barrier is not None and self._barrier < line.row
        return not behind and self._unreceived[line.source] == line.row

    def _is_first(self, line: Candidate) -> bool:
        return self._first[line.source] == line.row


def _first(lines: Iterable[Candidate]) -> dict[str, int]:
    """Return the earliest message of each source."""
    found: dict[str, int] = {}
    for line in lines:
        found[line.source] = min(line.row, found.get(line.source, line.row))
    return found


def _delivers(line: Candidate, turn: Input) -> bool:
    """Tell whether a message arrives by being sent, with no second step."""
    return line.level is Level.ACKNOWLEDGED or line.state is State.PLAIN or turn is Input.PLAIN_TURN


def diagram(level: Level) -> str:
    """Draw a level's table as a Mermaid state diagram; what changes nothing is left out."""
    lines = ["stateDiagram-v2", f"    [*] --> {State.QUEUED.value}"]
    for state, row in TABLE[level].items():
        for event, (then, act) in row.items():
            does = "" if act is Action.NONE else f" / {act.name.lower().replace('_', ' ')}"
            lines.append(f"    {_word(state)} --> {_word(then)}: {event.value}{does}")
    lines += [f"    {_word(state)} --> [*]" for state in State if state in TERMINAL]
    return "\n".join(lines)


def _word(state: State) -> str:
    return state.value.replace(" ", "_")
