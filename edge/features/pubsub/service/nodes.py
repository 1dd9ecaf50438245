"""Create, configure, describe, purge and delete nodes, and manage affiliations (XEP-0060, sections
5 and 8)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from edge import topics
from edge.engine.dispatch.hooks import Context
from edge.engine.log import refusals
from edge.engine.rules import quota
from edge.engine.rules.access import Sender, may_manage_nodes
from edge.engine.rules.quota import ExceededLimit
from edge.engine.store import events
from edge.engine.store.database import Transaction
from edge.engine.store.events import NewEvent
from edge.features.pubsub.rules import node_config
from edge.features.pubsub.rules.affiliation import Affiliation
from edge.features.pubsub.rules.node_config import DEFAULT, InvalidOption, NodeConfig
from edge.features.pubsub.rules.reasons import Reason
from edge.features.pubsub.rules.topic_rights import Right
from edge.features.pubsub.service import access, queueing, topic_rights
from edge.features.pubsub.service import subscriptions as subscribing
from edge.features.pubsub.service.errors import AffiliationsRefused, PubsubError
from edge.features.pubsub.service.notifications import (
    NodeConfigured,
    NodeDeleted,
    NodeEvent,
    NodePurged,
    Notification,
    announce,
    is_notified,
    send,
)
from edge.features.pubsub.store import affiliations, items, nodes, subscriptions
from edge.features.pubsub.store.nodes import Node

OPEN: Final = NodeConfig(publish_model="open")

_DISCOVERY_BATCH = 256


# Create


def create(
    context: Context, tx: Transaction, name: str, owner: str, config: NodeConfig = DEFAULT
) -> Node:
    """Create a node (section 8.1).

    Args:
        owner: the bare JID of the new node's owner; the node counts towards this account's limits.

    Raises:
        PubsubError: the node exists, its name is invalid or the gateway's own, or there are too
            many nodes.
    """
    check_new(context, name, owner)
    if nodes.get(tx, name) is not None:
        raise PubsubError(Reason.NODE_EXISTS)
    exceeded = exceeded_limit(context, tx, owner)
    if exceeded is not None:
        refusals.log_source(context, tx, owner, exceeded.name, exceeded.value)
        raise PubsubError(Reason.TOO_MANY_NODES, exceeded.text)
    node = nodes.add(tx, name, owner, config)
    affiliations.put(tx, node.id, owner, Affiliation.OWNER)
    queueing.of(context).configure_node(context, tx, node)
    return node


def create_for(
    context: Context, tx: Transaction, sender: Sender, name: str, config: NodeConfig
) -> None:
    """Create a node at the request of a sender, who must have the right to publish to it and
    becomes its owner; raises `PubsubError` as `create` does, and if the sender lacks the right."""
    topic_rights.require(context, tx, sender, Right.PUBLISH, name)
    create(context, tx, name, sender.bare, config)


def auto_created(context: Context, sender: Sender, name: str) -> NodeConfig | None:
    """Return the configuration of the node to which a publication to a node that does not exist
    goes, or `None` if that is refused. The rights of the sender are checked before.

    A node that a rule allows (`[[access]]`) is open, because the rules decide who publishes to it.
    The operator, who needs no rule, creates only nodes that `[pubsub] auto_create` selects.
    """
    if context.access and not may_manage_nodes(sender):
        return OPEN
    return DEFAULT if topics.matches_any(context.pubsub.auto_create, name) else None


def check_new(context: Context, name: str, owner: str) -> None:
    """Check that a node of this name may belong to `owner`; raises `PubsubError` if the name is
    invalid or the gateway's own."""
    check_name(context, name)
    if topics.is_reserved(name) and owner != context.domain:
        raise PubsubError(Reason.FORBIDDEN, access.RESERVED)


def check_name(context: Context, name: str) -> None:
    """Check that `name` is a valid node name; raises `PubsubError`.

    Names are compared by their exact text. A name that is no resource of an address, or that the
    preparation of addresses changes, is only reached by name, not by the address of its node.
    """
    problem = topics.name_problem(name, context.limits.node_bytes)
    if problem:
        raise PubsubError(Reason.INVALID_NODE_NAME, problem)


def exceeded_limit(context: Context, tx: Transaction, owner: str) -> ExceededLimit | None:
    """Return the limit that one more node of a bare JID would exceed, or `None`."""
    limits, own, total = context.limits, nodes.count(tx, owner), nodes.count(tx)
    return quota.exceeded_number(
        quota.NODE_LIMITS, own, total, limits.nodes_per_account, limits.nodes
    )


