"""Requests of publish-subscribe and their answers, for tests with a gateway in the same process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple
from xml.etree.ElementTree import Element
from xml.sax.saxutils import quoteattr

from edge.config.options import AccessRule
from edge.engine.dispatch.item_attributes import NO_ATTRIBUTES, ItemAttributes
from edge.engine.sessions import sessions
from edge.engine.store.database import Transaction
from edge.features.pubsub.rules.publication import PublicationShape
from edge.features.pubsub.service import publishing
from edge.features.pubsub.service.publishing import NewItem, Publication
from tests.helpers.store import (
    DOMAIN,
    STANZAS,
    Gateway,
    Reply,
    acknowledged,
    assured,
    deliver,
    read_element,
)

PUBSUB: Final = "http://jabber.org/protocol/pubsub"
OWNER: Final = f"{PUBSUB}#owner"
EVENT: Final = f"{PUBSUB}#event"
ERRORS: Final = f"{PUBSUB}#errors"
FORM: Final = "jabber:x:data"
CLIENT: Final = "{jabber:client}"
SERVICE: Final = f"pubsub.{DOMAIN}"
NODE: Final = "plant/energy"
"""A node that several tests share."""

_READING: Final = "<reading xmlns='urn:example:plant' watts='{}'/>"
_RSM: Final = "http://jabber.org/protocol/rsm"
_SHIM: Final = "{http://jabber.org/protocol/shim}"

FormValues = Mapping[str, str | list[str]]


# XML of requests


def element(name: str, content: str = "", **attrs: str | None) -> str:
    """Return an element; attributes that are `None` are omitted."""
    present = {key: value for key, value in attrs.items() if value is not None}
    attributes = "".join(f" {key}={quoteattr(value)}" for key, value in present.items())
    return f"<{name}{attributes}>{content}</{name}>"


def form(form_type: str, values: FormValues) -> str:
    """Return a submitted form; names without `#` get the prefix `pubsub#`."""
    fields = "".join(
        _field(var if "#" in var else f"pubsub#{var}", [text] if isinstance(text, str) else text)
        for var, text in values.items()
    )
    type_ = _field("FORM_TYPE", [f"{PUBSUB}#{form_type}"])
    return f"<x xmlns='{FORM}' type='submit'>{type_}{fields}</x>"


def _field(var: str, texts: list[str]) -> str:
    values = "".join(element("value", text) for text in texts)
    return element("field", values, var=var)


def options(**values: str) -> str:
    return element("options", form("subscribe_options", values))


def reading(watts: int | str) -> str:
    return _READING.format(watts)


def item(id: str | None = None, content: str = "") -> str:
    return element("item", content, id=id)


def request_xml(content: str, type_: str = "set", ns: str = PUBSUB) -> str:
    payload = f"<pubsub xmlns='{ns}'>{content}</pubsub>"
    return f"<iq type='{type_}' id='r' to='{SERVICE}'>{payload}</iq>"


def message_to_node(node: str, content: str) -> str:
    return f"<message to='{SERVICE}/{node}' id='m'>{content}</message>"


def embedded(content: str) -> str:
    """Return the message in an exchange with quality of service."""
    return f"<message xmlns='jabber:client'>{content}</message>"


# Requests


def send_request(
    gateway: Gateway, full: str, content: str, type_: str = "set", ns: str = PUBSUB
) -> Reply:
    """Send a request of a session and return the answer."""
    reply = gateway.ask(full, request_xml(content, type_, ns))
    assert (reply.attrs["to"], reply.attrs["from"]) == (full, SERVICE)
    return reply


def refusal(
    gateway: Gateway, full: str, content: str, type_: str = "set", ns: str = PUBSUB
) -> tuple[str, str, str]:
    """Send a request that is refused; return the error's type, its condition, and its condition of
    publish-subscribe."""
    answer = gateway.tx(gateway.work(full, request_xml(content, type_, ns)))
    error = read_element(answer).find(f"{CLIENT}error")
    assert error is not None, answer
    specific = [child.tag.removeprefix(f"{{{ERRORS}}}") for child in error if ERRORS in child.tag]
    condition = error[0].tag.removeprefix(f"{{{STANZAS}}}")
    return error.attrib["type"], condition, "".join(specific)


def create(gateway: Gateway, full: str, node: str, **config: str | list[str]) -> None:
    configure = element("configure", form("node_config", config)) if config else ""
    reply = send_request(gateway, full, element("create", node=node) + configure)
    assert reply.type == "result", (reply.error, reply.text)


def change_access(gateway: Gateway, *rules: AccessRule) -> None:
    """Change the rules `[[access]]`, as a reload does."""
    gateway.access[:] = rules
    gateway.commit(gateway.router.context.run_external_change)


def affiliate(gateway: Gateway, full: str, node: str, **accounts: str) -> Reply:
    """Set the affiliations of accounts, by name, for an owner of a node."""
    changes = "".join(
        element("affiliation", jid=f"{name}@{DOMAIN}", affiliation=affiliation)
        for name, affiliation in accounts.items()
    )
    content = element("affiliations", changes, node=node)
    return send_request(gateway, full, content, ns=OWNER)


def subscribe(
    gateway: Gateway, full: str, node: str, jid: str | None = None, **values: str
) -> Reply:
    """Subscribe a JID, by default the session's bare JID, with some options."""
    address = full.partition("/")[0] if jid is None else jid
    following = options(**values) if values else ""
    return send_request(gateway, full, element("subscribe", node=node, jid=address) + following)


