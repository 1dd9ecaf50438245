"""Events of items that are published to nodes that `[uplink] topics` selects."""

from __future__ import annotations

import pytest

from edge.config.options import Readings
from edge.engine.dispatch.hooks import Contents
from edge.engine.store.events import NewEvent
from edge.features.pubsub.service import publishing
from edge.features.pubsub.xmpp.items import read_payload
from tests.helpers.people import PUMP, VALVE, VALVE_BARE, make_available
from tests.helpers.pubsub import (
    NODE,
    SERVICE,
    create,
    embedded,
    error_of,
    item,
    notifications,
    publish,
    published_id,
    reading,
    send_message,
    stored_ids,
    subscribe,
)
from tests.helpers.store import Gateway, MakeGateway, Reply, append, assured, deliver

TOPICS = ("plant/+", "jobs/#")
FIELDS = (
    "<fields xmlns='urn:xmpp:iot:sensordata' seqnr='1'><node nodeId='b1'>"
    "<timestamp value='2026-07-01T12:00:00Z'>{}</timestamp></node></fields>"
)
WARM = FIELDS.format("<numeric name='t' value='21.5' unit='°C'/><boolean name='on' value='true'/>")
UNREADABLE = FIELDS.format("<numeric name='t' value='warm'/>")
LOG = "<log xmlns='urn:xmpp:eventlog' id='Started' type='Notice'><message>It runs.</message></log>"
BROKEN = "<json xmlns='urn:xmpp:json:0'>{\"a\": NaN}</json>"
PROBLEM = "field 't' is not a valid numeric: 'warm'"
ODD = (
    "log type 'Odd' is not one of XEP-0337: Debug, Informational, Notice, Warning, Error, Critical,"
    " Alert, Emergency"
)
FULL = ("wait", "resource-constraint")
LEVELS = pytest.mark.parametrize("level", [0, 1, 2])


def json(text: str) -> str:
    return f"<json xmlns='urn:xmpp:json:0'>{text}</json>"


@pytest.fixture
def gateway(build: MakeGateway) -> Gateway:
    return build(topics=TOPICS)


def send(gateway: Gateway, level: int, content: str, node: str = NODE) -> Reply | None:
    return send_message(gateway, VALVE, level, content, node)


def log_rows(gateway: Gateway) -> list[tuple[str, str | None, str | None, int | None]]:
    """Return the events in the lanes of devices: kind, name, topic and level."""
    rows = [*gateway.events("readings"), *gateway.events("logs")]
    assert {row.source for row in rows} <= {VALVE}
    return [(row.kind, row.name, row.topic, row.qos) for row in rows]


def test_published_sensor_data_becomes_readings(gateway: Gateway) -> None:
    subscribe(gateway, PUMP, NODE)
    make_available(gateway, PUMP)
    assert published_id(publish(gateway, VALVE, NODE, item("i1", WARM))) == "i1"
    warm, on = gateway.events("readings")
    assert (warm.name, warm.value, warm.unit, on.name, on.value) == ("t", 21.5, "°C", "on", 1.0)
    for one in (warm, on):
        assert (one.topic, one.source) == (NODE, VALVE)
        assert (one.qos, one.latency_ms) == (None, None)
        assert one.tags == {"node": "b1", "timestamp": "2026-07-01T12:00:00Z"}
    assert stored_ids(gateway, PUMP) == ["i1"]
    assert len(notifications(gateway, PUMP)) == 1


@LEVELS
def test_events_of_a_message_have_its_level(gateway: Gateway, level: int) -> None:
    send(gateway, level, f"<item xmlns='http://jabber.org/protocol/pubsub' id='i'>{WARM}</item>")
    assert log_rows(gateway) == [("reading", "t", NODE, level), ("reading", "on", NODE, level)]
    assert stored_ids(gateway, PUMP) == ["i"]


def test_events_of_an_assured_message_have_its_time_in_custody_as_latency(gateway: Gateway) -> None:
    to = f"{SERVICE}/{NODE}"
    gateway.send(VALVE, assured("m1", embedded(WARM), to))
    assert log_rows(gateway) == []
    gateway.clock.service += 2.5
    for _ in range(2):  # the second is a repeat
        assert gateway.ask(VALVE, deliver("m1", to)).error is None
    assert [row.latency_ms for row in gateway.events("readings")] == [2500, 2500]
    assert len(stored_ids(gateway, PUMP)) == 1


