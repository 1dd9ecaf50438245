"""Permissions to delete or unlock an item of a queue node (XEP-0254)."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final


class Action(Enum):
    """Request of a caller concerning an item."""

    DELETE = "delete"
    UNLOCK = "unlock"


class Lock(Enum):
    """Owner of the item's lock, relative to the caller."""

    OWN = "the caller"
    FOREIGN = "another session"
    NONE = "nobody"


class Role(Enum):
    """Relation of the caller to the item; if several apply, the first in this order is used."""

    RECEIVER = "received it before"
    OWNER = "the node's owner"
    AUTHOR = "the item's publisher"
    PUBLISHER = "a publisher to the node"
    SUBSCRIBER = "a subscriber of the node"
    NOBODY = "anyone else"


class Verdict(Enum):
    """Decision on a request to delete or unlock an item, or the error that refuses it."""

    ALLOWED_WITH_NOTIFICATION = "allowed; the caller is notified"
    ALLOWED = "allowed"
    CONFLICT = "conflict"
    FORBIDDEN = "forbidden"
    UNEXPECTED = "unexpected-request"


_FOREIGN: Final = dict.fromkeys(Role, Verdict.CONFLICT) | {Role.NOBODY: Verdict.FORBIDDEN}
_UNLOCKED: Final = dict.fromkeys(Role, Verdict.FORBIDDEN) | {
    Role.RECEIVER: Verdict.UNEXPECTED,
    Role.OWNER: Verdict.ALLOWED,
}

VERDICTS: Final[Mapping[tuple[Action, Lock], Mapping[Role, Verdict]]] = {
    (Action.DELETE, Lock.OWN): dict.fromkeys(Role, Verdict.ALLOWED_WITH_NOTIFICATION),
    (Action.DELETE, Lock.FOREIGN): _FOREIGN,
    (Action.DELETE, Lock.NONE): _UNLOCKED | {Role.AUTHOR: Verdict.ALLOWED},
    (Action.UNLOCK, Lock.OWN): dict.fromkeys(Role, Verdict.ALLOWED_WITH_NOTIFICATION),
    (Action.UNLOCK, Lock.FOREIGN): _FOREIGN,
    (Action.UNLOCK, Lock.NONE): _UNLOCKED,
}
"""Decision for each action, owner of the lock and role of the caller."""


def decide(action: Action, lock: Lock, role: Role) -> Verdict:
    """Decide whether a caller may delete or unlock an existing item."""
    return VERDICTS[action, lock][role]
