"""What the publish-subscribe service is and has: its features, its nodes, their items (XEP-0030;
XEP-0060, sections 5.1 to 5.5).

Each is shown the nodes that they may do something with, and no others. Lists come in pages
(XEP-0059). What modules do is named by themselves (`Feature.of_pubsub`).
"""

from __future__ import annotations

from typing import Final

from edge.engine.access import Sender
from edge.engine.addresses import pubsub_service
from edge.engine.database import Transaction
from edge.engine.hooks import Context, Hooks, OffloadedWork, Work
from edge.features.admin_commands import xmpp
from edge.features.discovery import disco
from edge.features.pubsub import rights
from edge.features.pubsub.requests import answering
from edge.features.pubsub.rules.affiliation import Affiliation
from edge.features.pubsub.store import affiliations, items, nodes
from edge.features.pubsub.store.nodes import Node
from edge.xmpp import forms, pubsub, rsm, serialize
from edge.xmpp.namespaces import DISCO_INFO, DISCO_ITEMS, PUBSUB, QUEUEING, RSM, clark
from edge.xmpp.stanza import Stanza

IDENTITY: Final = {"category": "pubsub", "type": "service", "name": "Fieldpost"}
LEAF: Final = {"category": "pubsub", "type": "leaf"}

AUTO_CREATE: Final = f"{PUBSUB}#auto-create"
META_DATA: Final = f"{PUBSUB}#meta-data"

BATCH: Final = 256
"""Nodes that are looked at, at a time."""


def info(context: Context, stanza: Stanza) -> Work:
    """Tell what the service is, or a node (sections 5.1, 5.3 and 5.4)."""
    of_commands = xmpp.listed(context, stanza)
    if of_commands is not None:
        return of_commands
    name = stanza.children[0].attrs.get("node")
    if name is None:
        auto = (AUTO_CREATE,) if context.pubsub.auto_create else ()
        features = tuple(sorted((*context.hooks.pubsub_advertised, *auto)))
        return disco.answer(stanza, DISCO_INFO, disco.described(IDENTITY, features))

    def act(tx: Transaction, sender: Sender) -> bytes:
        node = rights.node(context, tx, name)
        _check_seen(context, tx, node, sender)
        features = (PUBSUB, QUEUEING) if node.config.queueing else (PUBSUB,)
        content = disco.described(LEAF, features) + _meta_data(tx, node)
        return serialize.tag("query", {"node": node.name}, content, xmlns=DISCO_INFO)

    return answering(context, stanza, act)


def listed(context: Context, stanza: Stanza) -> Work | OffloadedWork:
    """List the nodes of the service, or the items of a node (sections 5.2 and 5.5); raises
    `StanzaError`. All nodes are looked at for a list of nodes, 20 ms where there are 1000."""
    of_commands = xmpp.listed(context, stanza)
    if of_commands is not None:
        return of_commands
    query = stanza.children[0]
    name, asked = query.attrs.get("node"), rsm.read(query.tree())

    def act(tx: Transaction, sender: Sender) -> bytes:
        if name is None:
            content = _nodes(context, tx, sender, asked)
        else:
            node = rights.node(context, tx, name)
            rights.check_retrieve(context, tx, node, sender)
            content = _items(context, tx, node, asked)
        return serialize.tag("query", {"node": name}, content, xmlns=DISCO_ITEMS)

    return OffloadedWork(lambda: answering(context, stanza, act))


def _check_seen(context: Context, tx: Transaction, node: Node, sender: Sender) -> None:
    found = rights.affiliation(tx, node, sender.bare)
    if not rights.sees(context, tx, node, sender.bare, found):
        rights.check_subscribe(context, tx, node, sender)


def _nodes(context: Context, tx: Transaction, sender: Sender, asked: rsm.Request | None) -> bytes:
    titles = _seen(context, tx, sender.bare)
    page = rsm.page(asked, list(titles))
    content = b"".join(
        _item(context, {"node": name, "name": titles[name] or None}) for name in page.ids
    )
    return content + _part(page, asked)


def _seen(context: Context, tx: Transaction, bare: str) -> dict[str, str]:
    """Return the titles of the nodes that somebody may do something with, by name and in order."""
    known = {id: found for id, _, found in affiliations.of_jid(tx, bare)}
    seen: dict[str, str] = {}
    after = ""
    while batch := nodes.page(tx, after, BATCH):
        for node in batch:
            if rights.sees(context, tx, node, bare, known.get(node.id, Affiliation.NONE)):
                seen[node.name] = node.config.title
        after = batch[-1].name
    return seen


def _items(context: Context, tx: Transaction, node: Node, asked: rsm.Request | None) -> bytes:
    """List the items of a node by ItemID, in the order of their publication."""
    request = asked or rsm.Request()
    start, size = request.start or 0, request.max
    if request.after is not None:
        start = _place(tx, node, request.after) + 1
    elif request.before is not None:
        end = _place(tx, node, request.before) if request.before else node.items
        start, size = max(0, end - size), min(size, end)
    page = rsm.Page(items.item_ids(tx, node.id, start, size), start, node.items)
    return b"".join(_item(context, {"name": name}) for name in page.ids) + _part(page, asked)


def _place(tx: Transaction, node: Node, item: str) -> int:
    """Return how many items of a node stand in front of one."""
    place = items.position(tx, node.id, item)
    if place is None:
        raise pubsub.refusal("item-not-found", text="there is no such item")
    return items.count_before(tx, node.id, place)


def _part(page: rsm.Page, asked: rsm.Request | None) -> bytes:
    """Tell which part of a list is shown, if it was asked for or is not all."""
    return b"" if page.whole and asked is None else rsm.write(page)


def _item(context: Context, attrs: dict[str, str | None]) -> bytes:
    return serialize.tag("item", {"jid": pubsub_service(context.domain), **attrs})


def _meta_data(tx: Transaction, node: Node) -> bytes:
    """Tell what a node is for people, and who may do what (sections 5.4 and 16.4.4)."""
    config = node.config
    texts = {
        "title": config.title,
        "description": config.description,
        "type": config.type,
        "creator": node.owner,
        "access_model": config.access_model,
        "publish_model": config.publish_model,
        "max_items": str(config.max_items),
        "queueing": "1" if config.queueing else "0",
        "num_subscribers": str(nodes.count_subscriptions(tx, node.id)),
    }
    fields = [forms.Field(f"pubsub#{n}", "text-single", (v,)) for n, v in texts.items() if v]
    owners = affiliations.owners(tx, node.id)
    fields.append(forms.Field("pubsub#owner", "jid-multi", owners))
    return forms.write("result", META_DATA, fields)


NEEDS_ACCOUNTS: Final = True


def register(hooks: Hooks) -> None:
    """Register with the engine."""
    hooks.pubsub_iq("get", clark(DISCO_INFO, "query"), info)
    hooks.pubsub_iq("get", clark(DISCO_ITEMS, "query"), listed)
    hooks.advertise_pubsub(DISCO_INFO, DISCO_ITEMS, META_DATA, RSM, f"{PUBSUB}#item-ids")
