"""`[uplink] topics`: what is published to nodes becomes events, with the item or not at all."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from edge.config.limits import Limits
from edge.engine import events
from edge.engine.database import Transaction
from edge.engine.events import NewEvent
from tests.helpers.people import PUMP, VALVE, make_available, provision
from tests.helpers.pubsub import (
    SERVICE,
    create,
    embedded,
    error_of,
    item,
    item_ids,
    notifications,
    publish,
    published_id,
    reading,
    retrieve,
    subscribe,
)
from tests.helpers.store import Gateway, Reply, acknowledged, assured, deliver, new_database

NODE = "plant/boiler/temp"
FIELDS = (
    "<fields xmlns='urn:xmpp:iot:sensordata' seqnr='1'><node nodeId='b1'>"
    "<timestamp value='T'>{}</timestamp></node></fields>"
)
WARM = FIELDS.format("<numeric name='t' value='21.5' unit='°C'/><boolean name='on' value='true'/>")
UNREADABLE = FIELDS.format("<numeric name='t' value='warm'/>")
LOG = "<log xmlns='urn:xmpp:eventlog' id='Started' type='Notice'><message>It runs.</message></log>"
BROKEN = "<json xmlns='urn:xmpp:json:0'>{\"a\": NaN}</json>"
WHY = "field 't' is not a valid numeric: 'warm'"

LEVELS = pytest.mark.parametrize("level", [0, 1, 2])


def json(text: str) -> str:
    return f"<json xmlns='urn:xmpp:json:0'>{text}</json>"


@pytest.fixture
def build(tmp_path: Path) -> Iterator[Callable[..., Gateway]]:
    """Make gateways with these limits and a node of the pump's: open to all, and reported."""
    made: list[Gateway] = []

    def build(topics: tuple[str, ...] = ("plant/+/temp", "jobs/#"), **limits: float) -> Gateway:
        gateway = Gateway(
            new_database(tmp_path),
            Limits(**limits),  # type: ignore[arg-type]
            topics=topics,
        )
        made.append(gateway)
        provision(gateway)
        make_available(gateway, VALVE)
        create(gateway, PUMP, NODE, publish_model="open")
        return gateway

    yield build
    for gateway in made:
        gateway.close()


@pytest.fixture
def gateway(build: Callable[..., Gateway]) -> Gateway:
    """One with its defaults."""
    return build()


def send(gateway: Gateway, level: int, content: str, node: str = NODE) -> Reply:
    """Send a message to a node at a level, as the valve; returns the last answer, if any."""
    to = f"{SERVICE}/{node}"
    if level == 0:
        reply = gateway.send(VALVE, f"<message to='{to}' id='m'>{content}</message>")
    elif level == 1:
        reply = gateway.send(VALVE, acknowledged(embedded(content), to))
    else:
        reply = gateway.send(VALVE, assured("m1", embedded(content), to))
        if reply is not None and reply.error is None:
            reply = gateway.send(VALVE, deliver("m1", to))
    return reply  # type: ignore[return-value]


def kept(gateway: Gateway, node: str = NODE) -> list[str]:
    return item_ids(retrieve(gateway, PUMP, node))


def logged(gateway: Gateway) -> list[tuple[str, str | None, str | None, int | None]]:
    """What went into the lanes of devices: kind, name, topic and level."""
    rows = [*gateway.events("readings"), *gateway.events("logs")]
    assert {row.source for row in rows} <= {VALVE}
    return [(row.kind, row.name, row.topic, row.qos) for row in rows]


# What is published becomes events.


def test_sensor_data_that_is_published_by_iq_becomes_readings(gateway: Gateway) -> None:
    subscribe(gateway, PUMP, NODE)
    make_available(gateway, PUMP)
    assert published_id(publish(gateway, VALVE, NODE, item("i1", WARM))) == "i1"
    warm, on = gateway.events("readings")
    assert (warm.topic, warm.source, warm.name, warm.value, warm.unit) == (
        NODE, VALVE, "t", 21.5, "°C",
    )  # fmt: skip
    assert warm.tags == {"node": "b1", "timestamp": "T"}
    assert (warm.qos, warm.latency_ms) == (None, None)
    assert (on.name, on.value, on.topic) == ("on", 1.0, NODE)
    assert kept(gateway) == ["i1"]
    assert len(notifications(gateway, PUMP)) == 1


