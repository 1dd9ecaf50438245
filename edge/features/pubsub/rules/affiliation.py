"""Affiliations: what somebody is to a node, and what each may do there.

The rights of XEP-0060, section 4.1, where the node is open (section 4.5 has the access models):

    affiliation    subscribe  retrieve  publish  delete items  configure, purge, delete the node
    owner             yes        yes      yes        yes          yes
    publisher         yes        yes      yes        own           -
    publish-only       -          -       yes        own           -
    member            yes        yes      model      own           -
    none              access     access   model      own           -
    outcast            -          -        -          -            -

`access`: as the access model has it; `model`: as the publish model has it; `own`: what it published
itself. Who somebody is to a node is stored elsewhere, and so is what a roster says.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import Final, Literal, TypeAlias

AccessModel: TypeAlias = Literal["open", "whitelist", "presence", "roster"]
"""Who may subscribe and retrieve items (section 4.5)."""

PublishModel: TypeAlias = Literal["publishers", "subscribers", "open"]
"""Who may publish."""


class Affiliation(Enum):
    """What somebody is to a node (section 4.1)."""

    OWNER = "owner"
    PUBLISHER = "publisher"
    PUBLISH_ONLY = "publish-only"
    MEMBER = "member"
    NONE = "none"
    OUTCAST = "outcast"


_READERS: Final = frozenset({Affiliation.OWNER, Affiliation.PUBLISHER, Affiliation.MEMBER})
_WRITERS: Final = frozenset({Affiliation.OWNER, Affiliation.PUBLISHER, Affiliation.PUBLISH_ONLY})


def may_subscribe(affiliation: Affiliation, access_model: AccessModel, *, knows: bool) -> bool:
    """Tell whether somebody may subscribe to a node, and retrieve its items: who may do one may do
    the other.

    Args:
        affiliation: theirs.
        access_model: the node's.
        knows: an owner's roster has them as the access model wants it: with a subscription to the
            owner's presence (`presence`), or in one of the groups that are allowed (`roster`).
    """
    if affiliation is Affiliation.NONE:
        return access_model == "open" or (access_model != "whitelist" and knows)
    return affiliation in _READERS


def may_see(affiliation: Affiliation, access_model: AccessModel, *, knows: bool) -> bool:
    """Tell whether a node is listed to somebody: who may do anything there."""
    if affiliation in _WRITERS:
        return True
    return may_subscribe(affiliation, access_model, knows=knows)


def may_publish(affiliation: Affiliation, publish_model: PublishModel, *, subscribed: bool) -> bool:
    """Tell whether somebody may publish to a node; `subscribed`, whether they are to it."""
    if affiliation in _WRITERS:
        return True
    if affiliation is Affiliation.OUTCAST:
        return False
    return publish_model == "open" or (publish_model == "subscribers" and subscribed)


def may_delete_items(affiliation: Affiliation, *, own: bool) -> bool:
    """Tell whether somebody may delete an item; `own`, whether they published it."""
    if affiliation is Affiliation.OWNER:
        return True
    return own and affiliation is not Affiliation.OUTCAST


def may_configure(affiliation: Affiliation) -> bool:
    """Tell whether somebody may configure, purge and delete a node, and say who is what to it."""
    return affiliation is Affiliation.OWNER


def has_owner(affiliations: Iterable[Affiliation]) -> bool:
    """Tell whether there is an owner among the affiliations of a node: one always is (8.9.2.4)."""
    return Affiliation.OWNER in affiliations
