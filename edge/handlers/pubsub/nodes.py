"""Nodes are made, deleted and emptied (XEP-0060, sections 8.1, 8.4 and 8.5).

How a node is configured later is `configuring`'s, what items and queues it has is theirs.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

from edge.handlers import refusals
from edge.rules import node as rules
from edge.rules import topic
from edge.rules.affiliation import Affiliation
from edge.rules.node import Config
from edge.store import affiliations, nodes
from edge.wire import jid, pubsub
from edge.wire.errors import StanzaError

if TYPE_CHECKING:
    from edge.handlers.feature import House
    from edge.rules.access import Sender
    from edge.rules.topic import Filter
    from edge.store.database import Transaction
    from edge.store.nodes import Node

_DEFAULT: Final = Config()


def create(house: House, tx: Transaction, name: str, owner: str, config: Config = _DEFAULT) -> Node:
    """Make a node.

    Args:
        house: what handlers know.
        tx: the transaction.
        name: of the node.
        owner: the bare JID of its owner, who is charged with it.
        config: how it is configured.

    Raises:
        StanzaError: there is one of this name (`conflict`), it cannot be named so
            (`not-acceptable`), or there are too many (`resource-constraint`).
    """
    check_name(house, name)
    if nodes.get(tx, name) is not None:
        raise pubsub.refusal("conflict", text="there is such a node")
    _check_room(house, tx, owner)
    node = nodes.add(tx, name, owner, config)
    affiliations.put(tx, node.id, owner, Affiliation.OWNER)
    return node


def auto_create(
    house: House, tx: Transaction, sender: Sender, name: str, config: Config = _DEFAULT
) -> Node | None:
    """Make the node that somebody publishes to, if the gateway's options want that (`auto_create`);
    raises `StanzaError` as `create` does."""
    if not may_auto_create(house, tx, sender, name):
        return None
    return create(house, tx, name, sender.bare, config)


def may_auto_create(house: House, tx: Transaction, sender: Sender, name: str) -> bool:
    """Tell whether `auto_create` would make a node that is not there; raises `StanzaError` as
    `create` does, and makes none."""
    filters = _filters(tuple(house.pubsub.auto_create))
    if not any(topic.matches(filter, name) for filter in filters):
        return False
    check_name(house, name)
    _check_room(house, tx, sender.bare)
    return True


@lru_cache(maxsize=8)
def _filters(texts: tuple[str, ...]) -> tuple[Filter, ...]:
    return tuple(topic.parse_filter(text) for text in texts)


def check_name(house: House, name: str) -> None:
    """Raise `StanzaError` if no node can have a name; it says why."""
    why = rules.misnamed(name, house.limits.node_bytes)
    if not why:
        try:
            address = jid.prepare_resource(name)
        except StanzaError:
            why = "a name has characters that no address can have"
        else:
            why = "" if address == name else f"in an address, it is {address!r}: name it so"
    if why:
        raise pubsub.refusal("not-acceptable", text=why)


def _check_room(house: House, tx: Transaction, owner: str) -> None:
    limits = house.limits
    for rule, figure, found in (
        ("nodes", limits.nodes, nodes.count(tx)),
        ("nodes_per_account", limits.nodes_per_account, nodes.count(tx, owner)),
    ):
        if found >= figure:
            refusals.log_source(house, tx, owner, rule, figure)
            raise pubsub.refusal(
                "resource-constraint", "max-nodes-exceeded", f"{figure} nodes at most"
            )