# Configure


def apply_options(
    context: Context, old: NodeConfig, values: Mapping[str, Sequence[str]]
) -> NodeConfig:
    """Return a copy of `old` in which the options in `values` are changed; these are given by
    registered name (`pubsub#...`).

    Raises:
        PubsubError: an option is unknown or has an invalid value.
    """
    try:
        return node_config.apply_options(old, values, context.limits.items_per_node)
    except InvalidOption as error:
        is_access_model = error.name == "pubsub#access_model"
        reason = (
            Reason.UNSUPPORTED_ACCESS_MODEL if is_access_model else Reason.INVALID_CONFIGURATION
        )
        raise PubsubError(reason, str(error)) from None


def configure(
    context: Context,
    tx: Transaction,
    sender: Sender,
    name: str | None,
    values: Mapping[str, Sequence[str]] | None,
) -> None:
    """Change options of a node for an owner (section 8.2.4); raises `PubsubError`.

    Args:
        values: the values of the options to change, by registered name (`pubsub#...`); `None`
            changes nothing.
    """
    node = access.get_owned_node(tx, sender, name)
    if values is not None:
        config = apply_options(context, node.config, values)
        if config != node.config:
            _configure(context, tx, sender, node, config)


def _configure(
    context: Context, tx: Transaction, sender: Sender, before: Node, config: NodeConfig
) -> None:
    old, node = before.config, before._replace(config=config)
    if config.queueing != old.queueing:
        _check_empty(context, tx, before)
    nodes.save(tx, node)
    queueing.of(context).configure_node(context, tx, node)
    access_changed = (
        config.access_model != old.access_model
        or config.roster_groups_allowed != old.roster_groups_allowed
    )
    if access_changed:  # first: a subscriber that loses access does not see the configuration
        subscribing.end_unauthorized(context, tx, node)
    trimmed = items.trim(tx, node.id, config.max_items if config.persist_items else 0)
    if trimmed:
        _log_items(tx, sender, node, "trimmed", trimmed)
    event = NodeConfigured(node.name, config if config.deliver_payloads else None)
    _announce(context, tx, node, event)


def _check_empty(context: Context, tx: Transaction, node: Node) -> None:
    """Check that a node has no items and no subscriptions before `pubsub#queueing` changes, because
    queue nodes store them in another way; raises `PubsubError`."""
    queue = queueing.of(context).of_node(tx, node.id)
    if node.items or (queue is not None and queue.items) or nodes.count_subscriptions(tx, node.id):
        raise PubsubError(
            Reason.INVALID_CONFIGURATION,
            "pubsub#queueing cannot change while the node has items or subscribers",
        )


# Purge and delete


def purge(context: Context, tx: Transaction, sender: Sender, name: str | None) -> None:
    """Delete all items of a node for an owner (section 8.5); raises `PubsubError`."""
    node = access.get_owned_node(tx, sender, name)
    if not (node.config.persist_items or node.config.queueing):
        raise PubsubError(Reason.NOT_PERSISTENT)
    _log_items(tx, sender, node, "purged", _remove_items(context, tx, node))
    _announce(context, tx, node, NodePurged(node.name))


def delete(
    context: Context, tx: Transaction, sender: Sender, name: str | None, redirect: str = ""
) -> None:
    """Delete a node for an owner and notify its subscribers (section 8.4); raises `PubsubError`.

    Args:
        redirect: the URI of a node that replaces the deleted one; empty if there is none.
    """
    node = access.get_owned_node(tx, sender, name)
    _announce(context, tx, node, NodeDeleted(node.name, redirect))
    _log_items(tx, sender, node, "deleted", _remove_items(context, tx, node))
    queueing.of(context).remove_node(context, tx, node)
    nodes.remove(tx, node.id)


def _remove_items(context: Context, tx: Transaction, node: Node) -> int:
    if node.config.queueing:
        return queueing.of(context).purge_node(context, tx, node)
    return items.purge(tx, node.id)


def _announce(context: Context, tx: Transaction, node: Node, event: NodeEvent) -> None:
    """Notify the subscribers of a node, including the members of its queue, of an event, if the
    node's configuration enables notifications of such events."""
    announce(context, tx, node, event)
    if node.config.queueing and is_notified(node.config, event):
        for member in subscriptions.all_of_node(tx, node.id):
            send(context, tx, member, Notification(event, member.jid))