def test_items_of_queues_and_items_that_are_not_stored_become_events(gateway: Gateway) -> None:
    create(gateway, PUMP, "jobs", queueing="1", publish_model="open")
    create(gateway, PUMP, "plant/x", publish_model="open", persist_items="0")
    publish(gateway, VALVE, "jobs", item("i1", WARM))
    publish(gateway, VALVE, "plant/x", item("i1", WARM))
    send(gateway, 2, LOG, "jobs")
    *readings, log = log_rows(gateway)
    assert [row[2] for row in readings] == ["jobs", "jobs", "plant/x", "plant/x"]
    assert log == ("log", "Started", "jobs", 2)
    assert gateway.count("SELECT count(*) FROM queue_items") == 2


def test_items_without_events_are_published(gateway: Gateway) -> None:
    publish(gateway, VALVE, NODE, item("i1", reading(5)))
    send(gateway, 1, reading(6))
    signal = {"persist_items": "0", "deliver_payloads": "0"}
    create(gateway, PUMP, "jobs/note", publish_model="open", **signal)
    publish(gateway, VALVE, "jobs/note")
    assert log_rows(gateway) == []
    assert len(stored_ids(gateway, PUMP)) == 2


@pytest.mark.parametrize("topics", [(), ("plant",), (f"{NODE}/x", "$x/#")])
@pytest.mark.parametrize("content", [WARM, UNREADABLE, BROKEN])
def test_other_nodes_are_not_read(
    build: MakeGateway, topics: tuple[str, ...], content: str
) -> None:
    gateway = build(topics=topics)
    publish(gateway, VALVE, NODE, item("i1", content))
    send(gateway, 2, content)
    assert log_rows(gateway) == []
    assert len(stored_ids(gateway, PUMP)) == 2
    assert gateway.events("system") == []


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (UNREADABLE, PROBLEM),
        (BROKEN, "invalid JSON container: NaN is not a JSON number"),
        ("<log xmlns='urn:xmpp:eventlog' type='Odd'/>", ODD),
    ],
)
def test_an_unreadable_payload_is_refused(gateway: Gateway, content: str, problem: str) -> None:
    reply = publish(gateway, VALVE, NODE, item("i1", content))
    assert (reply.error, reply.text) == (("modify", "bad-request"), problem)
    assert stored_ids(gateway, PUMP) == []
    assert log_rows(gateway) == []
    (event,) = gateway.events("system", "unreadable")
    assert (event.kind, event.source) == ("limit", VALVE_BARE)


def test_the_right_to_publish_is_checked_before_the_payload(gateway: Gateway) -> None:
    create(gateway, PUMP, "jobs/own")
    found = publish(gateway, VALVE, "jobs/own", item("i1", UNREADABLE)).error
    assert found == ("auth", "forbidden")


@LEVELS
def test_an_unreadable_message_is_refused_or_dead_lettered(gateway: Gateway, level: int) -> None:
    reply = send(gateway, level, UNREADABLE)
    assert reply is not None
    if level == 0:
        assert (reply.error, reply.text) == (("modify", "not-acceptable"), PROBLEM)
    else:
        assert reply.type == "result"
        assert [event.text for event in gateway.events("system", "dead")] == [PROBLEM]
    assert stored_ids(gateway, PUMP) == []
    assert log_rows(gateway) == []


def test_a_payload_that_does_not_fit_the_node_is_not_logged(gateway: Gateway) -> None:
    create(gateway, PUMP, "jobs/typed", publish_model="open", type="urn:example:other")
    send(gateway, 1, WARM, "jobs/typed")
    assert log_rows(gateway) == []
    assert [event.name for event in gateway.events("system")] == ["dead", "unfit"]


def with_readings(gateway: Gateway, count: int) -> Gateway:
    event = NewEvent("reading", VALVE, name="x", value=1.0)
    gateway.tx(lambda tx: append(tx, "readings", count, event))
    return gateway


@pytest.mark.parametrize(("node", "table"), [(NODE, "items"), ("jobs", "queue_items")])
def test_a_full_event_log_refuses_items_with_events(
    build: MakeGateway, node: str, table: str
) -> None:
    gateway = with_readings(build(topics=TOPICS, unsealed_events=100), 100)
    create(gateway, PUMP, "jobs", queueing="1", publish_model="open")
    reply = publish(gateway, VALVE, node, item("i1", WARM))
    assert (reply.error, reply.text) == (FULL, "the limit unsealed_events = 100 is reached")
    for level in (0, 1, 2):
        assert error_of(send(gateway, level, WARM, node)) == FULL
    for one in ("items", "queue_items", "held"):
        assert gateway.count(f"SELECT count(*) FROM {one}") == 0  # noqa: S608
    assert len(gateway.events("readings")) == 100
    publish(gateway, VALVE, node, item("i2", reading(1)))
    assert gateway.count(f"SELECT count(*) FROM {table}") == 1  # noqa: S608