@LEVELS
def test_what_is_published_by_message_has_its_level(gateway: Gateway, level: int) -> None:
    send(gateway, level, f"<item xmlns='http://jabber.org/protocol/pubsub' id='i'>{WARM}</item>")
    assert logged(gateway) == [("reading", "t", NODE, level), ("reading", "on", NODE, level)]
    assert kept(gateway) == ["i"]


def test_an_assured_one_tells_how_long_it_was_in_custody(gateway: Gateway) -> None:
    to = f"{SERVICE}/{NODE}"
    gateway.send(VALVE, assured("m1", embedded(WARM), to))
    assert logged(gateway) == []
    gateway.clock.service += 2.5
    for _ in range(2):  # the second is a repeat
        reply = gateway.send(VALVE, deliver("m1", to))
        assert reply is not None
        assert reply.error is None
    assert [row.latency_ms for row in gateway.events("readings")] == [2500, 2500]
    assert len(kept(gateway)) == 1


def test_logs_and_json_are_taken_as_well(gateway: Gateway) -> None:
    send(gateway, 0, LOG)
    send(gateway, 1, json('[{"n": "a", "v": 1}]'))
    publish(gateway, VALVE, NODE, item("i", json('{"b": {"c": true}}')))
    assert logged(gateway) == [
        ("reading", "a", NODE, 1),
        ("reading", "b.c", NODE, None),
        ("log", "Started", NODE, 0),
    ]


def test_a_queue_node_is_reported_when_it_gets_an_item(gateway: Gateway) -> None:
    create(gateway, PUMP, "jobs", queueing="1", publish_model="open")
    publish(gateway, VALVE, "jobs", item("i1", WARM))
    send(gateway, 2, LOG, "jobs")
    assert [row[2] for row in logged(gateway)] == ["jobs"] * 3
    assert gateway.count("SELECT count(*) FROM queue_items") == 2


def test_what_a_node_does_not_keep_is_logged_all_the_same(gateway: Gateway) -> None:
    create(gateway, PUMP, "plant/x/temp", publish_model="open", persist_items="0")
    publish(gateway, VALVE, "plant/x/temp", item("i1", WARM))
    assert len(logged(gateway)) == 2


def test_other_payloads_and_none_are_published_as_ever(gateway: Gateway) -> None:
    publish(gateway, VALVE, NODE, item("i1", reading(5)))
    send(gateway, 1, reading(6))
    create(gateway, PUMP, "jobs/note", publish_model="open", persist_items="0",
           deliver_payloads="0")  # fmt: skip
    publish(gateway, VALVE, "jobs/note")
    assert logged(gateway) == []
    assert len(kept(gateway)) == 2


@pytest.mark.parametrize("topics", [(), ("plant/+",), ("plant/boiler/temp/x", "$x/#")])
@pytest.mark.parametrize("content", [WARM, UNREADABLE, BROKEN])
def test_nodes_that_no_topic_matches_are_as_ever(
    build: Callable[..., Gateway], topics: tuple[str, ...], content: str
) -> None:
    gateway = build(topics)
    publish(gateway, VALVE, NODE, item("i1", content))
    send(gateway, 2, content)
    assert logged(gateway) == []
    assert len(kept(gateway)) == 2
    assert gateway.events("system") == []


# What cannot be read, or has no room, changes nothing.


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (UNREADABLE, WHY),
        (BROKEN, "invalid JSON container: NaN is not a JSON number"),
        ("<log xmlns='urn:xmpp:eventlog' type='Odd'/>", "log type 'Odd' is not one of XEP-0337"),
    ],
)
def test_unreadable_contents_are_a_bad_request_and_nothing_is_done(
    gateway: Gateway, content: str, why: str
) -> None:
    reply = publish(gateway, VALVE, NODE, item("i1", content))
    assert error_of(reply) == ("modify", "bad-request")
    assert reply.text == why
    assert kept(gateway) == []
    assert logged(gateway) == []
    (event,) = gateway.events("system", "unreadable")
    assert (event.kind, event.source) == ("limit", VALVE.partition("/")[0])


def test_who_may_not_publish_is_told_that_first(gateway: Gateway) -> None:
    create(gateway, PUMP, "jobs/own")
    reply = publish(gateway, VALVE, "jobs/own", item("i1", UNREADABLE))
    assert error_of(reply) == ("auth", "forbidden")


