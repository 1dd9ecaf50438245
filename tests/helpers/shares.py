"""Members of shares, and what they are given, for tests with a gateway in process."""

from __future__ import annotations

from typing import Final
from xml.etree.ElementTree import Element

from tests.helpers.custody import CLIENT, Handed, done, handed, received
from tests.helpers.people import PUMP
from tests.helpers.store import Gateway
from tests.helpers.subscribing import EVENT, ask, element, subscribe

POOL: Final = "$share:pool:plant/#"
NODE: Final = "plant/boiler/temp"

_ITEM: Final = f"{{{EVENT}}}event/{{{EVENT}}}items/{{{EVENT}}}item"


def join(
    gateway: Gateway, full: str, share: str = POOL, jid: str | None = None, **values: str
) -> str:
    """Have a session join a share; returns the SubID."""
    reply = subscribe(gateway, full, share, jid, **values)
    assert reply.payload is not None, (reply.error, reply.text)
    return reply.payload[0].attrib["subid"]


def leave(gateway: Gateway, full: str, share: str = POOL, jid: str | None = None) -> None:
    """Have a session unsubscribe from a share."""
    address = full.partition("/")[0] if jid is None else jid
    reply = ask(gateway, full, element("unsubscribe", node=share, jid=address))
    assert reply.type == "result", (reply.error, reply.text)


def publish(gateway: Gateway, *items: str, node: str = NODE, full: str = PUMP) -> None:
    """Publish items to a node, each by a request of its own."""
    for name in items:
        item = element("item", "<v xmlns='urn:v'/>", id=name)
        reply = ask(gateway, full, element("publish", item, node=node))
        assert reply.type == "result", (reply.error, reply.text)


def name(message: Element | None) -> str | None:
    """Return the ItemID of a notification, if it is one."""
    found = None if message is None else message.find(_ITEM)
    return None if found is None else found.get("id")


def given(gateway: Gateway, full: str) -> list[str | None]:
    """Return the ItemIDs of what a session was handed since this was last asked."""
    return [name(one.message) for one in handed(gateway, full)]


def told(gateway: Gateway, full: str) -> list[str | None]:
    """Return those of plain messages that it was sent; it has them then."""
    found = [element for element in gateway.elements(full) if element.tag == f"{CLIENT}message"]
    return [name(message) for message in found]


def work(gateway: Gateway, full: str) -> list[str | None]:
    """Take what a session was handed and answer it until nothing more comes; returns ItemIDs."""
    taken = []
    while found := handed(gateway, full):
        for one in found:
            answer(gateway, full, one)
        taken += [name(one.message) for one in found if one.step != "deliver"]
    return taken


def answer(gateway: Gateway, full: str, one: Handed) -> None:
    """Say that a message, or a step of it, is done."""
    gateway.send(full, received(one) if one.step == "assured" else done(one))


def waiting(gateway: Gateway) -> list[tuple[str, str]]:
    """Return the items in all queues and their states, in line."""
    sql = "SELECT item, state FROM queue_items ORDER BY id"
    return [(item, state) for item, state in gateway.connection.execute(sql)]
