"""Workers of a queue node on an in-process gateway."""

from __future__ import annotations

from typing import Final, NamedTuple
from xml.etree.ElementTree import Element

from tests.helpers import pubsub
from tests.helpers.pubsub import EVENT, create, subscribe
from tests.helpers.store import DOMAIN, Gateway, Reply, read_element

QUEUEING: Final = "urn:xmpp:pubsub:queueing:0"
NODE: Final = "work"
OWNER: Final = f"owner@{DOMAIN}/o"
PUBLISHER: Final = f"sensor@{DOMAIN}/s"
ONE: Final = f"one@{DOMAIN}/w"
TWO: Final = f"two@{DOMAIN}/w"
OTHER: Final = f"other@{DOMAIN}/x"

_MESSAGE: Final = "{jabber:client}message"
_REDELIVERED: Final = "{urn:x-fieldpost:queue}redelivered"


class Received(NamedTuple):
    """A message to a worker: its element (`item`, `retract` or `unlock`), the ItemID, and how often
    an item was delivered before."""

    kind: str
    id: str
    times: int = 0


def set_up(gateway: Gateway, **config: str) -> None:
    """Provision accounts, bind their sessions, and create a queue node open to publishers."""
    for full in (OWNER, PUBLISHER, ONE, TWO, OTHER):
        gateway.add(full.partition("@")[0])
        gateway.bind(full)
    create(gateway, OWNER, NODE, queueing="1", publish_model="open", **config)


def subscribe_worker(
    gateway: Gateway, full: str, requests: int = 2, jid: str | None = None
) -> None:
    """Subscribe a worker to the node, by its full JID unless another is given."""
    reply = subscribe(gateway, full, NODE, full if jid is None else jid,
                      queue_requests=str(requests))  # fmt: skip
    assert reply.type == "result", (reply.error, reply.text)


def publish(gateway: Gateway, *ids: str, by: str = PUBLISHER, **options: str) -> None:
    """Publish items, each with its own request."""
    for id in ids:
        reply = try_publish(gateway, id, by=by, **options)
        assert reply.type == "result", (reply.error, reply.text)


def try_publish(
    gateway: Gateway, id: str, by: str = PUBLISHER, text: str = "", **options: str
) -> Reply:
    payload = f"<job xmlns='urn:example:work'>{text or id}</job>"
    return pubsub.publish(gateway, by, NODE, pubsub.item(id, payload), **options)


def messages(gateway: Gateway, full: str) -> list[Received]:
    """Return the messages to a session since the last call, and acknowledge them."""
    return [_read(m) for m in gateway.elements(full) if m.tag == _MESSAGE]


def unacknowledged(gateway: Gateway, full: str) -> list[Received]:
    """Return the messages to a session since the last call, without acknowledging them."""
    return [_read(read_element(send.stanza)) for send in gateway.sends(full)]


def _read(message: Element) -> Received:
    found = message.find(f"{{{EVENT}}}event/{{{EVENT}}}items")
    assert found is not None
    assert found.get("node") == NODE
    times = message.find(_REDELIVERED)
    (one,) = found
    kind = one.tag.rpartition("}")[2]
    return Received(kind, one.attrib["id"], 0 if times is None else int(times.attrib["times"]))


def deliveries(gateway: Gateway, full: str) -> list[str]:
    """Return the ItemIDs of the items delivered to a session since the last call."""
    return [one.id for one in messages(gateway, full) if one.kind == "item"]


def retract(gateway: Gateway, full: str, id: str, type_: str = "set") -> Reply:
    return pubsub.retract(gateway, full, NODE, id, type_=type_)


def unlock(gateway: Gateway, full: str, id: str, type_: str = "set", ns: str = QUEUEING) -> Reply:
    content = pubsub.element("unlock", pubsub.item(id), node=NODE, xmlns=ns)
    return pubsub.send_request(gateway, full, content, type_)


def states(gateway: Gateway) -> dict[str, str]:
    """Return the states of all items by their ItemIDs, in order."""
    rows = gateway.connection.execute("SELECT item, state FROM queue_items ORDER BY id")
    return dict(rows.fetchall())


def advance(gateway: Gateway, seconds: float) -> None:
    gateway.clock.service += seconds
    gateway.run_timers()
