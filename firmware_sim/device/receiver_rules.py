"""The receiver's state machine for one message, as one table.

Theory of operation. An offered assured message is held until its sender releases it with `deliver`.
Then it is delivered to the application, and only its key is remembered. If an answer was lost, the
sender repeats its offer or `deliver`, and gets the same answer as before. After the release, an
offer with the same key is a new message. An acknowledged message has no key; it is delivered each
time it arrives. All functions are pure. Specification: docs/how-to/integrate-firmware.md; the
quality of service ProtoXEP, sections 2.2, 2.3 and "Memory attacks".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final


class State(Enum):
    """The state of the message with a key (the sender's full JID and the msgId)."""

    UNKNOWN = "unknown"
    HELD = "held"
    RELEASED = "released"


class Input(Enum):
    """An input of the receiver's state machine."""

    OFFER = "offer, with room"
    OTHER = "offer, with another body than held"
    FULL = "offer, without room"
    DELIVER = "deliver"
    FAILED = "deliver, application failed"
    UNTRUSTED = "any request, sender untrusted"


class Reply(Enum):
    """The answer to the sender; a value with a slash is an error's type and condition."""

    RECEIVED = "received"
    RESULT = "empty result"
    CONFLICT = "cancel/conflict"
    NO_ROOM = "wait/resource-constraint"
    NOT_FOUND = "cancel/item-not-found"
    NOT_ALLOWED = "cancel/not-allowed"
    MALFORMED = "modify/bad-request"
    FAULT = "wait/internal-server-error"

    @property
    def error(self) -> tuple[str, str] | None:
        """Return the type and condition of an error (RFC 6120, 8.3); None for other replies."""
        kind, slash, condition = self.value.partition("/")
        return (kind, condition) if slash else None


class Effect(Enum):
    """A change of the inbox, committed before the answer is sent."""

    NONE = "nothing"
    HOLD = "hold"
    HAND_OVER = "deliver to application"


@dataclass(frozen=True, slots=True)
class Transition:
    """The next state, the reply and the effect for one state and input."""

    to: State
    reply: Reply
    effect: Effect = Effect.NONE


TRANSITIONS: Final[Mapping[tuple[State, Input], Transition]] = {
    (State.UNKNOWN, Input.OFFER): Transition(State.HELD, Reply.RECEIVED, Effect.HOLD),
    (State.UNKNOWN, Input.OTHER): Transition(State.HELD, Reply.RECEIVED, Effect.HOLD),
    (State.UNKNOWN, Input.FULL): Transition(State.UNKNOWN, Reply.NO_ROOM),
    (State.UNKNOWN, Input.DELIVER): Transition(State.UNKNOWN, Reply.NOT_FOUND),
    (State.UNKNOWN, Input.FAILED): Transition(State.UNKNOWN, Reply.NOT_FOUND),
    (State.UNKNOWN, Input.UNTRUSTED): Transition(State.UNKNOWN, Reply.NOT_ALLOWED),
    (State.HELD, Input.OFFER): Transition(State.HELD, Reply.RECEIVED),
    (State.HELD, Input.OTHER): Transition(State.HELD, Reply.CONFLICT),
    (State.HELD, Input.FULL): Transition(State.HELD, Reply.RECEIVED),  # it already has room
    (State.HELD, Input.DELIVER): Transition(State.RELEASED, Reply.RESULT, Effect.HAND_OVER),
    (State.HELD, Input.FAILED): Transition(State.HELD, Reply.FAULT),
    (State.HELD, Input.UNTRUSTED): Transition(State.HELD, Reply.NOT_ALLOWED),
    (State.RELEASED, Input.OFFER): Transition(State.HELD, Reply.RECEIVED, Effect.HOLD),
    (State.RELEASED, Input.OTHER): Transition(State.HELD, Reply.RECEIVED, Effect.HOLD),
    (State.RELEASED, Input.FULL): Transition(State.RELEASED, Reply.NO_ROOM),
    (State.RELEASED, Input.DELIVER): Transition(State.RELEASED, Reply.RESULT),
    (State.RELEASED, Input.FAILED): Transition(State.RELEASED, Reply.RESULT),
    (State.RELEASED, Input.UNTRUSTED): Transition(State.RELEASED, Reply.NOT_ALLOWED),
}
"""The transition of an assured message for each state and input."""

ACKNOWLEDGED: Final[Mapping[Input, Transition]] = {
    Input.OFFER: Transition(State.UNKNOWN, Reply.RESULT, Effect.HAND_OVER),
    Input.FAILED: Transition(State.UNKNOWN, Reply.FAULT),
    Input.UNTRUSTED: Transition(State.UNKNOWN, Reply.NOT_ALLOWED),
}
"""The transition of an acknowledged message for each input; such messages have no state."""


def offered(held: str | None, body: str, *, trusted: bool, room: bool) -> Input:
    """Return the state machine's input for an `assured` request.

    `held` is the body that is held with the same key, or None; `trusted` whether the sender is
    trusted, `room` whether the inbox has room for the message.
    """
    if not trusted:
        return Input.UNTRUSTED
    if held is not None and held != body:
        return Input.OTHER
    return Input.OFFER if held is not None or room else Input.FULL


def diagram() -> str:
    """Return the state machine of an assured message as a Mermaid state diagram."""
    lines = ["stateDiagram-v2", "    [*] --> unknown"]
    for (state, input_), move in TRANSITIONS.items():
        done = "" if move.effect is Effect.NONE else f"{move.effect.value}, "
        label = f"{input_.value} / {done}{move.reply.value}"
        lines.append(f"    {state.value} --> {move.to.value}: {label}")
    return "\n".join(lines)