def _log_items(tx: Transaction, sender: Sender, node: Node, name: str, count: int) -> None:
    event = NewEvent(
        "node",
        sender.bare,
        topic=node.name,
        name=name,
        value=float(count),
        unit="items",
        level="Notice",
    )
    events.append(tx, events.SYSTEM, event)


# Affiliations


def own_affiliations(
    tx: Transaction, sender: Sender, name: str | None
) -> list[tuple[str, Affiliation]]:
    """Return the sender's affiliations with all nodes, or only with the node `name` (section 5.7).

    Each is a pair of a node's name and an affiliation; the pairs are sorted by name. Raises
    `PubsubError`.
    """
    found = [(node, affiliation) for _, node, affiliation in affiliations.of_jid(tx, sender.bare)]
    if name is None:
        return found
    wanted = access.get_node(tx, name).name
    return [(node, affiliation) for node, affiliation in found if node == wanted]


def affiliations_of_node(
    tx: Transaction, sender: Sender, name: str | None
) -> Mapping[str, Affiliation]:
    """Return the affiliations of a node, by bare JID; raises `PubsubError` if the sender may not
    manage the node (section 8.9.1)."""
    return affiliations.of_node(tx, access.get_owned_node(tx, sender, name).id)


class AffiliationChange(NamedTuple):
    """Request to set an account's affiliation; the affiliation `None` changes nothing. `problem`
    says why the request is invalid, empty if it is valid."""

    jid: str
    affiliation: Affiliation | None
    problem: str = ""


def set_affiliations(
    context: Context,
    tx: Transaction,
    sender: Sender,
    name: str | None,
    changes: Sequence[AffiliationChange],
) -> None:
    """Apply all changes of affiliations that an owner requests, or none (section 8.9.2).

    Raises:
        AffiliationsRefused: a change is invalid, or the node would have no owner.
        PubsubError: the request is refused for another reason.
    """
    node = access.get_owned_node(tx, sender, name)
    before = affiliations.of_node(tx, node.id)
    new = {one.jid: one.affiliation for one in changes if one.affiliation is not None}
    after = {**before, **new}
    problem = next((one.problem for one in changes if one.problem), "")
    if not problem and Affiliation.OWNER not in after.values():
        problem = "a node must have an owner"
    if problem:
        current = {one.jid: before.get(one.jid, Affiliation.NONE) for one in changes}
        raise AffiliationsRefused(problem, node.name, current)
    limit = context.limits.affiliations
    count = sum(affiliation is not Affiliation.NONE for affiliation in after.values())
    if count > max(limit, len(before)):
        refusals.log(context, tx, sender, "affiliations", limit)
        text = f"the limit affiliations = {limit} is reached"
        raise PubsubError(Reason.TOO_MANY_AFFILIATIONS, text)
    for bare, affiliation in new.items():
        affiliations.put(tx, node.id, bare, affiliation)
    subscribing.end_unauthorized(context, tx, node)


# Discovery


class NodeInfo(NamedTuple):
    """A node, its owners' bare JIDs, and the number of its subscriptions."""

    node: Node
    owners: Sequence[str]
    subscribers: int


def describe(context: Context, tx: Transaction, sender: Sender, name: str) -> NodeInfo:
    """Return a node, its owners and its number of subscriptions, for service discovery (sections
    5.3 and 5.4); raises `PubsubError`."""
    node = access.get_discoverable_node(context, tx, sender, name)
    owners, count = affiliations.owners(tx, node.id), nodes.count_subscriptions(tx, node.id)
    return NodeInfo(node, owners, count)


def discoverable_titles(context: Context, tx: Transaction, sender: Sender) -> dict[str, str]:
    """Return the titles of the nodes that the sender may discover, by node name, sorted by name
    (section 5.2). All nodes are read, which takes about 10 ms for 1000 nodes."""
    known = {id: affiliation for id, _, affiliation in affiliations.of_jid(tx, sender.bare)}
    titles: dict[str, str] = {}
    after = ""
    while batch := nodes.page(tx, after, _DISCOVERY_BATCH):
        for node in batch:
            affiliation = known.get(node.id, Affiliation.NONE)
            if access.may_discover(context, tx, node, sender.full, affiliation):
                titles[node.name] = node.config.title
        after = batch[-1].name
    return titles
