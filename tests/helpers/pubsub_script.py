"""A script of publish-subscribe requests for any server, with comparable descriptions of answers.

It sends XEP-0060 over raw sockets. A description contains the elements of an answer without
addresses, ids made by servers, texts, and optional form fields.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple
from xml.etree.ElementTree import Element

from tests.helpers.pubsub import OWNER, PUBSUB, form
from tests.helpers.xmpp import Client

FIELDS: Final = ("pubsub#title", "pubsub#max_items", "pubsub#persist_items")
"""The fields of a node's configuration in a description."""

_MADE: Final = {"id", "subid", "to", "from", "jid", "{http://www.w3.org/XML/1998/namespace}lang"}
_NAMED: Final = ("item", "retract")
_PING: Final = "<ping xmlns='urn:xmpp:ping'/>"


class Step(NamedTuple):
    """A request: its name, its sender, its type, and the content of `<pubsub/>`."""

    name: str
    sender: str
    type: str
    content: str
    ns: str = PUBSUB


def item(name: str, text: str) -> str:
    return f"<item id='{name}'><reading xmlns='urn:example'>{text}</reading></item>"


def script(node: str, reader: str) -> list[Step]:
    """Return requests for the whole life of a node; `reader` is a subscriber's bare JID."""
    at = f"node='{node}'"
    subscriber = f"{at} jid='{reader}'"
    wanted = form("node_config", {"title": "Boiler", "max_items": "5", "persist_items": "1"})
    changed = form("node_config", {"title": "Boiler 1"})
    return [
        Step("subscribe to a missing node", "reader", "set", f"<subscribe {subscriber}/>"),
        Step("create", "owner", "set", f"<create {at}/><configure>{wanted}</configure>"),
        Step("create again", "owner", "set", f"<create {at}/>"),
        Step("configuration", "owner", "get", f"<configure {at}/>", OWNER),
        Step("configuration, not the owner", "reader", "get", f"<configure {at}/>", OWNER),
        Step("subscribe", "reader", "set", f"<subscribe {subscriber}/>"),
        Step("subscribe another", "reader", "set", f"<subscribe {at} jid='owner@x.example'/>"),
        Step("subscriptions", "reader", "get", f"<subscriptions {at}/>"),
        Step("configure", "owner", "set", f"<configure {at}>{changed}</configure>", OWNER),
        Step("publish", "owner", "set", f"<publish {at}>{item('i1', 'one')}</publish>"),
        Step("publish another", "owner", "set", f"<publish {at}>{item('i2', 'two')}</publish>"),
        Step("publish again", "owner", "set", f"<publish {at}>{item('i1', 'three')}</publish>"),
        Step("publish, not allowed", "reader", "set", f"<publish {at}>{item('i', 'x')}</publish>"),
        Step("items", "reader", "get", f"<items {at}/>"),
        Step("last item", "reader", "get", f"<items {at} max_items='1'/>"),
        Step("item", "reader", "get", f"<items {at}><item id='i2'/></items>"),
        Step("missing item", "reader", "get", f"<items {at}><item id='none'/></items>"),
        Step("retract, not allowed", "reader", "set", f"<retract {at}><item id='i1'/></retract>"),
        Step("retract", "owner", "set", f"<retract {at} notify='true'><item id='i1'/></retract>"),
        Step("retract again", "owner", "set", f"<retract {at}><item id='i1'/></retract>"),
        Step("items left", "reader", "get", f"<items {at}/>"),
        Step("purge", "owner", "set", f"<purge {at}/>", OWNER),
        Step("items after purge", "reader", "get", f"<items {at}/>"),
        Step("unsubscribe", "reader", "set", f"<unsubscribe {subscriber}/>"),
        Step("unsubscribe again", "reader", "set", f"<unsubscribe {subscriber}/>"),
        Step("subscribe anew", "reader", "set", f"<subscribe {subscriber}/>"),
        Step("delete, not allowed", "reader", "set", f"<delete {at}/>", OWNER),
        Step("delete", "owner", "set", f"<delete {at}/>", OWNER),
        Step("delete again", "owner", "set", f"<delete {at}/>", OWNER),
        Step("items of a deleted node", "reader", "get", f"<items {at}/>"),
        Step("unknown request", "owner", "set", "<whatever/>"),
    ]


async def run_script(
    steps: list[Step], people: Mapping[str, Client], service: str, domain: str
) -> dict[str, list[str]]:
    """Send the requests of a script to a service.

    Args:
        steps: the requests.
        people: the clients `owner` and `reader`; the reader is available.
        service: the address of publish-subscribe.
        domain: the address of a ping, whose answer follows all notifications.

    Returns:
        The description of each step's answer, followed by the reader's notifications.
    """
    found = {}
    for step in steps:
        request = f"<pubsub xmlns='{step.ns}'>{step.content}</pubsub>"
        people[step.sender].send(f"<iq type='{step.type}' id='step' to='{service}'>{request}</iq>")
        answer, before = await _until(people[step.sender], "step")
        people["reader"].send(f"<iq type='get' id='ping' to='{domain}'>{_PING}</iq>")
        _pong, after = await _until(people["reader"], "ping")
        found[step.name] = [describe(answer), *(describe(one) for one in [*before, *after])]
    return found


async def _until(client: Client, iq: str) -> tuple[Element, list[Element]]:
    """Read until the answer to a request; return it and the messages before it."""
    messages: list[Element] = []
    while (found := await client.stanza()).get("id") != iq or not found.tag.endswith("}iq"):
        messages += [found] if found.tag.endswith("}message") else []
    return found, messages


def describe(stanza: Element) -> str:
    """Describe a stanza; an error by its conditions only."""
    if stanza.get("type") == "error":
        error = stanza.find("{jabber:client}error")
        assert error is not None
        names = (child.tag.partition("}")[2] for child in error if not child.tag.endswith("}text"))
        return f"{error.get('type')}: {' '.join(names)}"
    content = "".join(_written(child) for child in stanza if not child.tag.endswith("}delay"))
    return f"{stanza.get('type', 'message')}: {content}" if content else stanza.get("type", "")


def _written(element: Element) -> str:
    name = element.tag.partition("}")[2]
    if element.tag == "{jabber:x:data}x":
        return f"<form {_fields(element)}>"
    made = _MADE - {"id"} if name in _NAMED else _MADE
    attrs = "".join(f" {k}={v}" for k, v in sorted(element.items()) if k not in made)
    content = (element.text or "").strip() + "".join(_written(child) for child in element)
    return f"<{name}{attrs}>{content}"


def _fields(form: Element) -> str:
    found = {f.get("var", ""): [v.text or "" for v in f if v.tag.endswith("}value")] for f in form}
    return " ".join(f"{name}={','.join(found[name])}" for name in FIELDS if name in found)
