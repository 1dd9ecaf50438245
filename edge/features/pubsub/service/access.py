"""Check what an account may do at a node (XEP-0060, sections 4.1, 4.5, 6.1.3, 6.5.9 and 7.1.3).

The rules by topic (`topic_rights`) and the node's affiliations and models must both allow it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from edge import topics
from edge.engine.dispatch.hooks import Context
from edge.engine.rules.access import Sender, may_manage_nodes
from edge.engine.store.database import Transaction
from edge.features.presence.rules.subscriptions import shares_presence
from edge.features.presence.service import roster
from edge.features.pubsub.rules import affiliation as rules
from edge.features.pubsub.rules.affiliation import Affiliation
from edge.features.pubsub.rules.reasons import Reason
from edge.features.pubsub.rules.topic_rights import Right
from edge.features.pubsub.service import topic_rights
from edge.features.pubsub.service.errors import PubsubError
from edge.features.pubsub.store import affiliations, nodes
from edge.features.pubsub.store.nodes import NEW_NODE, Node

RESERVED: Final = f"only the gateway publishes below {' and '.join(topics.RESERVED)}"

_ROSTER_MODELS: Final = ("presence", "roster")


def get_node(tx: Transaction, name: str | None) -> Node:
    """Return a node by name.

    Raises:
        PubsubError: no name is given, or the node does not exist.
    """
    if not name:
        raise PubsubError(Reason.NODE_REQUIRED)
    node = nodes.get(tx, name)
    if node is None:
        raise PubsubError(Reason.NODE_NOT_FOUND)
    return node


def get_owned_node(tx: Transaction, sender: Sender, name: str | None) -> Node:
    """Return a node that the sender owns, or may manage as the operator (section 8).

    Raises:
        PubsubError: no name is given, the node does not exist, or the sender may not manage it.
    """
    node = get_node(tx, name)
    is_owner = rules.may_configure(affiliation_of(tx, node, sender.bare))
    if not is_owner and not may_manage_nodes(sender):
        raise PubsubError(Reason.FORBIDDEN, "only an owner of the node may do this")
    return node


def affiliation_of(tx: Transaction, node: Node, bare: str) -> Affiliation:
    """Return the affiliation of a bare JID with a node."""
    return affiliations.get(tx, node.id, bare)


def may_subscribe(context: Context, tx: Transaction, node: Node, jid: str) -> bool:
    """Return whether a bare or full JID may subscribe to a node."""
    return _may_subscribe(context, tx, node, jid, affiliation_of(tx, node, _bare(jid)))


def may_discover(
    context: Context, tx: Transaction, node: Node, jid: str, affiliation: Affiliation
) -> bool:
    """Return whether service discovery lists a node to a bare or full JID with this affiliation."""
    if not any(topic_rights.is_allowed(context, tx, jid, each, node.name) for each in Right):
        return False
    in_roster = _is_in_roster(context, tx, node, _bare(jid), affiliation)
    return rules.may_discover(affiliation, node.config.access_model, in_roster=in_roster)


def may_cache_access(node: Node) -> bool:
    """Return whether the results of access checks at a node can be cached.

    They cannot if the access model depends on rosters. For a node that does not exist they can if
    all may subscribe: a publication may ask for another model, with which it creates the node.
    """
    model = node.config.access_model
    return model == "open" or (node.id != NEW_NODE and model not in _ROSTER_MODELS)


def access_check(
    context: Context,
    tx: Transaction,
    node: Node,
    affiliated: Mapping[str, Affiliation] | None = None,
) -> Callable[[str], bool]:
    """Return a function that does the same as `may_subscribe` for one node and many JIDs.

    `affiliated` are the node's affiliations by bare JID; if `None`, they are read once, before the
    first call.
    """
    known = affiliations.of_node(tx, node.id) if affiliated is None else affiliated

    def check(jid: str) -> bool:
        return _may_subscribe(context, tx, node, jid, known.get(_bare(jid), Affiliation.NONE))

    return check


def get_readable_node(context: Context, tx: Transaction, sender: Sender, name: str | None) -> Node:
    """Return a node to which the sender may subscribe and whose items it may retrieve; raises
    `PubsubError` (sections 6.1.3 and 6.5.9)."""
    if name:  # first: whether the node exists is not disclosed
        topic_rights.require(context, tx, sender, Right.SUBSCRIBE, name)
    node = get_node(tx, name)
    affiliation = affiliation_of(tx, node, sender.bare)
    if not _may_subscribe(context, tx, node, sender.full, affiliation):
        raise PubsubError(_refusal_reason(node, affiliation))
    return node


def get_discoverable_node(context: Context, tx: Transaction, sender: Sender, name: str) -> Node:
    """Return a node that the sender may discover (XEP-0030); raises `PubsubError`."""
    if not topic_rights.is_allowed(context, tx, sender.full, Right.PUBLISH, name):
        topic_rights.require(context, tx, sender, Right.SUBSCRIBE, name)
    node = get_node(tx, name)
    affiliation = affiliation_of(tx, node, sender.bare)
    if not may_discover(context, tx, node, sender.full, affiliation):
        raise PubsubError(_refusal_reason(node, affiliation))
    return node


def check_publish(tx: Transaction, node: Node, sender: Sender) -> None:
    """Check that the sender may publish to a node; raises `PubsubError` (section 7.1.3.1)."""
    if may_manage_nodes(sender):
        return
    if topics.is_reserved(node.name):
        raise PubsubError(Reason.FORBIDDEN, RESERVED)
    affiliation, model = affiliation_of(tx, node, sender.bare), node.config.publish_model
    subscribed = model == "subscribers" and nodes.has_subscriber(tx, node.id, sender.account)
    if not rules.may_publish(affiliation, model, subscribed=subscribed):
        raise PubsubError(Reason.FORBIDDEN, "you may not publish to this node")


def _may_subscribe(
    context: Context, tx: Transaction, node: Node, jid: str, affiliation: Affiliation
) -> bool:
    if not topic_rights.is_allowed(context, tx, jid, Right.SUBSCRIBE, node.name):
        return False
    in_roster = _is_in_roster(context, tx, node, _bare(jid), affiliation)
    return rules.may_subscribe(affiliation, node.config.access_model, in_roster=in_roster)


def _bare(jid: str) -> str:
    return jid.partition("/")[0]


def _is_in_roster(
    context: Context, tx: Transaction, node: Node, bare: str, affiliation: Affiliation
) -> bool:
    """Return whether an owner's roster admits a bare JID whose affiliation is `none`; false for all
    other affiliations and if the access model does not depend on rosters."""
    model = node.config.access_model
    if affiliation is not Affiliation.NONE or model not in _ROSTER_MODELS:
        return False
    groups = set(node.config.roster_groups_allowed)
    for owner in affiliations.owners(tx, node.id):
        local, _at, domain = owner.rpartition("@")
        contact = roster.find_contact(tx, local, bare) if domain == context.domain else None
        if contact is None:
            continue
        if model == "presence" and shares_presence(contact.state):
            return True
        if model == "roster" and contact.listed and not groups.isdisjoint(contact.groups):
            return True
    return False


def _refusal_reason(node: Node, affiliation: Affiliation) -> Reason:
    if affiliation in (Affiliation.OUTCAST, Affiliation.PUBLISH_ONLY):
        return Reason.FORBIDDEN
    if node.config.access_model == "presence":
        return Reason.PRESENCE_SUBSCRIPTION_REQUIRED
    if node.config.access_model == "roster":
        return Reason.NOT_IN_ROSTER_GROUP
    return Reason.CLOSED_NODE
