"""How nodes are configured: by their owners, and by default (XEP-0060, sections 8.2 and 8.3).

What the options are and which values they take is `rules.node`'s.
"""

from __future__ import annotations

from typing import Final

from edge.engine import events
from edge.engine.access import Sender
from edge.engine.database import Transaction
from edge.engine.events import NewEvent
from edge.engine.hooks import Context, Hooks, Work
from edge.features.pubsub import notifying, rights, subscribing
from edge.features.pubsub.notifying import Kind
from edge.features.pubsub.requests import answering
from edge.features.pubsub.rules import node_config as rules
from edge.features.pubsub.rules.node_config import InvalidOption, NodeConfig, ValueType
from edge.features.pubsub.store import items, nodes, subscriptions
from edge.features.pubsub.store.nodes import Node
from edge.features.queues.service import operations as operations_
from edge.features.queues.service.dispatch import dispatch
from edge.features.queues.store import queues
from edge.features.queues.store.queues import Queue
from edge.xmpp import forms, pubsub, serialize
from edge.xmpp.namespaces import PUBSUB, PUBSUB_OWNER, clark
from edge.xmpp.stanza import Child, Stanza

NODE_CONFIG: Final = f"{PUBSUB}#node_config"
"""What a form of a node's options is for (section 16.4.3)."""

DEFAULT: Final = NodeConfig()

_QUEUEING: Final = "{urn:xmpp:pubsub:queueing:0}queueing"

FIELD_TYPES: Final = {
    ValueType.TEXT: "text-single",
    ValueType.TEXTS: "text-multi",
    ValueType.BOOLEAN: "boolean",
    ValueType.INTEGER: "text-single",
    ValueType.SECONDS: "text-single",
    ValueType.CHOICE: "list-single",
}
"""Form field type of each value type (XEP-0004, section 3.3)."""


def form(config: NodeConfig, type: str = "form") -> bytes:
    """Write a configuration as a form: one to fill in, or, of type `result`, one to read."""
    return forms.write(
        type,
        NODE_CONFIG,
        (
            forms.Field(
                field.name, FIELD_TYPES[field.type], values, False, field.label, field.choices
            )
            for field, values in rules.option_values(config)
        ),
    )


def read(configure: Child) -> dict[str, list[str]] | None:
    """Return the options that a `<configure/>` sets, by their names in a form; `None` where
    somebody does not want to set any.

    Raises:
        StanzaError: `bad-request`: it has no form that was filled in.
    """
    tree = configure.tree()
    if not len(tree):
        return {}
    if len(tree) != 1:
        raise pubsub.refusal("bad-request", text="one form is needed")
    if forms.is_cancelled(tree[0]):
        return None
    values = forms.read(tree[0], NODE_CONFIG)
    return {"pubsub#queueing" if name == _QUEUEING else name: v for name, v in values.items()}


def configured(context: Context, old: NodeConfig, values: dict[str, list[str]]) -> NodeConfig:
    """Return a configuration with some options changed; raises `StanzaError` if they cannot be
    so."""
    try:
        return rules.apply_options(old, values, context.limits.items_per_node)
    except InvalidOption as error:
        specific = "unsupported-access-model" if error.name == "pubsub#access_model" else ""
        raise pubsub.refusal("not-acceptable", specific, str(error)) from None


def shown(context: Context, stanza: Stanza) -> Work:
    """Show an owner how a node is configured (section 8.2.1)."""
    name = stanza.children[0].children[0].attrs.get("node")

    def act(tx: Transaction, sender: Sender) -> bytes:
        node = rights.node(context, tx, name)
        rights.check_owner(context, tx, node, sender)
        content = serialize.tag("configure", {"node": node.name}, form(node.config))
        return pubsub.payload(content, owner=True)

    return answering(context, stanza, act)


def default(context: Context, stanza: Stanza) -> Work:
    """Show how a node is configured if nobody says otherwise (section 8.3)."""
    content = pubsub.payload(serialize.tag("default", content=form(DEFAULT)), owner=True)
    return answering(context, stanza, lambda _tx, _sender: content)


