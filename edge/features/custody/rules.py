"""The receiver's side of quality of service: what to answer and what to do.

Each offer, deliver and acknowledged message is classified into one situation, and each situation
has one row in one table. Source: XEP QoS, "Use Cases" and "Security Considerations", as the
project's protocol decisions complete it. Holding, delivering and answering are done elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final, NamedTuple


class Condition(NamedTuple):
    """A stanza error: its type and its condition (RFC 6120 8.3)."""

    type: str
    name: str


CONFLICT: Final = Condition("cancel", "conflict")
NOT_ALLOWED: Final = Condition("cancel", "not-allowed")
NO_ROOM: Final = Condition("wait", "resource-constraint")
NOT_FOUND: Final = Condition("cancel", "item-not-found")

REPEATED: Final = "repeated"
"""What stands for a rule where nothing is wrong: a request that was answered before."""


class Situation(Enum):
    """Where an incoming request finds the receiver."""

    NEW = "not held, trusted, allowed, within limits"
    HELD_SAME = "held, same body"
    HELD_OTHER = "held, another body"
    UNTRUSTED = "not trusted"
    NO_DESTINATION = "destination does not exist or is forbidden"
    OVER_LIMIT = "over a limit"
    HELD = "held"
    HELD_NO_ROOM = "held, no room there just now"
    HELD_GONE = "held, destination gone or forbidden since"
    UNREADABLE = "content that the destination cannot read"
    RELEASED = "released before"
    UNKNOWN = "unknown or expired"


class Effect(Enum):
    """What happens to the message, in the transaction of the answer."""

    NONE = "nothing"
    HOLD = "held on disk, unparsed"
    DELIVER = "removed and delivered where it goes"
    BURY = "kept as dead, for the operator"


class Answer(Enum):
    """What the sender is told; a `Condition` instead is an error."""

    RECEIVED = "result with <received/>"
    EMPTY = "empty result"
    ITS_ERROR = "the destination's error"


class Decision(NamedTuple):
    """One row: the answer, the effect, and the rule under which an event is logged, if any."""

    answer: Answer | Condition
    effect: Effect
    rule: str | None = None


OFFERED: Final[Mapping[Situation, Decision]] = {
    Situation.NEW: Decision(Answer.RECEIVED, Effect.HOLD),
    Situation.HELD_SAME: Decision(Answer.RECEIVED, Effect.NONE, REPEATED),
    Situation.HELD_OTHER: Decision(CONFLICT, Effect.NONE, "msgid_conflict"),
    Situation.UNTRUSTED: Decision(NOT_ALLOWED, Effect.NONE, "untrusted"),
    Situation.NO_DESTINATION: Decision(Answer.ITS_ERROR, Effect.NONE, "no_destination"),
    Situation.OVER_LIMIT: Decision(NO_ROOM, Effect.NONE, "over_limit"),
}
"""What an `assured` gets."""

RELEASED: Final[Mapping[Situation, Decision]] = {
    Situation.HELD: Decision(Answer.EMPTY, Effect.DELIVER),
    Situation.HELD_NO_ROOM: Decision(NO_ROOM, Effect.NONE, "no_room"),
    Situation.HELD_GONE: Decision(Answer.ITS_ERROR, Effect.BURY, "destination_gone"),
    Situation.UNREADABLE: Decision(Answer.EMPTY, Effect.BURY, "unreadable"),
    Situation.RELEASED: Decision(Answer.EMPTY, Effect.NONE, REPEATED),
    Situation.UNKNOWN: Decision(NOT_FOUND, Effect.NONE, "unknown_msgid"),
}
"""What a `deliver` gets."""

ACKNOWLEDGED: Final[Mapping[Situation, Decision]] = {
    Situation.NEW: Decision(Answer.EMPTY, Effect.DELIVER),
    Situation.UNREADABLE: Decision(Answer.EMPTY, Effect.BURY, "unreadable"),
    Situation.UNTRUSTED: Decision(NOT_ALLOWED, Effect.NONE, "untrusted"),
    Situation.NO_DESTINATION: Decision(Answer.ITS_ERROR, Effect.NONE, "no_destination"),
    Situation.OVER_LIMIT: Decision(NO_ROOM, Effect.NONE, "over_limit"),
}
"""What an `acknowledged` gets."""


def offer(
    *, held: bytes | None, digest: bytes, trusted: bool, destination: bool, room: bool
) -> Situation:
    """Classify an `assured`.

    `held` is the SHA-256 of the body held under the same key, `digest` that of the offered one.
    """
    if held is not None:
        return Situation.HELD_SAME if held == digest else Situation.HELD_OTHER
    return acknowledge(trusted=trusted, destination=destination, readable=True, room=room)


def acknowledge(*, trusted: bool, destination: bool, readable: bool, room: bool) -> Situation:
    """Classify an `acknowledged`; of an `assured`, the content is not looked at yet."""
    if not trusted:
        return Situation.UNTRUSTED
    if not destination:
        return Situation.NO_DESTINATION
    if not room:
        return Situation.OVER_LIMIT
    return Situation.NEW if readable else Situation.UNREADABLE


def release(*, destination: bool, readable: bool, room: bool) -> Situation:
    """Classify a `deliver` of a message that is held."""
    if not destination:
        return Situation.HELD_GONE
    if not room:
        return Situation.HELD_NO_ROOM
    return Situation.HELD if readable else Situation.UNREADABLE


def missing(*, released: bool) -> Situation:
    """Classify a `deliver` of a message that is not held."""
    return Situation.RELEASED if released else Situation.UNKNOWN
