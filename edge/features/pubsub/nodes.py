"""Nodes are made, deleted and emptied (XEP-0060, sections 8.1, 8.4 and 8.5).

How a node is configured later is `configuring`'s, what items and queues it has is theirs.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from edge.engine import refusals
from edge.engine.access import Sender
from edge.engine.database import Transaction
from edge.engine.hooks import Context, Hooks, Work
from edge.features.pubsub import configuring, rights
from edge.features.pubsub.notifying import Kind
from edge.features.pubsub.requests import answering
from edge.features.pubsub.rules import topic
from edge.features.pubsub.rules.affiliation import Affiliation
from edge.features.pubsub.rules.node_config import NodeConfig
from edge.features.pubsub.rules.topic import Filter
from edge.features.pubsub.store import affiliations, items, nodes, subscriptions
from edge.features.pubsub.store.nodes import Node
from edge.features.queues.rules.transitions import Loss
from edge.features.queues.service import membership
from edge.features.queues.service.operations import purge
from edge.features.queues.store import queues
from edge.xmpp import jid, pubsub, serialize
from edge.xmpp.errors import StanzaError
from edge.xmpp.namespaces import PUBSUB, PUBSUB_OWNER, clark
from edge.xmpp.stanza import Child, Stanza

_DEFAULT: Final = NodeConfig()

NAME_BYTES: Final = 10
"""Of chance in the name of a node that was to have any."""


def create(
    context: Context, tx: Transaction, name: str, owner: str, config: NodeConfig = _DEFAULT
) -> Node:
    """Make a node.

    Args:
        context: what handlers know.
        tx: the transaction.
        name: of the node.
        owner: the bare JID of its owner, who is charged with it.
        config: how it is configured.

    Raises:
        StanzaError: there is one of this name (`conflict`), it cannot be named so
            (`not-acceptable`), or there are too many (`resource-constraint`).
    """
    check_name(context, name)
    if nodes.get(tx, name) is not None:
        raise pubsub.refusal("conflict", text="there is such a node")
    _check_room(context, tx, owner)
    node = nodes.add(tx, name, owner, config)
    affiliations.put(tx, node.id, owner, Affiliation.OWNER)
    if config.queueing:
        configuring.make_queue(tx, node)
    return node


def may_auto_create(context: Context, tx: Transaction, sender: Sender, name: str) -> bool:
    """Tell whether the gateway's options want the node made that somebody publishes to
    (`auto_create`); raises `StanzaError` as `create` does, and makes none."""
    filters = _filters(tuple(context.pubsub.auto_create))
    if not any(topic.matches(filter, name) for filter in filters):
        return False
    check_name(context, name)
    _check_room(context, tx, sender.bare)
    return True


@lru_cache(maxsize=8)
def _filters(texts: tuple[str, ...]) -> tuple[Filter, ...]:
    return tuple(topic.parse_filter(text) for text in texts)


def check_name(context: Context, name: str) -> None:
    """Raise `StanzaError` if no node can have a name; it says why."""
    why = topic.name_problem(name, context.limits.node_bytes)
    if not why:
        try:
            address = jid.prepare_resource(name)
        except StanzaError:
            why = "a name has characters that no address can have"
        else:
            why = "" if address == name else f"in an address, it is {address!r}: name it so"
    if why:
        raise pubsub.refusal("not-acceptable", text=why)


def _check_room(context: Context, tx: Transaction, owner: str) -> None:
    limits = context.limits
    for rule, figure, found in (
        ("nodes", limits.nodes, nodes.count(tx)),
        ("nodes_per_account", limits.nodes_per_account, nodes.count(tx, owner)),
    ):
        if found >= figure:
            refusals.log_source(context, tx, owner, rule, figure)
            raise pubsub.refusal(
                "resource-constraint", "max-nodes-exceeded", f"{figure} nodes at most"
            )


def creating(context: Context, stanza: Stanza) -> Work:
    """Make a node that somebody asks for, named or not, configured or not (section 8.1)."""
    element, *rest = stanza.children[0].children
    named = element.attrs.get("node")
    name = secrets.token_hex(NAME_BYTES) if named is None else named
    config = _wanted(context, rest)
    check_name(context, name)

    def act(tx: Transaction, sender: Sender) -> bytes:
        create(context, tx, name, sender.bare, config)
        return b"" if named else pubsub.payload(serialize.tag("create", {"node": name}))

    return answering(context, stanza, act)


def _wanted(context: Context, rest: Sequence[Child]) -> NodeConfig:
    """Return the configuration that stands behind a request for a node (section 8.1.3)."""
    if not rest:
        return _DEFAULT
    (configure, *more) = rest
    if more or configure.name != clark(PUBSUB, "configure") or "node" in configure.attrs:
        raise pubsub.refusal("bad-request", text="<configure/> follows <create/>, without a node")
    values = configuring.read(configure)
    return configuring.configured(context, _DEFAULT, values or {})


def deleting(context: Context, stanza: Stanza) -> Work:
    """Delete a node as its owner wants, and tell its subscribers (section 8.4)."""
    element = stanza.children[0].children[0]
    redirect = _redirect(element)

    def act(tx: Transaction, sender: Sender) -> bytes:
        node = rights.node(context, tx, element.attrs.get("node"))
        rights.check_owner(context, tx, node, sender)
        content = serialize.tag("delete", {"node": node.name}, redirect)
        configuring.tell(context, tx, node, content, Kind.DELETE)
        configuring.log(tx, sender, node, "deleted", _empty(context, tx, node))
        _dissolve(context, tx, node)
        membership.remove_node_items(context, tx, node)
        nodes.remove(tx, node.id)
        return b""

    return answering(context, stanza, act)


def _redirect(element: Child) -> bytes:
    """Return where subscribers are told to turn to, if the owner of a node says that."""
    found = list(element.tree())
    if not found:
        return b""
    uri = found[0].get("uri")
    if len(found) > 1 or found[0].tag != clark(PUBSUB_OWNER, "redirect") or not uri:
        raise pubsub.refusal("bad-request", text="a <redirect/> has a URI")
    return serialize.tag("redirect", {"uri": uri})


def purging(context: Context, stanza: Stanza) -> Work:
    """Delete all items of a node as its owner wants, and tell its subscribers (section 8.5)."""
    name = stanza.children[0].children[0].attrs.get("node")

    def act(tx: Transaction, sender: Sender) -> bytes:
        node = rights.node(context, tx, name)
        rights.check_owner(context, tx, node, sender)
        if not (node.config.persist_items or node.config.queueing):
            raise pubsub.refusal(
                "feature-not-implemented", "unsupported", attrs={"feature": "persistent-items"}
            )
        configuring.log(tx, sender, node, "purged", _empty(context, tx, node))
        configuring.tell(context, tx, node, serialize.tag("purge", {"node": node.name}), Kind.PURGE)
        return b""

    return answering(context, stanza, act)


def _empty(context: Context, tx: Transaction, node: Node) -> int:
    """Delete all items of a node; returns how many they were."""
    queue = queues.of_node(tx, node.id)
    return items.purge(tx, node.id) if queue is None else purge(context, tx, queue)


def _dissolve(context: Context, tx: Transaction, node: Node) -> None:
    """Remove the queue of a node, if it has one; nothing is in it any more."""
    queue = queues.of_node(tx, node.id)
    if queue is not None:
        for member in subscriptions.members(tx, queue.id):
            membership.leave(context, tx, member, Loss.UNSUBSCRIBED)
        queues.remove(tx, queue.id)


NEEDS_ACCOUNTS: Final = True


def register(hooks: Hooks) -> None:
    """Register with the engine."""
    hooks.pubsub_request("set", clark(PUBSUB, "create"), creating)
    hooks.pubsub_request("set", clark(PUBSUB_OWNER, "delete"), deleting)
    hooks.pubsub_request("set", clark(PUBSUB_OWNER, "purge"), purging)
    hooks.advertise_pubsub(
        *(
            f"{PUBSUB}#{name}"
            for name in (
                "create-nodes",
                "create-and-configure",
                "instant-nodes",
                "delete-nodes",
                "purge-nodes",
            )
        )
    )
