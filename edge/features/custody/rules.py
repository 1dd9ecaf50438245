"""The receiver's side of quality of service: which answer and effect each request has.

A request (`assured`, `deliver` or `acknowledged`) is classified into a situation. There is a table
for each kind of request, with one row for each situation.
Source: XEP QoS, "Use Cases" and "Security Considerations", with the project's protocol decisions.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final, NamedTuple


class Reason(Enum):
    """Reasons for which custody refuses a request."""

    CONFLICT = "another body is held under this msgId"
    NOT_ALLOWED = "the sender may not send to this destination"
    NO_ROOM = "a limit would be exceeded"
    NOT_HELD = "no message is held under this msgId"
    ELSEWHERE = "another connected session of the account uses this msgId"


REPEATED: Final = "repeated"
"""The rule (`refusals`) under which a repetition of an answered request is logged."""


class Situation(Enum):
    """The state of the message and its destination when a request arrives."""

    __hash__ = object.__hash__  # `Enum.__hash__` is slow: it is written in Python

    NEW = "not held, trusted, allowed, within limits"
    HELD_SAME = "held, same body"
    HELD_OTHER = "held, another body"
    UNTRUSTED = "not trusted"
    NO_DESTINATION = "destination does not exist or is forbidden"
    OVER_LIMIT = "over a limit"
    HELD = "held"
    HELD_NO_ROOM = "held, no room at the destination"
    HELD_GONE = "held, destination no longer exists or is forbidden"
    UNREADABLE = "destination cannot read the content"
    UNFIT = "destination does not accept the content"
    RELEASED = "released before"
    ELSEWHERE = "held for or released by another connected session of the account"
    UNKNOWN = "unknown or expired"


class Effect(Enum):
    """The effect of a request on its message, in the same transaction as the answer."""

    NONE = "nothing"
    HOLD = "held on disk, unparsed"
    DELIVER = "removed and delivered to its destination"
    DEAD_LETTER = "kept as a dead letter"
    REPORT = "kept as a dead letter, and the sender gets an error message"


class Answer(Enum):
    """The answer to a request, unless custody refuses it: then the answer is a `Reason`."""

    RECEIVED = "result with <received/>"
    EMPTY = "empty result"
    DESTINATION_ERROR = "the destination's error"


class Decision(NamedTuple):
    """The reaction to a request: answer, effect, and the name under which it is counted, if any."""

    answer: Answer | Reason
    effect: Effect
    rule: str | None = None


UNFIT: Final = Decision(Answer.EMPTY, Effect.REPORT, "unfit")
"""The decision on a message that its destination can read and does not accept: an item that the
node's configuration forbids."""

OFFERED: Final[Mapping[Situation, Decision]] = {
    Situation.NEW: Decision(Answer.RECEIVED, Effect.HOLD),
    Situation.HELD_SAME: Decision(Answer.RECEIVED, Effect.NONE, REPEATED),
    Situation.HELD_OTHER: Decision(Reason.CONFLICT, Effect.NONE, "msgid_conflict"),
    Situation.UNTRUSTED: Decision(Reason.NOT_ALLOWED, Effect.NONE, "untrusted"),
    Situation.NO_DESTINATION: Decision(Answer.DESTINATION_ERROR, Effect.NONE, "no_destination"),
    Situation.OVER_LIMIT: Decision(Reason.NO_ROOM, Effect.NONE, "over_limit"),
}
"""The decision on an `assured` in each situation."""

RELEASED: Final[Mapping[Situation, Decision]] = {
    Situation.HELD: Decision(Answer.EMPTY, Effect.DELIVER),
    Situation.HELD_NO_ROOM: Decision(Reason.NO_ROOM, Effect.NONE, "no_room"),
    Situation.HELD_GONE: Decision(Answer.DESTINATION_ERROR, Effect.DEAD_LETTER, "destination_gone"),
    Situation.UNREADABLE: Decision(Answer.EMPTY, Effect.REPORT, "unreadable"),
    Situation.UNFIT: UNFIT,
    Situation.RELEASED: Decision(Answer.EMPTY, Effect.NONE, REPEATED),
    Situation.ELSEWHERE: Decision(Reason.ELSEWHERE, Effect.NONE, "msgid_elsewhere"),
    Situation.UNKNOWN: Decision(Reason.NOT_HELD, Effect.NONE, "unknown_msgid"),
}
"""The decision on a `deliver` in each situation."""

ACKNOWLEDGED: Final[Mapping[Situation, Decision]] = {
    Situation.NEW: Decision(Answer.EMPTY, Effect.DELIVER),
    Situation.UNREADABLE: Decision(Answer.EMPTY, Effect.REPORT, "unreadable"),
    Situation.UNFIT: UNFIT,
    Situation.UNTRUSTED: Decision(Reason.NOT_ALLOWED, Effect.NONE, "untrusted"),
    Situation.NO_DESTINATION: Decision(Answer.DESTINATION_ERROR, Effect.NONE, "no_destination"),
    Situation.OVER_LIMIT: Decision(Reason.NO_ROOM, Effect.NONE, "over_limit"),
}
"""The decision on an `acknowledged` in each situation."""


def offer(
    *, held: bytes | None, digest: bytes, trusted: bool, destination: bool, room: bool
) -> Situation:
    """Classify an `assured`; `trusted`, `destination` and `room` are as in `acknowledge`.

    `held` is the SHA-256 of the body that is held for the sender under this msgId, or `None`;
    `digest` that of the offered body. The destination reads the body only when it is released.
    """
    if held is not None:
        return Situation.HELD_SAME if held == digest else Situation.HELD_OTHER
    return acknowledge(trusted=trusted, destination=destination, readable=True, room=room)


def acknowledge(*, trusted: bool, destination: bool, readable: bool, room: bool) -> Situation:
    """Classify an `<acknowledged/>` request; `ACKNOWLEDGED` has the decisions.

    Args:
        trusted: whether the sender may send to the destination.
        destination: whether the destination exists.
        readable: whether the destination can read the message.
        room: whether no limit would be exceeded.
    """
    if not trusted:
        return Situation.UNTRUSTED
    if not destination:
        return Situation.NO_DESTINATION
    if not room:
        return Situation.OVER_LIMIT
    return Situation.NEW if readable else Situation.UNREADABLE


def release(*, destination: bool, readable: bool, room: bool) -> Situation:
    """Classify a `deliver` of a message that is held.

    `destination`: whether the destination exists and the sender may send to it. `readable` and
    `room` are as in `acknowledge`.
    """
    if not destination:
        return Situation.HELD_GONE
    if not room:
        return Situation.HELD_NO_ROOM
    return Situation.HELD if readable else Situation.UNREADABLE


def may_inherit(*, connected: bool, exclusive: bool, since: float, began: float) -> bool:
    """Return whether a session may take over a message of another session of its account.

    Args:
        connected: whether the other session has a connection.
        exclusive: whether only the other session may ask for the message's delivery.
        since: when the message was taken into custody, in service seconds.
        began: when the session that asks began. A restarted device asks in a session that began
            later; a session that was there before belongs to another program of the account.
    """
    return not (connected or exclusive) and since <= began


def missing(*, released: bool, elsewhere: bool) -> Situation:
    """Classify a `deliver` of a message that is not held for the sender's session.

    Args:
        released: whether this session, or one that has no connection now, has released it.
        elsewhere: whether it is held for, or was released by, another session that is connected.
    """
    if released:
        return Situation.RELEASED
    return Situation.ELSEWHERE if elsewhere else Situation.UNKNOWN
