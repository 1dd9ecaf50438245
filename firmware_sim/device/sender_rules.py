"""The sender's state machine for one message, as one table.

Theory of operation. A message is queued, then offered (`assured` or `acknowledged` was sent), then,
at the assured level, released (`deliver` was sent), then done. It fails if it was certainly not
delivered, and is in doubt if it was possibly delivered. After the answer `received`, it is never
offered again, only released; so it is delivered exactly once. All functions are pure; `send_window`
decides when a message is sent. Specification: docs/how-to/integrate-firmware.md; the quality of
service ProtoXEP, sections 2.2 and 2.3.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import Enum, IntEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from firmware_sim.device.limits import SendPolicy


class Level(IntEnum):
    """A quality of service level at which each message is answered (not level 0)."""

    ACKNOWLEDGED = 1
    ASSURED = 2


class State(Enum):
    """The state of a message; the values are stored in the outbox and printed by the simulator."""

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
    """An input of the sender's state machine."""

    ONLINE = "can be sent, in a session"
    OFFLINE = "session lost"
    RECEIVED = "received"
    DELIVERED = "empty result"
    WAIT = "error of type wait"
    REFUSED = "other error, after one transmission"
    REFUSED_LATER = "other error, after a repetition"
    TIMEOUT = "no answer in time"
    EXHAUSTED = "no attempts left"


class Action(Enum):
    """The next action for a message; `send_window` decides when."""

    NONE = "nothing"
    OFFER = "send the message"
    DELIVER = "send deliver"
    HOLD = "wait, then repeat"
    REST = "wait for a session"


@dataclass(frozen=True, slots=True)
class Transition:
    """The next state and action for one state and input."""

    to: State
    action: Action = Action.NONE


def _row(state: State, **moves: Transition) -> dict[tuple[State, Input], Transition]:
    """Return a state's row of the table; inputs that are not given in `moves` change nothing."""
    return {(state, input_): moves.get(input_.name, Transition(state)) for input_ in Input}


_ENDED: Final = {key: move for state in sorted(ENDED, key=str) for key, move in _row(state).items()}

_QUEUED: Final = _row(State.QUEUED, ONLINE=Transition(State.OFFERED, Action.OFFER))

TRANSITIONS: Final[Mapping[Level, Mapping[tuple[State, Input], Transition]]] = {
    Level.ASSURED: {
        **_QUEUED,
        **_row(
            State.OFFERED,
            ONLINE=Transition(State.OFFERED, Action.OFFER),
            OFFLINE=Transition(State.OFFERED, Action.REST),
            RECEIVED=Transition(State.RELEASED, Action.DELIVER),
            WAIT=Transition(State.OFFERED, Action.HOLD),
            REFUSED=Transition(State.FAILED),
            REFUSED_LATER=Transition(State.FAILED),  # never released, therefore not delivered
            TIMEOUT=Transition(State.OFFERED, Action.OFFER),
            EXHAUSTED=Transition(State.FAILED),
        ),
        **_row(
            State.RELEASED,
            ONLINE=Transition(State.RELEASED, Action.DELIVER),
            OFFLINE=Transition(State.RELEASED, Action.REST),
            DELIVERED=Transition(State.DONE),
            WAIT=Transition(State.RELEASED, Action.HOLD),
            REFUSED=Transition(State.IN_DOUBT),
            REFUSED_LATER=Transition(State.IN_DOUBT),
            TIMEOUT=Transition(State.RELEASED, Action.DELIVER),
            EXHAUSTED=Transition(State.IN_DOUBT),
        ),
        **_ENDED,
    },
    Level.ACKNOWLEDGED: {
        **_QUEUED,
        **_row(
            State.OFFERED,
            ONLINE=Transition(State.OFFERED, Action.OFFER),
            OFFLINE=Transition(State.OFFERED, Action.REST),
            DELIVERED=Transition(State.DONE),
            WAIT=Transition(State.OFFERED, Action.HOLD),
            REFUSED=Transition(State.FAILED),
            # An earlier transmission may have been delivered.
            REFUSED_LATER=Transition(State.IN_DOUBT),
            TIMEOUT=Transition(State.OFFERED, Action.OFFER),
            EXHAUSTED=Transition(State.IN_DOUBT),
        ),
        **_row(State.RELEASED),  # this level has no such step
        **_ENDED,
    },
}
"""The transition for each level, state and input."""


@dataclass(frozen=True, slots=True)
class Message:
    """The fields of a message that the rules use.

    `size` is the number of bytes of the body. `sends` counts the transmissions of the current step.
    `attempts` counts them too, except those that a lost session interrupted; `max_attempts` limits
    it.
    """

    number: int
    level: Level
    size: int = 0
    state: State = State.QUEUED
    sends: int = 0
    attempts: int = 0


def refusal(error_type: str) -> Input:
    """Return the input for an error of this type (RFC 6120, 8.3.2): only `wait` permits a retry."""
    return Input.WAIT if error_type == "wait" else Input.REFUSED


def advance(message: Message, input_: Input, policy: SendPolicy) -> tuple[Message, Action]:
    """Apply one input to a message; return its new state and the next action.

    The input becomes `EXHAUSTED` or `REFUSED_LATER` if the message's counts require it. The counts
    are reset if the state changes.
    """
    move = TRANSITIONS[message.level][message.state, _refine(message, input_, policy)]
    if move.to is not message.state:
        return replace(message, state=move.to, sends=0, attempts=0), move.action
    return message, move.action


def _refine(message: Message, input_: Input, policy: SendPolicy) -> Input:
    if input_ in (Input.WAIT, Input.TIMEOUT) and message.attempts >= policy.max_attempts:
        return Input.EXHAUSTED
    if input_ is Input.REFUSED and message.sends > 1:
        return Input.REFUSED_LATER
    return input_


def transmitted(message: Message) -> Message:
    """Count one transmission of the current step. The caller stores the result, then sends."""
    return replace(message, sends=message.sends + 1, attempts=message.attempts + 1)


def interrupted(message: Message) -> Message:
    """Uncount an attempt whose answer was lost when the session or the program ended."""
    return replace(message, attempts=max(0, message.attempts - 1))


def backoff(
    attempt: int, base: float, cap: float, jitter: float, random_fraction: Callable[[], float]
) -> float:
    """Return the seconds to wait after an attempt: above 0 and at most `cap`.

    The wait is `base` after the first attempt, and doubles with each further one. It is reduced by
    a random fraction of at most `jitter` (0 to 1); `random_fraction` returns numbers in [0, 1).
    """
    exponent = min(max(attempt, 1) - 1, 62)  # larger exponents exceed any cap
    return min(cap, base * 2.0**exponent) * (1.0 - jitter * random_fraction())


def diagram(level: Level) -> str:
    """Return a level's state machine as a Mermaid state diagram."""
    lines = ["stateDiagram-v2", "    [*] --> queued"]
    for (state, input_), move in TRANSITIONS[level].items():
        if move != Transition(state):
            action = "" if move.action is Action.NONE else f" / {move.action.value}"
            lines.append(
                f"    {_identifier(state)} --> {_identifier(move.to)}: {input_.value}{action}"
            )
    lines += [f"    {_identifier(state)} --> [*]" for state in State if state in ENDED]
    return "\n".join(lines)


def _identifier(state: State) -> str:
    return state.value.replace(" ", "_")
