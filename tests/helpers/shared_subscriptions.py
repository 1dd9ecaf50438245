"""Members of shared subscriptions on an in-process gateway."""

from __future__ import annotations

from typing import Final
from xml.etree.ElementTree import Element

from tests.helpers import pubsub
from tests.helpers.people import CLIENT, PUMP
from tests.helpers.pubsub import EVENT, subscribe
from tests.helpers.qos_devices import DeviceRequest, empty_result, received_result, take_requests
from tests.helpers.store import Gateway

SHARE: Final = "$share:pool:plant/#"
NODE: Final = "plant/boiler/temp"

_ITEM: Final = f"{{{EVENT}}}event/{{{EVENT}}}items/{{{EVENT}}}item"


def join(
    gateway: Gateway, full: str, share: str = SHARE, jid: str | None = None, **values: str
) -> str:
    """Subscribe a session to a shared subscription and return the SubID."""
    reply = subscribe(gateway, full, share, jid, **values)
    assert reply.payload is not None, (reply.error, reply.text)
    return reply.payload[0].attrib["subid"]


def leave(gateway: Gateway, full: str, share: str = SHARE, jid: str | None = None) -> None:
    address = full.partition("/")[0] if jid is None else jid
    request = pubsub.element("unsubscribe", node=share, jid=address)
    reply = pubsub.send_request(gateway, full, request)
    assert reply.type == "result", (reply.error, reply.text)


def publish(gateway: Gateway, *items: str, node: str = NODE, full: str = PUMP) -> None:
    for item_id in items:
        reply = pubsub.publish(
            gateway, full, node, pubsub.item(item_id, f"<v xmlns='urn:v'>{item_id}</v>")
        )
        assert reply.type == "result", (reply.error, reply.text)


def item_id(message: Element | None) -> str | None:
    """Return the ItemID of a message, if it contains an item."""
    found = None if message is None else message.find(_ITEM)
    return None if found is None else found.get("id")


def item_text(message: Element | None) -> str:
    """Return the text of the item that a message must contain."""
    found = None if message is None else message.find(_ITEM)
    assert found is not None
    return "".join(found.itertext())


def offered_items(gateway: Gateway, full: str) -> list[str | None]:
    """Return the ItemIDs of the items offered to a session with QoS since the last call."""
    return [item_id(one.message) for one in take_requests(gateway, full)]


def plain_items(gateway: Gateway, full: str) -> list[str | None]:
    """Return the ItemIDs of plain messages to a session since the last call; acknowledge them."""
    found = [element for element in gateway.elements(full) if element.tag == f"{CLIENT}message"]
    return [item_id(message) for message in found]


def answer_all(gateway: Gateway, full: str) -> list[str | None]:
    """Answer all offers to a session until no more come, and return the ItemIDs."""
    item_ids = []
    while found := take_requests(gateway, full):
        for one in found:
            answer(gateway, full, one)
        item_ids += [item_id(one.message) for one in found if one.step != "deliver"]
    return item_ids


def answer(gateway: Gateway, full: str, one: DeviceRequest) -> None:
    gateway.send(full, received_result(one) if one.step == "assured" else empty_result(one))


def item_states(gateway: Gateway) -> list[tuple[str, str]]:
    """Return the items of all queues with their states, in order."""
    sql = "SELECT item, state FROM queue_items ORDER BY id"
    return [(item, state) for item, state in gateway.connection.execute(sql)]
