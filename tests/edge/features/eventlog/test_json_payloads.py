"""JSON containers (XEP-0335): readings become events, at each QoS level."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from edge.engine import event_payloads
from edge.engine.events import NewEvent
from edge.engine.hooks import UnreadablePayload
from edge.features.eventlog.xmpp import payloads
from tests.helpers.people import PUMP
from tests.helpers.pubsub import embedded
from tests.helpers.store import DOMAIN, Gateway, acknowledged, assured, deliver


def container(text: str) -> str:
    return f"<json xmlns='urn:xmpp:json:0'>{text}</json>"


def decode(text: str) -> list[NewEvent]:
    found = payloads.decode_json(ElementTree.fromstring(container(text)))  # noqa: S314 - our own
    assert {lane for lane, _ in found} == {"readings"}
    return [event for _, event in found]


def send(gateway: Gateway, level: int, content: str) -> None:
    """Send a message to the gateway at a QoS level."""
    if level == 0:
        gateway.send(PUMP, f"<message to='{DOMAIN}' id='m'>{content}</message>")
    elif level == 1:
        gateway.send(PUMP, acknowledged(embedded(content), DOMAIN))
    else:
        gateway.send(PUMP, assured("m1", embedded(content), DOMAIN))
        gateway.send(PUMP, deliver("m1", DOMAIN))


def test_reading_is_an_event() -> None:
    assert decode('[{"n": "t", "u": "Cel", "v": 21.5, "t": -3}]') == [
        NewEvent("reading", name="t", value=21.5, unit="Cel", tags={"offset_s": "-3"})
    ]
    assert decode(' {"a": "x &lt; y"} ') == [NewEvent("reading", name="a", text="x < y", tags={})]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{}", "invalid JSON container: it has no readings"),
        ('{"a": <b/>}', "invalid JSON container: it has child elements"),
    ],
)
def test_container_without_readings_is_unreadable(text: str, reason: str) -> None:
    with pytest.raises(UnreadablePayload, match=reason):
        decode(text)


@pytest.mark.parametrize("level", [0, 1, 2])
def test_message_with_a_container_becomes_events_at_each_level(
    gateway: Gateway, level: int
) -> None:
    send(gateway, level, container('{"watts": 5, "mode": "eco"}'))
    rows = gateway.events("readings")
    assert [(row.kind, row.name, row.value, row.text) for row in rows] == [
        ("reading", "watts", 5.0, None),
        ("reading", "mode", None, "eco"),
    ]
    assert {(row.source, row.topic, row.qos, row.latency_ms) for row in rows} == {
        (PUMP, None, level, 0)
    }


def test_unreadable_message_becomes_a_dead_letter(gateway: Gateway) -> None:
    send(gateway, 2, container('{"watts": NaN}'))
    assert gateway.events("readings") == []
    (event,) = gateway.events("system", "dead")
    assert event.text == "invalid JSON container: NaN is not a JSON number"


def test_events_of_a_message_are_limited(gateway: Gateway) -> None:
    half = container("{" + ",".join(f'"n{n}": 1' for n in range(501)) + "}")
    send(gateway, 1, half + half)
    assert gateway.events("readings") == []
    (event,) = gateway.events("system", "dead")
    assert event.text == "the message has more than 1000 events"
    send(gateway, 1, half)
    assert len(gateway.events("readings")) == 501 <= event_payloads.MAX_EVENTS
