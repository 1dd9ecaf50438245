"""Requests about subscriptions, as stanzas, for tests with a gateway in process."""

from __future__ import annotations

from typing import Final
from xml.etree.ElementTree import Element
from xml.sax.saxutils import quoteattr

from tests.helpers.store import DOMAIN, Gateway, Reply

PUBSUB: Final = "http://jabber.org/protocol/pubsub"
OWNER: Final = f"{PUBSUB}#owner"
EVENT: Final = f"{PUBSUB}#event"
ERRORS: Final = f"{PUBSUB}#errors"
FORM: Final = "jabber:x:data"
SERVICE: Final = f"pubsub.{DOMAIN}"


def form(form_type: str, values: dict[str, str]) -> str:
    """Write a form that was filled in; options without a prefix get the usual one."""
    fields = "".join(
        f"<field var={quoteattr(var if '#' in var else f'pubsub#{var}')}>"
        f"<value>{value}</value></field>"
        for var, value in values.items()
    )
    type_ = f"<field var='FORM_TYPE' type='hidden'><value>{PUBSUB}#{form_type}</value></field>"
    return f"<x xmlns='{FORM}' type='submit'>{type_}{fields}</x>"


def options(**values: str) -> str:
    """Write the options that stand behind a request to subscribe."""
    return f"<options>{form('subscribe_options', values)}</options>"


def request(content: str, type_: str = "set", ns: str = PUBSUB) -> str:
    """Write a request to the service."""
    payload = f"<pubsub xmlns='{ns}'>{content}</pubsub>"
    return f"<iq type='{type_}' id='r' to='{SERVICE}'>{payload}</iq>"


def element(name: str, content: str = "", **attrs: str | None) -> str:
    """Write an element; attributes that are `None` are left out."""
    written = "".join(
        f" {key}={quoteattr(value)}" for key, value in attrs.items() if value is not None
    )
    return f"<{name}{written}>{content}</{name}>"


def ask(gateway: Gateway, full: str, content: str, type_: str = "set", ns: str = PUBSUB) -> Reply:
    """Send a request of a session, and return the answer."""
    reply = gateway.send(full, request(content, type_, ns))
    assert reply is not None
    return reply


def create(gateway: Gateway, full: str, node: str, **config: str) -> None:
    """Create a node, and configure it."""
    configure = f"<configure>{form('node_config', config)}</configure>" if config else ""
    reply = ask(gateway, full, element("create", node=node) + configure)
    assert reply.type == "result", (reply.error, reply.text)


def subscribe(
    gateway: Gateway, full: str, node: str, jid: str | None = None, **values: str
) -> Reply:
    """Subscribe a session's bare JID, or another, with options if there are any."""
    address = full.partition("/")[0] if jid is None else jid
    behind = options(**values) if values else ""
    return ask(gateway, full, element("subscribe", node=node, jid=address) + behind)


def subid(reply: Reply) -> str:
    """Return the SubID that an answer to `subscribe` tells."""
    return subscription(reply).attrib["subid"]


def subscription(reply: Reply) -> Element:
    """Return the subscription that an answer tells."""
    assert reply.payload is not None, (reply.error, reply.text)
    found = reply.payload.find(f"{{{PUBSUB}}}subscription")
    assert found is not None, (reply.error, reply.text)
    return found


def values(tree: Element | None) -> dict[str, str]:
    """Return the values of a form in an answer, without the prefix of the options."""
    assert tree is not None
    fields = tree.iter(f"{{{FORM}}}field")
    return {
        field.get("var", "").removeprefix("pubsub#"): field.findtext(f"{{{FORM}}}value", "")
        for field in fields
        if field.get("var") != "FORM_TYPE"
    }


def shown(gateway: Gateway, full: str, node: str | None = None) -> list[dict[str, str]]:
    """Return the subscriptions of a session's account, by attributes."""
    reply = ask(gateway, full, element("subscriptions", node=node), "get")
    assert reply.payload is not None
    return [dict(found.attrib) for found in reply.payload[0]]


def told(gateway: Gateway, full: str) -> list[tuple[str, str]]:
    """Return what a session was told of its subscriptions: of what, and the state."""
    events = [message.find(f"{{{EVENT}}}event") for message in gateway.elements(full)]
    found = [event[0] for event in events if event is not None]
    name = f"{{{EVENT}}}subscription"
    return [(e.attrib["node"], e.attrib["subscription"]) for e in found if e.tag == name]
