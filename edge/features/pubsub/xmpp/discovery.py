"""Handle discovery of the publish-subscribe service, its nodes and their items (XEP-0030; XEP-0060,
sections 5.1 to 5.5)."""

from __future__ import annotations

from typing import Final

from edge.engine.dispatch.addresses import pubsub_service
from edge.engine.dispatch.hooks import Context, OffloadedWork, Work
from edge.engine.rules.access import Sender
from edge.engine.store.database import Transaction
from edge.features.pubsub.service import items, nodes
from edge.features.pubsub.service.items import PageRequest
from edge.features.pubsub.service.nodes import NodeInfo
from edge.routing.xmpp import XmppHooks, answers
from edge.xmpp import disco, forms, rsm, serialize
from edge.xmpp.namespaces import DISCO_INFO, DISCO_ITEMS, PUBSUB, QUEUEING
from edge.xmpp.stanza import Stanza

IDENTITY: Final = {"category": "pubsub", "type": "service", "name": "Fieldpost"}
NODE_IDENTITY: Final = {"category": "pubsub", "type": "leaf"}

AUTO_CREATE: Final = f"{PUBSUB}#auto-create"
META_DATA: Final = f"{PUBSUB}#meta-data"


def info(context: Context, stanza: Stanza) -> Work:
    """Describe the service or a node (sections 5.1, 5.3 and 5.4)."""
    for handler in context.hooks.of(XmppHooks).pubsub_disco:
        if (work := handler(context, stanza)) is not None:
            return work
    name = stanza.children[0].attrs.get("node")
    if name is None:
        auto_create = (AUTO_CREATE,) if context.pubsub.auto_create or context.access else ()
        features = tuple(sorted((*context.hooks.of(XmppHooks).pubsub_advertised, *auto_create)))
        payload = disco.query(DISCO_INFO, disco.describe(IDENTITY, features))
        return lambda _tx, sender: answers.result(stanza, sender, payload)

    def act(tx: Transaction, sender: Sender) -> bytes:
        found = nodes.describe(context, tx, sender, name)
        is_queue = found.node.config.queueing
        features = (PUBSUB, QUEUEING) if is_queue else (PUBSUB,)
        content = disco.describe(NODE_IDENTITY, features) + _meta_data(found)
        return serialize.tag("query", {"node": name}, content, xmlns=DISCO_INFO)

    return answers.service_work(context, stanza, act)


def _meta_data(found: NodeInfo) -> bytes:
    node, owners, subscribers = found
    config = node.config
    texts = {
        "title": config.title,
        "description": config.description,
        "type": config.type,
        "creator": node.creator,
        "access_model": config.access_model,
        "publish_model": config.publish_model,
        "max_items": str(config.max_items),
        "queueing": "1" if config.queueing else "0",
        "num_subscribers": str(subscribers),
    }
    fields = [forms.Field(f"pubsub#{n}", "text-single", (v,)) for n, v in texts.items() if v]
    fields.append(forms.Field("pubsub#owner", "jid-multi", owners))
    return forms.write("result", META_DATA, fields)


def list_(context: Context, stanza: Stanza) -> Work | OffloadedWork:
    """List the nodes of the service, or the items of a node (sections 5.2 and 5.5)."""
    for handler in context.hooks.of(XmppHooks).pubsub_disco:
        if (work := handler(context, stanza)) is not None:
            return work
    query = stanza.children[0]
    name, request = query.attrs.get("node"), rsm.read(query.tree())

    def act(tx: Transaction, sender: Sender) -> bytes:
        if name is None:
            content = _list_nodes(context, tx, sender, request)
        else:
            content = _list_items(context, tx, sender, name, request)
        return serialize.tag("query", {"node": name}, content, xmlns=DISCO_ITEMS)

    return OffloadedWork(lambda: answers.service_work(context, stanza, act))


def _list_nodes(
    context: Context, tx: Transaction, sender: Sender, request: rsm.Request | None
) -> bytes:
    titles = nodes.discoverable_titles(context, tx, sender)
    page = rsm.page(request, list(titles))
    content = b"".join(
        _item_element(context, {"node": name, "name": titles[name] or None}) for name in page.ids
    )
    return content + _page_element(page, request)


def _list_items(
    context: Context, tx: Transaction, sender: Sender, name: str, request: rsm.Request | None
) -> bytes:
    page_request = PageRequest(*(request or rsm.Request()))
    found = items.list_ids(context, tx, sender, name, page_request)
    content = b"".join(_item_element(context, {"name": id}) for id in found.ids)
    return content + _page_element(rsm.Page(*found), request)


def _page_element(page: rsm.Page, request: rsm.Request | None) -> bytes:
    """Encode the position of a page in its list (XEP-0059); empty if the page is the whole list
    and no page was requested."""
    return b"" if page.whole and request is None else rsm.write(page)


def _item_element(context: Context, attrs: dict[str, str | None]) -> bytes:
    return serialize.tag("item", {"jid": pubsub_service(context.domain), **attrs})
