"""Payloads become events: sensor data (XEP-0323), JSON (XEP-0335) and log events (XEP-0337)."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from edge.engine.dispatch.hooks import MAX_REASON, UnreadablePayload
from edge.engine.store.events import LOGS, READINGS, NewEvent
from edge.features.eventlog.rules.levels import LEVELS
from edge.features.eventlog.xmpp import payloads
from edge.routing.xmpp import event_payloads
from tests.helpers.people import PUMP
from tests.helpers.pubsub import embedded
from tests.helpers.store import DOMAIN, Gateway, acknowledged, assured, deliver

TIME = "2026-07-01T12:00:00Z"
LATER = "2026-07-01T12:00:01Z"

# Sensor data


def decode(
    fields: str, node: str = "nodeId='boiler1'", when: str = f"value='{TIME}'"
) -> list[NewEvent]:
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
    tags = {
        "node": "boiler1",
        "timestamp": TIME,
        "flags": "momentary automaticReadout writable",
        "module": "m",
        "stringIds": "1",
    }
    reading = NewEvent("reading", name="temperature", value=21.53, unit="°C", tags=tags)
    assert decode(field) == [reading]
    (event,) = decode(field, node="", when="")
    assert event.tags == {name: tags[name] for name in ("flags", "module", "stringIds")}
    (event,) = decode("<int name='a' value='1'/>", node="nodeId='n' sourceId='s' cacheType='c'")
    assert event.tags == {"node": "n", "sourceId": "s", "cacheType": "c", "timestamp": TIME}


def test_all_fields_of_all_nodes_and_timestamps_are_readings() -> None:
    stamp = "<timestamp value='{}'><int name='a' value='1'/><int name='b' value='2'/></timestamp>"
    node = "<node nodeId='{}'>" + stamp.format(TIME) + stamp.format(LATER) + "</node>"
    assert decode_whole(node.format("n1") + node.format("n2")) == [
        NewEvent("reading", name=name, value=value, tags={"node": n, "timestamp": timestamp})
        for n in ("n1", "n2")
        for timestamp in (TIME, LATER)
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
    tags = {"node": "boiler1", "timestamp": TIME, "dataType": "d"}
    found = decode(f"<{kind} name='x' value='{text}' unit='u' dataType='d'/>")
    assert found == [NewEvent("reading", name="x", text=text, unit="u", tags=tags)]


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
        ("<int name='x' value='1'>1</int>", "text in <int/>"),
        ("<int name='x' value='1'><a/></int>", "field 'x' has content"),
        ("<int name='x' value='1'/>1", "text in <timestamp/>"),
        ("<int name='x' value='1' missing='maybe'/>", "missing of field 'x' is 'maybe', not"),
        ("<int name='x' value='1' colour='red'/>", "colour of field 'x' is 'red', not a boolean"),
    ],
)
def test_invalid_field_is_unreadable(field: str, reason: str) -> None:
    with pytest.raises(UnreadablePayload, match=reason):
        decode(field)


@pytest.mark.parametrize("content", ["", "<node/>", "<node><timestamp/></node>"])
def test_data_without_fields_is_unreadable(content: str) -> None:
    with pytest.raises(UnreadablePayload, match="no field"):
        decode_whole(content)


FIELD = "<timestamp><int name='x' value='1'/></timestamp>"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (FIELD, "<timestamp/> is not an element of <fields/>"),
        (f"<node>{FIELD}<other/></node>", "<other/> is not an element of <node/>"),
        (f"<node>{FIELD}</node>21.5", "text in <fields/>"),
        (f"<node>21.5{FIELD}</node>", "text in <node/>"),
    ],
)
def test_data_that_would_be_lost_is_unreadable(content: str, reason: str) -> None:
    with pytest.raises(UnreadablePayload, match=reason):
        decode_whole(content)


def test_elements_and_attributes_of_other_namespaces_are_ignored() -> None:
    field = FIELD.replace("name", "x:b='2' name")
    node = f"<node xmlns:x='urn:x' x:a='1'>{field}<x:c/></node>"
    assert decode_whole(node + "<c xmlns='urn:x'/>") == [
        NewEvent("reading", name="x", value=1.0, tags={})
    ]


@pytest.mark.parametrize(
    "time",
    [
        "2026-07-01T12:00:00Z",
        "2026-07-01T12:00:00",
        "2026-07-01 12:00:00.123456789+02:00",
        "2024-02-29T23:59:60-1130",
        "0000-02-29T24:00:00Z",
        " 2026-07-01T12:00:00Z ",
    ],
)
def test_times_are_kept_as_they_are(time: str) -> None:
    (event,) = decode("<int name='x' value='1'/>", "", f"value='{time}'")
    assert event.tags == {"timestamp": time} == decode_log(f"timestamp='{time}'").tags
    ((_, reading),) = decode_json(f'{{"x": 1, "timestamp": "{time}"}}')
    assert reading.tags == {"timestamp": time}


@pytest.mark.parametrize(
    "time",
    [
        *("", "yesterday", "2026-07-01", "12:00:00", "1782907200", "2026-7-1T12:00:00Z", "T"),
        *("2026-02-29T12:00:00Z", "2026-13-01T12:00:00Z", "2026-07-01T25:00:00Z"),
        *("2026-07-01T12:60:00Z", "2026-07-01T12:00:00X", "2026-07-01T12:00:00Z x", "٢٠٢٦"),
        *("2026-W01-1T16:24:30Z", "2026-06-07T162430,0Z"),
    ],
)
def test_timestamp_that_is_no_time_is_unreadable(time: str) -> None:
    reason = "is not a time such as 2026-06-07T16:24:30Z"
    with pytest.raises(UnreadablePayload, match=reason):
        decode("<int name='x' value='1'/>", "", f"value='{time}'")
    with pytest.raises(UnreadablePayload, match=reason):
        decode_log(f"timestamp='{time}'")
    with pytest.raises(UnreadablePayload, match=reason):
        decode_json(f'{{"x": 1, "timestamp": "{time}"}}')


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
        "<x:tag xmlns:x='urn:x' name='a' value='b'/><other xmlns=''/>",
        "<x:message xmlns:x='urn:x'>no</x:message>",
    ],
)
def test_empty_log_event_is_informational(content: str) -> None:
    """Elements of other namespaces are ignored."""
    assert decode_log(content=content) == NewEvent("log", level="Informational", tags={})


@pytest.mark.parametrize("type_", LEVELS)
def test_types_of_the_specification(type_: str) -> None:
    assert decode_log(f"type='{type_}'").level == type_
    assert len(LEVELS) == 8


@pytest.mark.parametrize("value", ["", "warning", "Event", "Informational ", "major", "x" * 5000])
@pytest.mark.parametrize(
    ("name", "allowed"),
    [
        (
            "type",
            "Debug, Informational, Notice, Warning, Error, Critical, Alert, Emergency",
        ),
        ("level", "Minor, Medium, Major"),
    ],
)
def test_unknown_type_or_level_is_unreadable(name: str, allowed: str, value: str) -> None:
    reason = f"log {name} {value[:40]!r} is not one of XEP-0337: {allowed}"
    with pytest.raises(UnreadablePayload, match=reason):
        decode_log(f"{name}='{value}'")
    assert len(reason) <= MAX_REASON


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("started", "the text of a log event is in <message/>"),
        ("<message>a</message>b", "the text of a log event is in <message/>"),
        ("<message>a</message><message>b</message>", "more than one <message/>"),
        ("<message>a<b/>c</message>", "more than one <message/>, or elements in it"),
        ("<stackTrace>a</stackTrace><stackTrace/>", "more than one <stackTrace/>"),
        ("<tag value='7'/>", "a <tag/> has no name"),
        ("<tag name='a'>7</tag>", "tag 'a' has content"),
        ("<tag name='a'><value/></tag>", "tag 'a' has content"),
        ("<event/>", "<event/> is not an element of <log/>"),
    ],
)
def test_log_event_that_would_lose_data_is_unreadable(content: str, reason: str) -> None:
    with pytest.raises(UnreadablePayload, match=reason):
        decode_log(content=content)


def test_tags_of_the_same_name_are_all_kept() -> None:
    event = decode_log(
        content="<tag name='a' value='1' type='xs:long'/><tag name='b' value='x'/>"
        "<tag name='a' value='2'/><tag name='a' value='1' type='xs:string'/>"
    )
    assert event.tags == {"a": "1", "a:type": "xs:long", "b": "x", "a#2": "2", "a#3": "1"}


def test_stack_trace_may_be_an_attribute_or_an_element() -> None:
    assert decode_log("stackTrace='line 1'").tags == {"stackTrace": "line 1"}
    both = decode_log("stackTrace='line 1'", "<stackTrace>line 1\nline 2</stackTrace>")
    assert both.tags == {"stackTrace": "line 1\nline 2", "stackTrace#2": "line 1"}


def test_all_attributes_are_kept_and_precede_tags_of_the_same_name() -> None:
    event = decode_log(
        f"timestamp='{TIME}' level='Minor' colour='red'", "<tag name='timestamp' value='forged'/>"
    )
    expected = {"timestamp": TIME, "level": "Minor", "colour": "red", "timestamp#2": "forged"}
    assert event.tags == expected


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