def test_an_unreadable_plain_message_is_refused(gateway: Gateway) -> None:
    reply = send(gateway, 0, UNREADABLE)
    assert error_of(reply) == ("modify", "not-acceptable")
    assert reply.text == WHY
    assert kept(gateway) == []


@pytest.mark.parametrize("level", [1, 2])
def test_an_unreadable_message_with_a_guarantee_is_kept_as_dead(
    gateway: Gateway, level: int
) -> None:
    assert send(gateway, level, UNREADABLE).type == "result"
    (event,) = gateway.events("system", "dead")
    assert event.text == WHY
    assert kept(gateway) == []
    assert logged(gateway) == []


def test_a_payload_that_does_not_fit_the_node_is_not_logged(gateway: Gateway) -> None:
    create(gateway, PUMP, "jobs/typed", publish_model="open", type="urn:example:other")
    send(gateway, 1, WARM, "jobs/typed")
    assert logged(gateway) == []
    assert gateway.events("system")[0].name == "unfit"


def fill(gateway: Gateway, lane: str, count: int) -> None:
    def unit(tx: Transaction) -> None:
        for _ in range(count):
            events.append(tx, lane, NewEvent("reading", VALVE, name="x", value=1.0))

    gateway.tx(unit)


@pytest.mark.parametrize("queue", [False, True])
def test_where_the_log_has_no_room_who_publishes_waits(
    build: Callable[..., Gateway], queue: bool
) -> None:
    gateway = build(unsealed_events=100)
    node = "jobs" if queue else NODE
    if queue:
        create(gateway, PUMP, "jobs", queueing="1", publish_model="open")
    fill(gateway, "readings", 100)
    reply = publish(gateway, VALVE, node, item("i1", WARM))
    assert error_of(reply) == ("wait", "resource-constraint")
    assert reply.text == "unsealed_events is 100"
    for level in (0, 1, 2):
        assert error_of(send(gateway, level, WARM, node)) == ("wait", "resource-constraint")
    assert gateway.count("SELECT count(*) FROM items") == 0
    assert gateway.count("SELECT count(*) FROM queue_items") == 0
    assert gateway.count("SELECT count(*) FROM held") == 0
    assert len(gateway.events("readings")) == 100
    publish(gateway, VALVE, node, item("i2", reading(1)))
    assert gateway.count("SELECT count(*) FROM items") + gateway.count(
        "SELECT count(*) FROM queue_items"
    ) == 1  # fmt: skip


def test_what_is_held_already_waits_for_room_in_the_log(build: Callable[..., Gateway]) -> None:
    gateway = build(unsealed_events=100)
    to = f"{SERVICE}/{NODE}"
    gateway.send(VALVE, assured("m1", embedded(WARM), to))
    fill(gateway, "readings", 100)
    reply = gateway.send(VALVE, deliver("m1", to))
    assert reply is not None
    assert error_of(reply) == ("wait", "resource-constraint")
    assert gateway.count("SELECT count(*) FROM held") == 1
    assert kept(gateway) == []


def test_who_brings_many_at_once_waits_earlier(build: Callable[..., Gateway]) -> None:
    gateway = build(unsealed_events=100)
    fill(gateway, "readings", 50)
    many = json("{" + ",".join(f'"n{n}": {n}' for n in range(10)) + "}")
    assert error_of(publish(gateway, VALVE, NODE, item("i", many))) == (
        "wait", "resource-constraint",
    )  # fmt: skip
    publish(gateway, VALVE, NODE, item("i", json('{"n": 1}')))
    assert kept(gateway) == ["i"]


def test_the_events_of_an_item_are_bounded(gateway: Gateway) -> None:
    many = json("{" + ",".join(f'"n{n}": 1' for n in range(1001)) + "}")
    reply = publish(gateway, VALVE, NODE, item("i", many))
    assert error_of(reply) == ("modify", "bad-request")
    assert reply.text == "invalid JSON container: it has more than 1000 readings"


def test_where_the_item_has_no_room_nothing_is_logged(build: Callable[..., Gateway]) -> None:
    gateway = build(items=1, items_per_node=1)
    create(gateway, PUMP, "plant/x/temp", publish_model="open")
    publish(gateway, VALVE, NODE, item("i1", reading(1)))
    reply = publish(gateway, VALVE, "plant/x/temp", item("i2", WARM))
    assert error_of(reply) == ("wait", "resource-constraint")
    assert logged(gateway) == []
