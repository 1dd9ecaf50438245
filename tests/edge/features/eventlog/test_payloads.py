"""Payloads become events: sensor data (XEP-0323), JSON (XEP-0335) and log events (XEP-0337)."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from edge.engine import event_payloads
from edge.engine.events import LOGS, READINGS, NewEvent
from edge.engine.hooks import UnreadablePayload
from edge.features.eventlog.rules.levels import LEVELS
from edge.features.eventlog.xmpp import payloads
from tests.helpers.people import PUMP
from tests.helpers.pubsub import embedded
from tests.helpers.store import DOMAIN, Gateway, acknowledged, assured, deliver

# Sensor data


def decode(fields: str, node: str = "nodeId='boiler1'", when: str = "value='T'") -> list[NewEvent]:
    return decode_whole(f"<node {node}><timestamp {when}>{fields}</timestamp></node>")


def decode_whole(content: str) -> list[NewEvent]:
    xml = f"<fields xmlns='urn:xmpp:iot:sensordata' seqnr='1'>{content}</fields>"
    found = payloads.decode_sensor_data(ElementTree.fromstring(xml))  # noqa: S314 - our own text
    assert {lane for lane, _ in found} == {READINGS}
    return [event for _, event in found]


def test_field_is_a_reading() -> None:
    field = (
        "<numeric name='temperature' momentary='true' automaticReadout='1' value='21.53'"
        " unit='°C' missing='false' writable='true' module='m' stringIds='1'/>"
    )
    tags = {"node": "boiler1", "timestamp": "T", "flags": "momentary automaticReadout"}
    reading = NewEvent("reading", name="temperature", value=21.53, unit="°C", tags=tags)
    assert decode(field) == [reading]
    (event,) = decode(field, node="", when="")
    assert event.tags == {"flags": "momentary automaticReadout"}


def test_all_fields_of_all_nodes_and_timestamps_are_readings() -> None:
    stamp = "<timestamp value='{}'><int name='a' value='1'/><int name='b' value='2'/></timestamp>"
    node = "<node nodeId='{}'>" + stamp.format("T1") + stamp.format("T2") + "</node>"
    assert decode_whole(node.format("n1") + node.format("n2")) == [
        NewEvent("reading", name=name, value=value, tags={"node": n, "timestamp": timestamp})
        for n in ("n1", "n2")
        for timestamp in ("T1", "T2")
        for name, value in (("a", 1.0), ("b", 2.0))
    ]


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        ("numeric", "0", 0.0),
        ("numeric", "-0.5", -0.5),
        ("numeric", "+1.5E-3", 0.0015),
        ("numeric", ".5", 0.5),
        ("numeric", "5.", 5.0),
        ("numeric", " 7 ", 7.0),
        ("numeric", "1.7976931348623157e308", 1.7976931348623157e308),
        ("int", "-12", -12.0),
        ("long", "9223372036854775807", 2.0**63),
        ("boolean", "true", 1.0),
        ("boolean", "1", 1.0),
        ("boolean", "false", 0.0),
        ("boolean", "0", 0.0),
    ],
)
def test_numbers(kind: str, text: str, expected: float) -> None:
    (event,) = decode(f"<{kind} name='x' value='{text}'/>")
    assert event.value == expected


NO_NUMBERS = (
    *("", " ", "nan", "NaN", "inf", "-Infinity", "INF", "1e999", "-1e999", "9" * 5000, "1,5"),
    *("0x10", "1_000", "1 000", "١٢", "true", "--1", "1e", "e5", "."),
)
INVALID = {
    "numeric": NO_NUMBERS,
    "int": (*NO_NUMBERS, "1.5", "1e3", "1."),
    "long": (*NO_NUMBERS, "1.5", "1e3", "1."),
    "boolean": ("True", "yes", "2", "", " true"),
}


@pytest.mark.parametrize(
    ("kind", "text"), [(kind, text) for kind, texts in INVALID.items() for text in texts]
)
def test_invalid_number_or_boolean_is_unreadable(kind: str, text: str) -> None:
    with pytest.raises(UnreadablePayload, match=f"is not a valid {kind}"):
        decode(f"<int name='valid' value='1'/><{kind} name='x' value='{text}'/>")


@pytest.mark.parametrize("kind", sorted(payloads.TEXT_FIELDS))
@pytest.mark.parametrize("text", ["some text", ""])
def test_texts(kind: str, text: str) -> None:
    tags = {"node": "boiler1", "timestamp": "T"}
    found = decode(f"<{kind} name='x' value='{text}' dataType='d'/>")
    assert found == [NewEvent("reading", name="x", text=text, tags=tags)]


@pytest.mark.parametrize(
    ("field", "reason"),
    [
        ("<int value='1'/>", "has no name or no value"),
        ("<int name='' value='1'/>", "has no name or no value"),
        ("<int name='x'/>", "has no name or no value"),
        ("<string name='x'/>", "has no name or no value"),
        ("<float name='x' value='1'/>", "'float' is not a field"),
        ("<int xmlns='urn:x' name='x' value='1'/>", "'int' is not a field"),
        ("<int xmlns='' name='x' value='1'/>", "'int' is not a field"),
    ],
)
def test_invalid_field_is_unreadable(field: str, reason: str) -> None:
    with pytest.raises(UnreadablePayload, match=reason):
        decode(field)


@pytest.mark.parametrize(
    "content",
    ["", "<node/>", "<node><timestamp/></node>", "<timestamp><int name='x'/></timestamp>"],
)
def test_data_without_fields_is_unreadable(content: str) -> None:
    with pytest.raises(UnreadablePayload, match="no field"):
        decode_whole(content)


# Log events


def decode_log(attrs: str = "", content: str = "") -> NewEvent:
    xml = f"<log xmlns='urn:xmpp:eventlog' {attrs}>{content}</log>"
    ((lane, event),) = payloads.decode_log(ElementTree.fromstring(xml))  # noqa: S314 - our own text
    assert lane == LOGS
    return event


def test_complete_log_event() -> None:
    event = decode_log(
        "timestamp='2026-07-01T12:00:00Z' id='LogIn' type='Warning' level='Major' object='PLC'"
        " subject='pump1' facility='plant' module='auth'",
        "<message>It &lt;failed&gt;</message>"
        "<tag name='code' value='7' type='xs:int'/><tag name='empty'/>"
        "<stackTrace>at line 1</stackTrace>",
    )
    assert event._replace(tags=None) == NewEvent(
        "log", name="LogIn", level="Warning", text="It <failed>"
    )
    assert event.tags == {
        "timestamp": "2026-07-01T12:00:00Z",
        "level": "Major",
        "object": "PLC",
        "subject": "pump1",
        "facility": "plant",
        "module": "auth",
        "code": "7",
        "code:type": "xs:int",
        "empty": "",
        "stackTrace": "at line 1",
    }


@pytest.mark.parametrize(
    "content",
    [
        "",
        "<message/>",
        "<tag value='7'/><x:tag xmlns:x='urn:x' name='a' value='b'/><other/>",
        "<x:message xmlns:x='urn:x'>no</x:message>",
    ],
)
def test_empty_log_event_is_informational(content: str) -> None:
    """Tags without a name and foreign elements are ignored."""
    assert decode_log(content=content) == NewEvent("log", level="Informational", tags={})


@pytest.mark.parametrize("type_", LEVELS)
def test_types_of_the_specification(type_: str) -> None:
    assert decode_log(f"type='{type_}'").level == type_
    assert len(LEVELS) == 8


@pytest.mark.parametrize("type_", ["", "warning", "Loud", "Informational "])
def test_unknown_type_is_unreadable(type_: str) -> None:
    with pytest.raises(UnreadablePayload, match="is not one of XEP-0337"):
        decode_log(f"type='{type_}'")


def test_tags_of_the_same_name_are_all_kept() -> None:
    event = decode_log(
        content="<tag name='a' value='1' type='xs:long'/><tag name='b' value='x'/>"
        "<tag name='a' value='2'/><tag name='a' value='1' type='xs:string'/>"
    )
    assert event.tags == {"a": "1", "a:type": "xs:long", "b": "x", "a#2": "2", "a#3": "1"}


def test_stack_trace_may_be_an_attribute_or_an_element() -> None:
    assert decode_log("stackTrace='line 1'").tags == {"stackTrace": "line 1"}
    both = decode_log("stackTrace='line 1'", "<stackTrace>line 1\nline 2</stackTrace>")
    assert both.tags == {"stackTrace": "line 1\nline 2"}


def test_attributes_of_the_event_replace_tags() -> None:
    event = decode_log("timestamp='T' level='Minor'", "<tag name='timestamp' value='forged'/>")
    assert event.tags == {"timestamp": "T", "level": "Minor"}


# JSON containers, at each QoS level


def container(text: str) -> str:
    return f"<json xmlns='urn:xmpp:json:0'>{text}</json>"


def decode_json(text: str) -> list[tuple[str, NewEvent]]:
    return payloads.decode_json(ElementTree.fromstring(container(text)))  # noqa: S314 - our own


def send(gateway: Gateway, level: int, content: str) -> None:
    """Send a message to the gateway at a QoS level."""
    if level == 0:
        gateway.send(PUMP, f"<message to='{DOMAIN}' id='m'>{content}</message>")
    elif level == 1:
        gateway.send(PUMP, acknowledged(embedded(content), DOMAIN))
    else:
        gateway.send(PUMP, assured("m1", embedded(content), DOMAIN))
        gateway.send(PUMP, deliver("m1", DOMAIN))


def test_json_reading_is_an_event() -> None:
    tags = {"offset_s": "-3"}
    assert decode_json('[{"n": "t", "u": "Cel", "v": 21.5, "t": -3}]') == [
        (READINGS, NewEvent("reading", name="t", value=21.5, unit="Cel", tags=tags))
    ]
    assert decode_json(' {"a": "x &lt; y"} ') == [
        (READINGS, NewEvent("reading", name="a", text="x < y", tags={}))
    ]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{}", "invalid JSON container: it has no readings"),
        ('{"a": <b/>}', "invalid JSON container: it has child elements"),
    ],
)
def test_container_without_readings_is_unreadable(text: str, reason: str) -> None:
    with pytest.raises(UnreadablePayload, match=reason):
        decode_json(text)


@pytest.mark.parametrize("level", [0, 1, 2])
def test_message_with_a_container_becomes_events(gateway: Gateway, level: int) -> None:
    send(gateway, level, container('{"watts": 5, "mode": "eco"}'))
    reading = NewEvent("reading", PUMP, qos=level, latency_ms=0, tags={})
    assert [row[3:] for row in gateway.events("readings")] == [
        reading._replace(name="watts", value=5.0),
        reading._replace(name="mode", text="eco"),
    ]


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