def list_subscriptions(
    gateway: Gateway, full: str, node: str | None = None
) -> list[dict[str, str]]:
    """Return the subscriptions of a session's account, as attributes."""
    reply = send_request(gateway, full, element("subscriptions", node=node), "get")
    assert reply.payload is not None
    return [dict(found.attrib) for found in reply.payload[0]]


def publish(gateway: Gateway, full: str, node: str, *items: str, **options: str) -> Reply:
    following = ""
    if options:
        following = element("publish-options", form("publish-options", options))
    content = element("publish", "".join(items), node=node)
    return send_request(gateway, full, content + following)


def publish_content(
    gateway: Gateway,
    full: str,
    node: str,
    payload: bytes,
    attributes: ItemAttributes = NO_ATTRIBUTES,
    id: str = "i1",
) -> None:
    """Publish an item for a session as another protocol than XMPP does."""
    item = NewItem(id, payload, attributes=attributes)
    request = Publication(node, PublicationShape(1, 1), item)

    def act(tx: Transaction) -> None:
        sender = sessions.sender(tx, gateway.generation(full))
        assert sender is not None
        publishing.publish(gateway.router.context, tx, sender, request)

    gateway.commit(act)


def retrieve(
    gateway: Gateway,
    full: str,
    node: str | None,
    content: str = "",
    rsm: str = "",
    max_items: str | None = None,
) -> Reply:
    """Retrieve items; `content` selects items by their ItemIDs, `rsm` selects a page."""
    following = element("set", rsm, xmlns=_RSM) if rsm else ""
    items = element("items", content, node=node, max_items=max_items)
    return send_request(gateway, full, items + following, "get")


def retract(
    gateway: Gateway,
    full: str,
    node: str,
    *ids: str | None,
    type_: str = "set",
    notify: str | None = None,
) -> Reply:
    content = element("retract", "".join(map(item, ids)), node=node, notify=notify)
    return send_request(gateway, full, content, type_)


def send_message(
    gateway: Gateway, full: str, level: int, content: str, node: str | None = NODE
) -> Reply | None:
    """Send a message to a node, or to the service, at a level of quality of service.

    Returns the answer to its last step, if there is one.
    """
    to = SERVICE if node is None else f"{SERVICE}/{node}"
    if level == 0:
        return gateway.send(full, f"<message to='{to}' id='m'>{content}</message>")
    if level == 1:
        return gateway.send(full, acknowledged(embedded(content), to))
    reply = gateway.send(full, assured("m1", embedded(content), to))
    if reply is not None and reply.error is None:
        reply = gateway.send(full, deliver("m1", to))
    return reply


