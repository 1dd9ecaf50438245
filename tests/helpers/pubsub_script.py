"""A script of publish-subscribe for any server, and what it answers, told without what may differ.

It speaks XEP-0060 by raw sockets. What is told of an answer are its elements, without the ids that
servers make, the addresses, and what a server may say besides: texts, and the fields of forms that
nobody asked about.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple
from xml.etree.ElementTree import Element

from tests.helpers.xmpp import Client

PUBSUB: Final = "http://jabber.org/protocol/pubsub"
OWNER: Final = f"{PUBSUB}#owner"
STANZAS: Final = "urn:ietf:params:xml:ns:xmpp-stanzas"
FIELDS: Final = ("pubsub#title", "pubsub#max_items", "pubsub#persist_items")
"""What is told of a node's configuration."""

_MADE: Final = {"id", "subid", "to", "from", "jid", "{http://www.w3.org/XML/1998/namespace}lang"}
_NAMED: Final = ("item", "retract")
_PING: Final = "<ping xmlns='urn:xmpp:ping'/>"


class Step(NamedTuple):
    """A request: its name, who sends it, its type, and what stands in `<pubsub/>`."""

    name: str
    who: str
    type: str
    content: str
    ns: str = PUBSUB


def form(purpose: str, **fields: str) -> str:
    """Write a form of fields of publish-subscribe."""
    written = "".join(
        f"<field var='pubsub#{name}'><value>{value}</value></field>"
        for name, value in fields.items()
    )
    return (
        "<x xmlns='jabber:x:data' type='submit'><field var='FORM_TYPE' type='hidden'>"
        f"<value>{PUBSUB}#{purpose}</value></field>{written}</x>"
    )


def item(name: str, text: str) -> str:
    """Write an item."""
    return f"<item id='{name}'><reading xmlns='urn:example'>{text}</reading></item>"


def script(node: str, reader: str) -> list[Step]:
    """Write the whole life of a node, of which `reader`, a bare JID, is told."""
    at = f"node='{node}'"
    subscriber = f"{at} jid='{reader}'"
    wanted = form("node_config", title="Boiler", max_items="5", persist_items="1")
    return [
        Step("subscribe to none", "reader", "set", f"<subscribe {subscriber}/>"),
        Step("create", "owner", "set", f"<create {at}/><configure>{wanted}</configure>"),
        Step("create again", "owner", "set", f"<create {at}/>"),
        Step("configuration", "owner", "get", f"<configure {at}/>", OWNER),
        Step("configuration, not the owner", "reader", "get", f"<configure {at}/>", OWNER),
        Step("subscribe", "reader", "set", f"<subscribe {subscriber}/>"),
        Step("subscribe another", "reader", "set", f"<subscribe {at} jid='owner@x.example'/>"),
        Step("subscriptions", "reader", "get", f"<subscriptions {at}/>"),
        Step(
            "configure",
            "owner",
            "set",
            f"<configure {at}>{form('node_config', title='Boiler 1')}</configure>",
            OWNER,
        ),
        Step("publish", "owner", "set", f"<publish {at}>{item('i1', 'one')}</publish>"),
        Step("publish another", "owner", "set", f"<publish {at}>{item('i2', 'two')}</publish>"),
        Step("publish again", "owner", "set", f"<publish {at}>{item('i1', 'three')}</publish>"),
        Step("publish, not allowed", "reader", "set", f"<publish {at}>{item('i', 'x')}</publish>"),
        Step("items", "reader", "get", f"<items {at}/>"),
        Step("last item", "reader", "get", f"<items {at} max_items='1'/>"),
        Step("item", "reader", "get", f"<items {at}><item id='i2'/></items>"),
        Step("item that is none", "reader", "get", f"<items {at}><item id='none'/></items>"),
        Step("retract, not allowed", "reader", "set", f"<retract {at}><item id='i1'/></retract>"),
        Step("retract", "owner", "set", f"<retract {at} notify='true'><item id='i1'/></retract>"),
        Step("retract again", "owner", "set", f"<retract {at}><item id='i1'/></retract>"),
        Step("items left", "reader", "get", f"<items {at}/>"),
        Step("purge", "owner", "set", f"<purge {at}/>", OWNER),
        Step("items of none", "reader", "get", f"<items {at}/>"),
        Step("unsubscribe", "reader", "set", f"<unsubscribe {subscriber}/>"),
        Step("unsubscribe again", "reader", "set", f"<unsubscribe {subscriber}/>"),
        Step("subscribe anew", "reader", "set", f"<subscribe {subscriber}/>"),
        Step("delete, not allowed", "reader", "set", f"<delete {at}/>", OWNER),
        Step("delete", "owner", "set", f"<delete {at}/>", OWNER),
        Step("delete again", "owner", "set", f"<delete {at}/>", OWNER),
        Step("items of no node", "reader", "get", f"<items {at}/>"),
        Step("something else", "owner", "set", "<whatever/>"),
    ]


async def play(
    steps: list[Step], people: Mapping[str, Client], service: str, domain: str
) -> dict[str, list[str]]:
    """Play a script at a service.

    Args:
        steps: the requests.
        people: `owner` and `reader`, who is there.
        service: the address of publish-subscribe.
        domain: where to send a ping to; its answer comes after all that came before it.

    Returns:
        What is told of each step: its answer, and then what the reader got beside.
    """
    told = {}
    for step in steps:
        request = f"<pubsub xmlns='{step.ns}'>{step.content}</pubsub>"
        people[step.who].send(f"<iq type='{step.type}' id='step' to='{service}'>{request}</iq>")
        answer, before = await _until(people[step.who], "step")
        people["reader"].send(f"<iq type='get' id='ping' to='{domain}'>{_PING}</iq>")
        _pong, after = await _until(people["reader"], "ping")
        told[step.name] = [tell(answer), *(tell(one) for one in [*before, *after])]
    return told


async def _until(client: Client, iq: str) -> tuple[Element, list[Element]]:
    """Read up to the answer of a request; returns it, and the messages that came before."""
    messages: list[Element] = []
    while (found := await client.stanza()).get("id") != iq or not found.tag.endswith("}iq"):
        messages += [found] if found.tag.endswith("}message") else []
    return found, messages


def tell(stanza: Element) -> str:
    """Write what matters of a stanza: of an error its conditions alone."""
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
