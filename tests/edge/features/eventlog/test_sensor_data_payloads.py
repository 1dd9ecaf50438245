"""Sensor data (XEP-0323): each field is a reading, and one invalid field makes all unreadable."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from edge.engine.events import NewEvent
from edge.engine.hooks import UnreadablePayload
from edge.features.eventlog.xmpp import payloads


def decode(fields: str, node: str = "nodeId='boiler1'", when: str = "value='T'") -> list[NewEvent]:
    return decode_whole(f"<node {node}><timestamp {when}>{fields}</timestamp></node>")


def decode_whole(content: str) -> list[NewEvent]:
    xml = f"<fields xmlns='urn:xmpp:iot:sensordata' seqnr='1'>{content}</fields>"
    found = payloads.decode_sensor_data(ElementTree.fromstring(xml))  # noqa: S314 - our own text
    assert {lane for lane, _ in found} == {"readings"}
    return [event for _, event in found]


def value(kind: str, text: str) -> float | None:
    (event,) = decode(f"<{kind} name='x' value='{text}'/>")
    return event.value


def test_field_is_a_reading() -> None:
    field = (
        "<numeric name='temperature' momentary='true' automaticReadout='1' value='21.53'"
        " unit='°C' missing='false' writable='true' module='m' stringIds='1'/>"
    )
    assert decode(field) == [
        NewEvent(
            "reading",
            name="temperature",
            value=21.53,
            unit="°C",
            tags={"node": "boiler1", "timestamp": "T", "flags": "momentary automaticReadout"},
        )
    ]


def test_all_fields_of_all_nodes_and_timestamps_are_readings() -> None:
    stamp = "<timestamp value='{}'><int name='a' value='1'/><int name='b' value='2'/></timestamp>"
    node = "<node nodeId='{}'>" + stamp.format("T1") + stamp.format("T2") + "</node>"
    events = decode_whole(node.format("n1") + node.format("n2"))
    assert [(e.tags or {})["node"] + (e.tags or {})["timestamp"] for e in events] == [
        place for place in ("n1T1", "n1T2", "n2T1", "n2T2") for _ in range(2)
    ]
    assert [(e.name, e.value) for e in events] == [("a", 1.0), ("b", 2.0)] * 4


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
    assert value(kind, text) == expected


@pytest.mark.parametrize("kind", ["numeric", "int", "long"])
@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "nan",
        "NaN",
        "inf",
        "-Infinity",
        "INF",
        "1e999",
        "-1e999",
        "9" * 5000,
        "1,5",
        "0x10",
        "1_000",
        "1 000",
        "١٢",
        "true",
        "--1",
        "1e",
        "e5",
        ".",
    ],
)
def test_invalid_number_is_unreadable(kind: str, text: str) -> None:
    with pytest.raises(UnreadablePayload, match="is not a valid"):
        value(kind, text)


@pytest.mark.parametrize("kind", ["int", "long"])
@pytest.mark.parametrize("text", ["1.5", "1e3", "1."])
def test_integer_has_no_fraction(kind: str, text: str) -> None:
    with pytest.raises(UnreadablePayload, match="is not a valid"):
        value(kind, text)


@pytest.mark.parametrize("text", ["True", "yes", "2", "", " true"])
def test_invalid_boolean_is_unreadable(text: str) -> None:
    with pytest.raises(UnreadablePayload, match="is not a valid boolean"):
        value("boolean", text)


@pytest.mark.parametrize("kind", sorted(payloads.TEXT_FIELDS))
def test_texts(kind: str) -> None:
    (event,) = decode(f"<{kind} name='x' value='some text' dataType='d'/>")
    assert (event.name, event.value, event.text) == ("x", None, "some text")
    assert event.tags == {"node": "boiler1", "timestamp": "T"}
    (event,) = decode(f"<{kind} name='x' value=''/>")
    assert event.text == ""


def test_node_and_timestamp_are_optional() -> None:
    (event,) = decode("<int name='x' value='1'/>", node="", when="")
    assert event.tags == {}


@pytest.mark.parametrize(
    "field",
    ["<int value='1'/>", "<int name='' value='1'/>", "<int name='x'/>", "<string name='x'/>"],
)
def test_field_without_a_name_or_value_is_unreadable(field: str) -> None:
    with pytest.raises(UnreadablePayload, match="has no name or no value"):
        decode(field)


@pytest.mark.parametrize(
    ("field", "named"),
    [
        ("<float name='x' value='1'/>", "'float' is not a field"),
        ("<int xmlns='urn:x' name='x' value='1'/>", "'int' is not a field"),
        ("<int xmlns='' name='x' value='1'/>", "'int' is not a field"),
    ],
)
def test_unknown_field_is_unreadable(field: str, named: str) -> None:
    with pytest.raises(UnreadablePayload, match=named):
        decode(field)


@pytest.mark.parametrize(
    "content",
    ["", "<node/>", "<node><timestamp/></node>", "<timestamp><int name='x'/></timestamp>"],
)
def test_data_without_fields_is_unreadable(content: str) -> None:
    with pytest.raises(UnreadablePayload, match="no field"):
        decode_whole(content)


def test_one_invalid_field_makes_the_message_unreadable() -> None:
    with pytest.raises(UnreadablePayload):
        decode("<int name='x' value='1'/><int name='y' value='nan'/>")
