"""Publishing, and what is told of it, as stanzas, for tests with a gateway in process."""

from __future__ import annotations

from typing import Final, NamedTuple
from xml.etree.ElementTree import Element

from tests.helpers.store import Gateway, Reply, read_element
from tests.helpers.subscribing import EVENT, PUBSUB, SERVICE, ask, element, form

CLIENT: Final = "{jabber:client}"
READING: Final = "<reading xmlns='urn:example:plant' watts='{}'/>"


def reading(watts: int | str) -> str:
    """Write a payload."""
    return READING.format(watts)


def item(id: str | None = None, content: str = "") -> str:
    """Write an item."""
    return element("item", content, id=id)


def publish(gateway: Gateway, full: str, node: str, *items: str, **options: str) -> Reply:
    """Publish items by iq; `options` are those of the publication."""
    behind = ""
    if options:
        behind = f"<publish-options>{form('publish-options', options)}</publish-options>"
    return ask(gateway, full, element("publish", "".join(items), node=node) + behind)


def published_id(reply: Reply) -> str:
    """Return the ItemID that an answer tells."""
    assert reply.payload is not None, (reply.error, reply.text)
    assert reply.type == "result", (reply.error, reply.text)
    found = reply.payload.find(f"{{{PUBSUB}}}publish/{{{PUBSUB}}}item")
    assert found is not None
    return found.attrib["id"]


def refused(reply: Reply) -> tuple[str, str]:
    """Return type and condition of an error."""
    assert reply.error is not None
    return reply.error


class Told(NamedTuple):
    """A notification: its message's type, and what stands in the event."""

    type: str | None
    of: str
    node: str
    items: list[tuple[str, str | None]]
    subid: str | None
    delayed: bool


def told(gateway: Gateway, full: str) -> list[Told]:
    """Return what a session was notified of by plain messages: (what, ItemID and payload)."""
    found = []
    for message in gateway.elements(full):
        if message.tag == f"{CLIENT}message" and message.find(f"{{{EVENT}}}event") is not None:
            assert message.get("from") == SERVICE
            found.append(read(message))
    return found


def read(message: Element) -> Told:
    """Read a notification."""
    event = message.find(f"{{{EVENT}}}event")
    assert event is not None
    (what,) = event
    shim = "{http://jabber.org/protocol/shim}"
    header = message.find(f"{shim}headers/{shim}header[@name='SubID']")
    items = [(one.get("id", ""), one[0].get("watts") if len(one) else None) for one in what]
    return Told(
        message.get("type"),
        what.tag.removeprefix(f"{{{EVENT}}}"),
        what.get("node", ""),
        [(id, f"-{watts}" if one.tag.endswith("retract") else watts)
         for (id, watts), one in zip(items, what, strict=True)],
        None if header is None else header.text,
        message.find("{urn:xmpp:delay}delay") is not None,
    )  # fmt: skip


def to_node(node: str, content: str) -> str:
    """Write a plain message to a node."""
    return f"<message to='{SERVICE}/{node}' id='m'>{content}</message>"


def embedded(content: str) -> str:
    """Write the message that an exchange with quality of service carries."""
    return f"<message xmlns='jabber:client'>{content}</message>"


def retrieve(gateway: Gateway, full: str, node: str | None, content: str = "", rsm: str = "",
             max_items: str | None = None) -> Reply:  # fmt: skip
    """Ask for items: `content` are items of some ids, `rsm` the children of a result set."""
    behind = f"<set xmlns='http://jabber.org/protocol/rsm'>{rsm}</set>" if rsm else ""
    return ask(
        gateway, full, element("items", content, node=node, max_items=max_items) + behind, "get"
    )


def ids(reply: Reply) -> list[str]:
    """Return the ItemIDs in an answer, in its order."""
    assert reply.payload is not None, (reply.error, reply.text)
    assert reply.type == "result", (reply.error, reply.text)
    return [one.attrib["id"] for one in reply.payload.iter(f"{{{PUBSUB}}}item")]


def part(reply: Reply) -> tuple[str | None, str | None, str | None, str | None] | None:
    """Return first, its index, last and count of the result set in an answer."""
    rsm = "{http://jabber.org/protocol/rsm}"
    assert reply.payload is not None
    found = reply.payload.find(f"{rsm}set")
    if found is None:
        return None
    first = found.find(f"{rsm}first")
    index = None if first is None else first.get("index")
    names = "first", "last", "count"
    head, last, count = (found.findtext(f"{rsm}{name}") for name in names)
    return head, index, last, count


def retract(gateway: Gateway, full: str, node: str, *ids: str | None, type_: str = "set",
            notify: str | None = None) -> Reply:  # fmt: skip
    """Delete items."""
    content = "".join(item(id) for id in ids)
    return ask(gateway, full, element("retract", content, node=node, notify=notify), type_)


def specific(gateway: Gateway, full: str, xml: str) -> list[str]:
    """Return the conditions of an error that a request gets, the specific one too."""
    gateway.sends(full)
    answer = gateway.tx(gateway.work(full, xml))
    error = read_element(answer).find(f"{CLIENT}error")
    assert error is not None, answer
    return [one.tag.partition("}")[2] for one in error if not one.tag.endswith("}text")]
