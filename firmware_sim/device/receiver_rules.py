"""The receiving half of quality of service, as one table: what happens to ONE message.

Theory of operation. An assured message is offered, and held unread until its sender releases it by
`deliver`; then it is handed over and its key is remembered without it. So an offer or a `deliver`
that is repeated, because its answer was lost, finds the key and is answered as the first one was. A
key may be used again after its release: that offer is a new message. An acknowledged message has
no key: it is handed over each time it comes.

This module does not know a socket, a clock, SQL or XML. Specification: docs/how-to/firmware.md; the
quality of service ProtoXEP, sections 2.2, 2.3 and "Memory attacks".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final


class State(Enum):
    """Where a message is, by its key: the sender's full JID and the msgId."""

    UNKNOWN = "unknown"
    HELD = "held"
    RELEASED = "released"


class Input(Enum):
    """What can come for a key."""

    OFFER = "an offer, with room for it"
    OTHER = "an offer with another body than the one held"
    FULL = "an offer, without room for it"
    DELIVER = "deliver"
    FAILED = "deliver, and the application failed"
    UNTRUSTED = "anything, from one who is not trusted"


class Reply(Enum):
    """What the sender is told; all but the first two are errors."""

    RECEIVED = "received"
    RESULT = "an empty result"
    CONFLICT = "cancel/conflict"
    NO_ROOM = "wait/resource-constraint"
    NOT_FOUND = "cancel/item-not-found"
    NOT_ALLOWED = "cancel/not-allowed"
    MALFORMED = "modify/bad-request"
    FAULT = "wait/internal-server-error"

    @property
    def error(self) -> tuple[str, str] | None:
        """Its type and condition (RFC 6120, 8.3), or None if it is no error."""
        kind, slash, condition = self.value.partition("/")
        return (kind, condition) if slash else None


class Effect(Enum):
    """What is done, in the transaction that the answer waits for."""

    NONE = "nothing"
    HOLD = "hold"
    HAND_OVER = "hand over"


@dataclass(frozen=True, slots=True)
class Move:
    """One cell of the table."""

    to: State
    reply: Reply
    effect: Effect = Effect.NONE


TRANSITIONS: Final[Mapping[tuple[State, Input], Move]] = {
    (State.UNKNOWN, Input.OFFER): Move(State.HELD, Reply.RECEIVED, Effect.HOLD),
    (State.UNKNOWN, Input.OTHER): Move(State.HELD, Reply.RECEIVED, Effect.HOLD),
    (State.UNKNOWN, Input.FULL): Move(State.UNKNOWN, Reply.NO_ROOM),
    (State.UNKNOWN, Input.DELIVER): Move(State.UNKNOWN, Reply.NOT_FOUND),
    (State.UNKNOWN, Input.FAILED): Move(State.UNKNOWN, Reply.NOT_FOUND),
    (State.UNKNOWN, Input.UNTRUSTED): Move(State.UNKNOWN, Reply.NOT_ALLOWED),
    (State.HELD, Input.OFFER): Move(State.HELD, Reply.RECEIVED),
    (State.HELD, Input.OTHER): Move(State.HELD, Reply.CONFLICT),
    (State.HELD, Input.FULL): Move(State.HELD, Reply.RECEIVED),  # it has its room
    (State.HELD, Input.DELIVER): Move(State.RELEASED, Reply.RESULT, Effect.HAND_OVER),
    (State.HELD, Input.FAILED): Move(State.HELD, Reply.FAULT),
    (State.HELD, Input.UNTRUSTED): Move(State.HELD, Reply.NOT_ALLOWED),
    (State.RELEASED, Input.OFFER): Move(State.HELD, Reply.RECEIVED, Effect.HOLD),
    (State.RELEASED, Input.OTHER): Move(State.HELD, Reply.RECEIVED, Effect.HOLD),
    (State.RELEASED, Input.FULL): Move(State.RELEASED, Reply.NO_ROOM),
    (State.RELEASED, Input.DELIVER): Move(State.RELEASED, Reply.RESULT),
    (State.RELEASED, Input.FAILED): Move(State.RELEASED, Reply.RESULT),
    (State.RELEASED, Input.UNTRUSTED): Move(State.RELEASED, Reply.NOT_ALLOWED),
}
"""Every state times every input, of an assured message."""

ACKNOWLEDGED: Final[Mapping[Input, Move]] = {
    Input.OFFER: Move(State.UNKNOWN, Reply.RESULT, Effect.HAND_OVER),
    Input.FAILED: Move(State.UNKNOWN, Reply.FAULT),
    Input.UNTRUSTED: Move(State.UNKNOWN, Reply.NOT_ALLOWED),
}
"""What an acknowledged message gets; nothing of it is kept, so nothing else can come for it."""


def offered(held: str | None, body: str, *, trusted: bool, room: bool) -> Input:
    """Classify an `assured`.

    Args:
        held: the body that is held under its key, if one is.
        body: its own.
        trusted: whether its sender is.
        room: whether it fits beside what is held.
    """
    if not trusted:
        return Input.UNTRUSTED
    if held is not None and held != body:
        return Input.OTHER
    return Input.OFFER if held is not None or room else Input.FULL


def released(*, trusted: bool) -> Input:
    """Classify a `deliver`."""
    return Input.DELIVER if trusted else Input.UNTRUSTED


def acknowledged(*, trusted: bool) -> Input:
    """Classify an `acknowledged`."""
    return Input.OFFER if trusted else Input.UNTRUSTED


def diagram() -> str:
    """Draw the table of an assured message for the documentation (Mermaid's state diagrams)."""
    lines = ["stateDiagram-v2", "    [*] --> unknown"]
    for (state, given), move in TRANSITIONS.items():
        done = "" if move.effect is Effect.NONE else f"{move.effect.value}, "
        told = f"{given.value} / {done}{move.reply.value}"
        lines.append(f"    {state.value} --> {move.to.value}: {told}")
    return "\n".join(lines)