def set_(context: Context, stanza: Stanza) -> Work:
    """Configure a node as its owner wants (section 8.2.4); raises `StanzaError`."""
    element = stanza.children[0].children[0]
    values = read(element)

    def act(tx: Transaction, sender: Sender) -> bytes:
        node = rights.node(context, tx, element.attrs.get("node"))
        rights.check_owner(context, tx, node, sender)
        if values is not None:
            _configure(context, tx, sender, node, configured(context, node.config, values))
        return b""

    return answering(context, stanza, act)


def _configure(
    context: Context, tx: Transaction, sender: Sender, before: Node, config: NodeConfig
) -> None:
    """Configure a node; raises `StanzaError` while nothing is changed."""
    old, node = before.config, before._replace(config=config)
    if config == old:
        return
    if config.queueing != old.queueing:
        _check_empty(tx, before)
    nodes.save(tx, node)
    _tend_queue(context, tx, node)
    if _access(config) != _access(old):
        subscribing.recheck(context, tx, node)  # first: who is shut out is told no more than that
    gone = items.trim(tx, node.id, config.max_items if config.persist_items else 0)
    if gone:
        log(tx, sender, node, "trimmed", gone)
    content = form(config, "result") if config.deliver_payloads else b""
    event = serialize.tag("configuration", {"node": node.name}, content)
    tell(context, tx, node, event, Kind.CONFIGURATION)


def _tend_queue(context: Context, tx: Transaction, node: Node) -> None:
    """Have a node's queue as the node is configured."""
    config, queue = node.config, queues.of_node(tx, node.id)
    if queue is not None and not config.queueing:
        queues.remove(tx, queue.id)
    elif config.queueing:
        make_queue(tx, node, queue)
    if queue is not None and config.queueing:
        dispatch(context, tx, queue.id)


def make_queue(tx: Transaction, node: Node, queue: Queue | None = None) -> None:
    """Make the queue of a node that is one, or configure the one that it has."""
    config = node.config
    how = config.queue_policy, config.queue_lock_timeout, config.queue_max_deliveries
    if queue is None:
        queues.add_for_node(tx, node.id, *how)
    else:
        operations_.configure(tx, queue, *how)


def tell(context: Context, tx: Transaction, node: Node, content: bytes, kind: Kind) -> None:
    """Tell all subscribers of a node what happens to it, the members of its queue as well."""
    notifying.announce(context, tx, node, content, kind)
    queue = queues.of_node(tx, node.id)
    if queue is not None and notifying.wanted(node.config, kind):
        for member in subscriptions.members(tx, queue.id):
            notifying.to_one(context, tx, member, content, node=node.name)


def log(tx: Transaction, sender: Sender, node: Node, name: str, count: int) -> None:
    """Log that items of a node went with what an owner did: how many they were."""
    value, level = float(count), "Notice"
    event = NewEvent(
        "node", sender.bare, topic=node.name, name=name, value=value, unit="items", level=level
    )
    events.append(tx, events.SYSTEM, event)


def _access(config: NodeConfig) -> tuple[object, ...]:
    return config.access_model, config.roster_groups_allowed


def _check_empty(tx: Transaction, node: Node) -> None:
    """Raise `StanzaError` if a node cannot begin or cease to be a queue: what it has was published,
    and subscribed to, as the other kind."""
    queue = queues.of_node(tx, node.id)
    if node.items or (queue is not None and queue.items) or nodes.count_subscriptions(tx, node.id):
        raise pubsub.refusal(
            "not-acceptable", text="pubsub#queueing: the node has items or subscribers"
        )


NEEDS_ACCOUNTS: Final = True


def register(hooks: Hooks) -> None:
    """Register with the engine."""
    hooks.pubsub_request("get", clark(PUBSUB_OWNER, "configure"), shown)
    hooks.pubsub_request("set", clark(PUBSUB_OWNER, "configure"), set_)
    hooks.pubsub_request("get", clark(PUBSUB_OWNER, "default"), default)
    hooks.advertise_pubsub(
        *(
            f"{PUBSUB}#{name}"
            for name in (
                "config-node",
                "config-node-max",
                "retrieve-default",
                "access-open",
            )
        )
    )