def test_an_item_with_many_events_leaves_capacity_for_others(build: MakeGateway) -> None:
    gateway = with_readings(build(topics=TOPICS, unsealed_events=100), 50)
    many = json("{" + ",".join(f'"n{n}": {n}' for n in range(10)) + "}")
    assert publish(gateway, VALVE, NODE, item("i", many)).error == FULL
    publish(gateway, VALVE, NODE, item("i", json('{"n": {"m": 1}}')))
    assert stored_ids(gateway, PUMP) == ["i"]
    assert log_rows(gateway)[-1] == ("reading", "n.m", NODE, None)


def test_an_item_above_a_limit_adds_no_events(build: MakeGateway) -> None:
    gateway = build(topics=TOPICS, items=1, items_per_node=1)
    create(gateway, PUMP, "plant/x", publish_model="open")
    publish(gateway, VALVE, NODE, item("i1", reading(1)))
    assert publish(gateway, VALVE, "plant/x", item("i2", WARM)).error == FULL
    assert log_rows(gateway) == []


@pytest.mark.parametrize(
    "text",
    ['{"t": 21.5, "motor": {"on": true}}', '[{"n":"t","v":1}]', "3", '{"a": NaN}', "\ud7ff{"],
)
@pytest.mark.parametrize(
    "content_type", ["application/json", "application/senml+json; charset=utf-8"]
)
def test_json_gives_the_same_events_in_every_protocol(
    build: MakeGateway, text: str, content_type: str
) -> None:
    context = build(topics=TOPICS).router.context
    container = read_payload(context, NODE, f"<json xmlns='urn:xmpp:json:0'>{text}</json>".encode())
    found = publishing.read_events(context, NODE, text.encode(), content_type)
    assert found.events == container.events
    assert found.unreadable == container.unreadable.replace("JSON container", "JSON")
    assert bool(found.events) != bool(found.unreadable)


def test_a_rule_reads_json_containers_of_its_nodes_only(build: MakeGateway) -> None:
    rule = Readings(filter="plant/+", fields=["t"], name="%2.%f", unit="Cel")
    gateway = build(topics=["jobs"], readings=[rule])
    create(gateway, PUMP, "jobs", publish_model="open")
    content = json('{"t": 21.5, "lost": null, "on": true}')
    publish(gateway, VALVE, NODE, item("i1", content))
    send(gateway, 1, content)
    send(gateway, 2, json("7"), NODE)
    assert publish(gateway, VALVE, "jobs", item("i2", json('{"a": 1}'))).error is None
    found = [(one.name, one.value, one.unit, one.topic) for one in gateway.events("readings")]
    name = f"{NODE.partition('/')[2]}.t"
    assert found == [(name, 21.5, "Cel", NODE)] * 2 + [("a", 1.0, None, "jobs")]
    publish(gateway, VALVE, NODE, item("i3", WARM))
    assert [one.name for one in gateway.events("readings")[3:]] == ["t", "on"]


@pytest.mark.parametrize("content", [json("ON"), json("5<x/>"), UNREADABLE])
def test_xml_without_readings_is_refused_although_a_rule_matches(
    build: MakeGateway, content: str
) -> None:
    gateway = build(readings=[Readings(filter="plant/+")])
    assert publish(gateway, VALVE, NODE, item("i1", content)).error == ("modify", "bad-request")
    assert stored_ids(gateway, PUMP) == []
    assert [event.name for event in gateway.events("system")] == ["unreadable"]


def test_bytes_that_are_no_json_give_no_events(build: MakeGateway) -> None:
    context = build(topics=TOPICS).router.context
    unreadable = publishing.read_events(context, NODE, b"\xff", "application/json").unreadable
    assert unreadable == "invalid JSON: it is not UTF-8"
    assert publishing.read_events(context, NODE, b"\xff", "image/png") == Contents([])
    assert publishing.read_events(context, "other/node", b"\xff", "application/json") == Contents(
        []
    )
