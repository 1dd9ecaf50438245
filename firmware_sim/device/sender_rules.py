"""The sending half of quality of service, as one table: what happens to ONE message.

Theory of operation. A message is queued, then offered (`assured` or `acknowledged` was sent), then,
at the assured level, released (`deliver` was sent), then done. It ends as failed where it is
certain that it was not delivered, and as in doubt where it may have been. After `received` it is
never offered again, only released: that is what makes it exactly once.

This module does not know a socket, a clock, SQL or XML, and not which message is before which
(`line` does). Everything in it is a pure function. Specification: docs/how-to/firmware.md; the
quality of service ProtoXEP, sections 2.2 and 2.3.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import Enum, IntEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from firmware_sim.device.limits import Policy


class Level(IntEnum):
    """The quality of service of a message that waits for an answer."""

    ACKNOWLEDGED = 1
    ASSURED = 2


class State(Enum):
    """Where a message is; the words are those of the outbox and of the verdict."""

    QUEUED = "queued"
    OFFERED = "offered"
    RELEASED = "released"
    DONE = "done"
    FAILED = "failed"
    IN_DOUBT = "in doubt"


LIVE: Final = frozenset({State.QUEUED, State.OFFERED, State.RELEASED})
IN_FLIGHT: Final = frozenset({State.OFFERED, State.RELEASED})
ENDED: Final = frozenset(State) - LIVE


class Input(Enum):
    """What can happen to a message."""

    ONLINE = "its turn, with a session"
    OFFLINE = "the session is lost"
    RECEIVED = "received answers the offer"
    DELIVERED = "an empty result answers"
    WAIT = "an error of type wait answers"
    REFUSED = "an error that ends it answers the only transmission"
    REFUSED_LATER = "an error that ends it answers a repetition"
    TIMEOUT = "no answer in time"
    EXHAUSTED = "no attempt is left"


class Action(Enum):
    """What the message asks for next; `line` decides when it may."""

    NONE = "nothing"
    OFFER = "send the message"
    DELIVER = "send deliver"
    HOLD = "wait, then repeat"
    REST = "wait for a session"


@dataclass(frozen=True, slots=True)
class Move:
    """One cell of the table."""

    to: State
    action: Action = Action.NONE


def _row(state: State, **moves: Move) -> dict[tuple[State, Input], Move]:
    """Fill a row: every input that is not named leaves the state as it is and asks for nothing."""
    return {(state, given): moves.get(given.name, Move(state)) for given in Input}


_ENDED: Final = {key: move for state in sorted(ENDED, key=str) for key, move in _row(state).items()}

_QUEUED: Final = _row(State.QUEUED, ONLINE=Move(State.OFFERED, Action.OFFER))

TRANSITIONS: Final[Mapping[Level, Mapping[tuple[State, Input], Move]]] = {
    Level.ASSURED: {
        **_QUEUED,
        **_row(
            State.OFFERED,
            ONLINE=Move(State.OFFERED, Action.OFFER),
            OFFLINE=Move(State.OFFERED, Action.REST),
            RECEIVED=Move(State.RELEASED, Action.DELIVER),
            WAIT=Move(State.OFFERED, Action.HOLD),
            REFUSED=Move(State.FAILED),
            REFUSED_LATER=Move(State.FAILED),  # never released, so it cannot have been delivered
            TIMEOUT=Move(State.OFFERED, Action.OFFER),
            EXHAUSTED=Move(State.FAILED),
        ),
        **_row(
            State.RELEASED,
            ONLINE=Move(State.RELEASED, Action.DELIVER),
            OFFLINE=Move(State.RELEASED, Action.REST),
            DELIVERED=Move(State.DONE),
            WAIT=Move(State.RELEASED, Action.HOLD),
            REFUSED=Move(State.IN_DOUBT),
            REFUSED_LATER=Move(State.IN_DOUBT),
            TIMEOUT=Move(State.RELEASED, Action.DELIVER),
            EXHAUSTED=Move(State.IN_DOUBT),
        ),
        **_ENDED,
    },
    Level.ACKNOWLEDGED: {
        **_QUEUED,
        **_row(
            State.OFFERED,
            ONLINE=Move(State.OFFERED, Action.OFFER),
            OFFLINE=Move(State.OFFERED, Action.REST),
            DELIVERED=Move(State.DONE),
            WAIT=Move(State.OFFERED, Action.HOLD),
            REFUSED=Move(State.FAILED),
            REFUSED_LATER=Move(State.IN_DOUBT),  # an earlier transmission may have been delivered
            TIMEOUT=Move(State.OFFERED, Action.OFFER),
            EXHAUSTED=Move(State.IN_DOUBT),
        ),
        **_row(State.RELEASED),  # this level has no such step
        **_ENDED,
    },
}
"""Every state times every input. What stands in no line of it changes nothing."""


@dataclass(frozen=True, slots=True)
class Message:
    """What the rules know of a message.

    `size` is its body in bytes. `sends` counts the transmissions of the current step, `attempts`
    those of them that count against `max_attempts`: not the ones that a lost session interrupted.
    """

    number: int
    level: Level
    size: int = 0
    state: State = State.QUEUED
    sends: int = 0
    attempts: int = 0


def refusal(error_type: str) -> Input:
    """Classify an error by its type (RFC 6120, 8.3.2): `wait` may be repeated."""
    return Input.WAIT if error_type == "wait" else Input.REFUSED


def advance(message: Message, given: Input, policy: Policy) -> tuple[Message, Action]:
    """Apply one input to a message.

    Args:
        message: where it stands.
        given: what happened; `EXHAUSTED` and `REFUSED_LATER` are worked out here from the counts.
        policy: says how many attempts there are.

    Returns:
        The message after it, with the counts at zero when the step is a new one, and what it asks.
    """
    move = TRANSITIONS[message.level][message.state, _refine(message, given, policy)]
    if move.to is not message.state:
        return replace(message, state=move.to, sends=0, attempts=0), move.action
    return message, move.action


def _refine(message: Message, given: Input, policy: Policy) -> Input:
    if given in (Input.WAIT, Input.TIMEOUT) and message.attempts >= policy.max_attempts:
        return Input.EXHAUSTED
    if given is Input.REFUSED and message.sends > 1:
        return Input.REFUSED_LATER
    return given


def transmitted(message: Message) -> Message:
    """Count one transmission of the current step; to be kept before the stanza leaves."""
    return replace(message, sends=message.sends + 1, attempts=message.attempts + 1)


def interrupted(message: Message) -> Message:
    """Give back the attempt whose answer a lost session, or a restart, cut off."""
    return replace(message, attempts=max(0, message.attempts - 1))


def backoff(
    attempt: int, base: float, cap: float, jitter: float, chance: Callable[[], float]
) -> float:
    """Say how long to wait after the attempt of that number (from 1).

    Args:
        attempt: how many were made, from 1.
        base: seconds after the first; doubles with each.
        cap: seconds, the most.
        jitter: the part of the wait that chance may take off, 0 to 1.
        chance: gives a number in [0, 1).

    Returns:
        Seconds, above 0 and at most `cap`.
    """
    exponent = min(max(attempt, 1) - 1, 62)  # beyond it any base is over any cap
    return min(cap, base * 2.0**exponent) * (1.0 - jitter * chance())


def diagram(level: Level) -> str:
    """Draw a level's table for the documentation, in the notation of Mermaid's state diagrams."""
    lines = ["stateDiagram-v2", "    [*] --> queued"]
    for (state, given), move in TRANSITIONS[level].items():
        if move != Move(state):
            asks = "" if move.action is Action.NONE else f" / {move.action.value}"
            lines.append(f"    {_word(state)} --> {_word(move.to)}: {given.value}{asks}")
    lines += [f"    {_word(state)} --> [*]" for state in State if state in ENDED]
    return "\n".join(lines)


def _word(state: State) -> str:
    return state.value.replace(" ", "_")
