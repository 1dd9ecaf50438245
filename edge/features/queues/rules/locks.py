"""Who may delete or unlock an item of a queue node: the whole table (XEP-0254).

How the answer is written, and what is done then, is not known here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Final, TypeAlias


class Act(Enum):
    """What is asked for."""

    DELETE = "delete"
    UNLOCK = "unlock"


class Lock(Enum):
    """Whose lock is on an item, as its caller sees it."""

    MINE = "the caller's"
    OTHERS = "another's"
    NONE = "nobody's"


class Role(Enum):
    """What the caller is to the item; the first that fits counts."""

    RECEIVER = "received it before"
    OWNER = "the node's owner"
    AUTHOR = "the item's publisher"
    PUBLISHER = "a publisher to the node"
    SUBSCRIBER = "a subscriber of the node"
    NOBODY = "anyone else"


class Verdict(Enum):
    """The answer."""

    DONE_AND_TOLD = "result, and a notification to the caller alone"
    DONE = "result"
    CONFLICT = "conflict"
    FORBIDDEN = "forbidden"
    UNEXPECTED = "unexpected-request"


_LOCKED: Final = {
    Role.RECEIVER: Verdict.CONFLICT,
    Role.OWNER: Verdict.CONFLICT,
    Role.AUTHOR: Verdict.CONFLICT,
    Role.PUBLISHER: Verdict.CONFLICT,
    Role.SUBSCRIBER: Verdict.CONFLICT,
    Role.NOBODY: Verdict.FORBIDDEN,
}
_FREE: Final = {
    Role.RECEIVER: Verdict.UNEXPECTED,
    Role.OWNER: Verdict.DONE,
    Role.AUTHOR: Verdict.FORBIDDEN,
    Role.PUBLISHER: Verdict.FORBIDDEN,
    Role.SUBSCRIBER: Verdict.FORBIDDEN,
    Role.NOBODY: Verdict.FORBIDDEN,
}

VERDICTS: Final[Mapping[tuple[Act, Lock], Mapping[Role, Verdict]]] = {
    (Act.DELETE, Lock.MINE): dict.fromkeys(Role, Verdict.DONE_AND_TOLD),
    (Act.DELETE, Lock.OTHERS): _LOCKED,
    (Act.DELETE, Lock.NONE): _FREE | {Role.AUTHOR: Verdict.DONE},
    (Act.UNLOCK, Lock.MINE): dict.fromkeys(Role, Verdict.DONE_AND_TOLD),
    (Act.UNLOCK, Lock.OTHERS): _LOCKED,
    (Act.UNLOCK, Lock.NONE): _FREE,
}
"""Who may do what with an item that is there."""


May: TypeAlias = Callable[[Lock, Role], Verdict]


def may_delete(lock: Lock, role: Role) -> Verdict:
    """Tell whether a caller may delete an item."""
    return VERDICTS[Act.DELETE, lock][role]


def may_unlock(lock: Lock, role: Role) -> Verdict:
    """Tell whether a caller may unlock an item."""
    return VERDICTS[Act.UNLOCK, lock][role]
