"""Queue nodes on `store.Gateway`: workers, what they are given, and what they answer."""

from __future__ import annotations

from typing import Final, NamedTuple
from xml.etree.ElementTree import Element

from tests.helpers.store import DOMAIN, Gateway, Reply, read_element
from tests.helpers.subscribing import EVENT, ask, create, element, subscribe

QUEUEING: Final = "urn:xmpp:pubsub:queueing:0"
NODE: Final = "work"
OWNER: Final = f"owner@{DOMAIN}/o"
PUBLISHER: Final = f"sensor@{DOMAIN}/s"
ONE: Final = f"one@{DOMAIN}/w"
TWO: Final = f"two@{DOMAIN}/w"
OTHER: Final = f"other@{DOMAIN}/x"

_MESSAGE: Final = "{jabber:client}message"
_REDELIVERED: Final = "{urn:x-fieldpost:queue}redelivered"


class Word(NamedTuple):
    """What a worker was told of an item: `item`, `retract` or `unlock`; its ItemID, and of one that
    it was given how often it was given before."""

    what: str
    id: str
    times: int = 0


def prepare(gateway: Gateway, **config: str) -> None:
    """Provision accounts, begin their sessions, and make a queue node that anybody publishes to."""
    for full in (OWNER, PUBLISHER, ONE, TWO, OTHER):
        gateway.add(full.partition("@")[0])
        gateway.bind(full)
    create(gateway, OWNER, NODE, queueing="1", publish_model="open", **config)


def work(gateway: Gateway, full: str, requests: int = 2, jid: str | None = None) -> None:
    """Subscribe a worker to the node: by its full JID, if not by another."""
    reply = subscribe(gateway, full, NODE, full if jid is None else jid,
                      queue_requests=str(requests))  # fmt: skip
    assert reply.type == "result", (reply.error, reply.text)


def publish(gateway: Gateway, *ids: str, by: str = PUBLISHER, **options: str) -> None:
    """Publish items, each by a request of its own."""
    for id in ids:
        reply = offer(gateway, id, by=by, **options)
        assert reply.type == "result", (reply.error, reply.text)


def offer(gateway: Gateway, id: str, by: str = PUBLISHER, text: str = "", **options: str) -> Reply:
    """Publish an item, and return the answer."""
    fields = "".join(
        f"<field var='pubsub#{name}'><value>{value}</value></field>"
        for name, value in options.items()
    )
    form = (
        "<x xmlns='jabber:x:data' type='submit'><field var='FORM_TYPE' type='hidden'>"
        f"<value>http://jabber.org/protocol/pubsub#publish-options</value></field>{fields}</x>"
    )
    behind = f"<publish-options>{form}</publish-options>" if options else ""
    payload = f"<job xmlns='urn:example:work'>{text or id}</job>"
    content = element("publish", element("item", payload, id=id), node=NODE) + behind
    return ask(gateway, by, content)


def told(gateway: Gateway, full: str) -> list[Word]:
    """Return what a session was told of items since this was last asked; it has that then."""
    return [_read(m) for m in gateway.elements(full) if m.tag == _MESSAGE]


def unconfirmed(gateway: Gateway, full: str) -> list[Word]:
    """Return the same, but the session has not acknowledged it."""
    return [_read(read_element(send.stanza)) for send in gateway.sends(full)]


def _read(message: Element) -> Word:
    found = message.find(f"{{{EVENT}}}event/{{{EVENT}}}items")
    assert found is not None
    assert found.get("node") == NODE
    times = message.find(_REDELIVERED)
    (one,) = found
    what = one.tag.rpartition("}")[2]
    return Word(what, one.attrib["id"], 0 if times is None else int(times.attrib["times"]))


def given(gateway: Gateway, full: str) -> list[str]:
    """Return the ItemIDs of the items that a session was given since this was last asked."""
    return [word.id for word in told(gateway, full) if word.what == "item"]


def retract(gateway: Gateway, full: str, id: str, type_: str = "set") -> Reply:
    """Delete an item."""
    return ask(gateway, full, element("retract", element("item", id=id), node=NODE), type_)


def unlock(gateway: Gateway, full: str, id: str, type_: str = "set", ns: str = QUEUEING) -> Reply:
    """Unlock an item."""
    content = element("unlock", element("item", id=id), node=NODE, xmlns=ns)
    return ask(gateway, full, content, type_)


def states(gateway: Gateway) -> dict[str, str]:
    """Return what has become of the items in queues, by their ItemIDs, in line."""
    rows = gateway.connection.execute("SELECT item, state FROM queue_items ORDER BY id")
    return dict(rows.fetchall())


def wait(gateway: Gateway, seconds: float) -> None:
    """Let service seconds go by, and do what has fallen due."""
    gateway.clock.service += seconds
    gateway.ring()
