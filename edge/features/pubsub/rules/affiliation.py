"""Rights that an affiliation gives at a node (XEP-0060, section 4.1).

    affiliation    subscribe  retrieve  publish  delete items  configure, purge, delete the node
    owner             yes        yes      yes        yes          yes
    publisher         yes        yes      yes        yes           -
    publish-only       -          -       yes        own           -
    member            yes        yes      model      own           -
    none              access     access   model      own           -
    outcast            -          -        -          -            -

`access`: the node's access model decides (section 4.5). `model`: the node's publish model decides.
`own`: only items that the same account published. Whoever may delete an item may replace it
(`replacement`).
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, Literal, TypeAlias

AccessModel: TypeAlias = Literal["open", "whitelist", "presence", "roster"]
"""Rule that decides which accounts may subscribe and retrieve items (section 4.5)."""

PublishModel: TypeAlias = Literal["publishers", "subscribers", "open"]
"""Rule that decides which accounts may publish (`pubsub#publish_model`)."""


class Affiliation(StrEnum):
    """Relation of an account to a node (section 4.1)."""

    OWNER = "owner"
    PUBLISHER = "publisher"
    PUBLISH_ONLY = "publish-only"
    MEMBER = "member"
    NONE = "none"
    OUTCAST = "outcast"


_READERS: Final = frozenset({Affiliation.OWNER, Affiliation.PUBLISHER, Affiliation.MEMBER})
_WRITERS: Final = frozenset({Affiliation.OWNER, Affiliation.PUBLISHER, Affiliation.PUBLISH_ONLY})
_DELETERS: Final = frozenset({Affiliation.OWNER, Affiliation.PUBLISHER})


def may_subscribe(affiliation: Affiliation, access_model: AccessModel, *, in_roster: bool) -> bool:
    """Return whether an account may subscribe to a node and retrieve its items.

    Args:
        in_roster: whether the roster of an owner admits the account: for the access model
            `presence`, whether the account is subscribed to the owner's presence; for `roster`,
            whether it is in one of the allowed groups.
    """
    if affiliation is Affiliation.NONE:
        return access_model == "open" or (access_model != "whitelist" and in_roster)
    return affiliation in _READERS


def may_discover(affiliation: Affiliation, access_model: AccessModel, *, in_roster: bool) -> bool:
    """Return whether service discovery lists a node to an account."""
    if affiliation in _WRITERS:
        return True
    return may_subscribe(affiliation, access_model, in_roster=in_roster)


def may_publish(affiliation: Affiliation, publish_model: PublishModel, *, subscribed: bool) -> bool:
    """Return whether an account may publish; `subscribed` is whether it subscribes to the node."""
    if affiliation in _WRITERS:
        return True
    if affiliation is Affiliation.OUTCAST:
        return False
    return publish_model == "open" or (publish_model == "subscribers" and subscribed)


def may_delete_item(affiliation: Affiliation, *, own: bool) -> bool:
    """Return whether an account may delete an item; `own` means that it published the item."""
    if affiliation in _DELETERS:
        return True
    return own and affiliation is not Affiliation.OUTCAST


def may_configure(affiliation: Affiliation) -> bool:
    """Return whether an account may configure, purge and delete a node and set affiliations."""
    return affiliation is Affiliation.OWNER
