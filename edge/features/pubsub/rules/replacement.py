"""Decide on the publication of an ItemID that the node already has (docs/reference/item-rights.md).

An item is replaced only by an account that may delete it. A queue's item that waits or is locked is
never replaced, because a worker would do other work than the publisher asked for.
"""

from __future__ import annotations

import sys
from enum import Enum
from typing import NamedTuple


class Existing(Enum):
    """State of the item that has the ItemID."""

    STORED = "stored"
    WAITING = "waiting"
    LOCKED = "locked"
    DEAD = "dead"


class ExistingItem(NamedTuple):
    """The item that has the ItemID.

    `is_own` is whether the publisher has the rights of the item's author, `is_same` whether also
    the payload is the same.
    """

    state: Existing
    is_own: bool
    is_same: bool = False


class Outcome(Enum):
    """Effect of a publication on the item that has its ItemID, or the error that refuses it."""

    PUBLISH = "published; the item is replaced"
    UNCHANGED = "answered as before; nothing changes"
    CONFLICT = "conflict"
    FORBIDDEN = "forbidden"


def decide(existing: Existing, *, may_delete: bool, same: bool) -> Outcome:
    """Decide what publishing the ItemID of an existing item does.

    Args:
        may_delete: whether the publisher may delete the existing item (`affiliation`).
        same: whether the publisher published the existing item, with the same payload.
    """
    if existing in (Existing.WAITING, Existing.LOCKED):
        return Outcome.UNCHANGED if same else Outcome.CONFLICT
    return Outcome.PUBLISH if may_delete else Outcome.FORBIDDEN


def author_of(author: str | None, publisher: str) -> str:
    """Return an item's author: the bare JID of the account that has the rights of its publisher.

    Args:
        author: `None` if the publisher is the author. If the publisher's account was removed: the
            bare JID of the account that took over its rights, or "" if none did.
        publisher: the full JID of the publisher.
    """
    return sys.intern(publisher.partition("/")[0]) if author is None else author