def stored_ids(gateway: Gateway, full: str, node: str = NODE) -> list[str]:
    return item_ids(retrieve(gateway, full, node))


# Answers


def error_of(reply: Reply | None) -> tuple[str, str]:
    assert reply is not None
    assert reply.error is not None, reply
    return reply.error


def subscription(reply: Reply) -> Element:
    return _find(reply, "subscription")


def subid(reply: Reply) -> str:
    return subscription(reply).attrib["subid"]


def published_id(reply: Reply) -> str:
    """Return the ItemID in an answer to a publication."""
    return _find(reply, f"publish/{{{PUBSUB}}}item").attrib["id"]


def _find(reply: Reply, path: str) -> Element:
    assert reply.payload is not None, (reply.error, reply.text)
    assert reply.type == "result", (reply.error, reply.text)
    found = reply.payload.find(f"{{{PUBSUB}}}{path}")
    assert found is not None
    return found


def values(tree: Element | None) -> dict[str, str]:
    """Return the first value of each field of a form, without the prefix of the names."""
    assert tree is not None
    return {
        field.get("var", "").removeprefix("pubsub#"): field.findtext(f"{{{FORM}}}value", "")
        for field in tree.iter(f"{{{FORM}}}field")
        if field.get("var") != "FORM_TYPE"
    }


def item_ids(reply: Reply) -> list[str]:
    assert reply.payload is not None, (reply.error, reply.text)
    assert reply.type == "result", (reply.error, reply.text)
    return [one.attrib["id"] for one in reply.payload.iter(f"{{{PUBSUB}}}item")]


def result_set(reply: Reply) -> tuple[str | None, str | None, str | None, str | None] | None:
    """Return the first id, its index, the last id and the count of the result set in an answer."""
    assert reply.payload is not None
    found = reply.payload.find(f"{{{_RSM}}}set")
    if found is None:
        return None
    first = found.find(f"{{{_RSM}}}first")
    index = None if first is None else first.get("index")
    head, last, count = (found.findtext(f"{{{_RSM}}}{name}") for name in ("first", "last", "count"))
    return head, index, last, count


# Notifications


class Notification(NamedTuple):
    """A notification: the type of its message, the event's element and node, and its items.

    `items` are pairs of an ItemID and the payload's reading; that of a retracted item is "-None".
    """

    type: str | None
    element: str
    node: str
    items: list[tuple[str, str | None]]
    subid: str | None
    delayed: bool


def notifications(gateway: Gateway, full: str) -> list[Notification]:
    """Return the notifications that a session received in plain messages."""
    found = []
    for message in gateway.elements(full):
        if message.tag == f"{CLIENT}message" and message.find(f"{{{EVENT}}}event") is not None:
            assert message.get("from") == SERVICE
            found.append(_read_notification(message))
    return found


def _read_notification(message: Element) -> Notification:
    event = message.find(f"{{{EVENT}}}event")
    assert event is not None
    (content,) = event
    header = message.find(f"{_SHIM}headers/{_SHIM}header[@name='SubID']")
    items = []
    for one in content:
        watts = one[0].get("watts") if len(one) else None
        is_retracted = one.tag.endswith("retract")
        items.append((one.get("id", ""), f"-{watts}" if is_retracted else watts))
    return Notification(
        message.get("type"),
        content.tag.removeprefix(f"{{{EVENT}}}"),
        content.get("node", ""),
        items,
        None if header is None else header.text,
        message.find("{urn:xmpp:delay}delay") is not None,
    )


def subscription_events(gateway: Gateway, full: str) -> list[tuple[str, str]]:
    """Return the changes of subscriptions that a session was notified of: node and state."""
    events = [message.find(f"{{{EVENT}}}event") for message in gateway.elements(full)]
    found = [event[0] for event in events if event is not None]
    name = f"{{{EVENT}}}subscription"
    return [(e.attrib["node"], e.attrib["subscription"]) for e in found if e.tag == name]
