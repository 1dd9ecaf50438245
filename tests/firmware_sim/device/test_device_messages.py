from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firmware_sim.device import messages
from firmware_sim.device.device import Device
from firmware_sim.device.errors import MessageRefused

WHEN = datetime(2026, 3, 4, 5, 6, 7, 891_000, tzinfo=timezone(timedelta(hours=2)))


def test_log_event() -> None:
    text = messages.log(
        "Hot", "Too hot.", type_="Warning", tags={"n": 1, "k": 'a"<b'}, timestamp=WHEN
    )
    assert text == (
        '<message xmlns="jabber:client"><log xmlns="urn:xmpp:eventlog"'
        ' timestamp="2026-03-04T03:06:07.891Z" id="Hot" type="Warning"><message>Too hot.</message>'
        '<tag name="n" value="1"/><tag name="k" value="a&quot;&lt;b"/></log></message>'
    )


def test_log_event_defaults() -> None:
    stamp = _parse(messages.log("a", "b"))[0].get("timestamp")
    assert stamp is not None
    assert abs(datetime.fromisoformat(stamp) - datetime.now(UTC)) < timedelta(minutes=1)


@pytest.mark.parametrize(
    ("value", "kind", "written", "unit"),
    [
        (21.5, "numeric", "21.5", "K"),
        (3, "numeric", "3", "K"),
        (True, "boolean", "true", None),
        (False, "boolean", "false", None),
        ("open", "string", "open", None),
    ],
)
def test_sensor_reading(
    value: float | str | bool, kind: str, written: str, unit: str | None
) -> None:
    text = messages.reading("level", value, unit="K", node="tank", timestamp=WHEN)
    fields = _parse(text)[0]
    node = fields[0]
    field = node[0][0]
    namespace = "{urn:xmpp:iot:sensordata}"
    assert (fields.tag, field.tag) == (f"{namespace}fields", f"{namespace}{kind}")
    assert node.get("nodeId") == "tank"
    assert node[0].get("value") == "2026-03-04T03:06:07.891Z"
    found = [field.get(name) for name in ("name", "value", "unit", "momentary")]
    assert found == ["level", written, unit, "true"]


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_infinite_reading_is_refused(value: float) -> None:
    with pytest.raises(MessageRefused, match="finite"):
        messages.reading("level", value)


def test_unknown_event_type_is_refused() -> None:
    with pytest.raises(MessageRefused, match="not an event type"):
        messages.log("a", "b", type_="Bad")


@pytest.mark.parametrize("bad", ["\x00", "\x0b", "\ud800", "\uffff"])
def test_characters_forbidden_by_xml_are_refused(bad: str) -> None:
    with pytest.raises(MessageRefused, match="forbids"):
        messages.log("a", bad)
    with pytest.raises(MessageRefused, match="forbids"):
        messages.reading("a", bad)


def test_callers_message_declares_its_namespaces() -> None:
    text = messages.normalize(
        "<message to='x@y' from='z@y' type='normal' xmlns:p='urn:p'>"
        "<p:a p:b='1' xml:lang='en'>t<!-- no --><c xmlns=''/></p:a>\n<![CDATA[<&]]></message>"
    )
    assert text == (
        '<message xmlns="jabber:client" type="normal">'
        '<a xmlns="urn:p" xmlns:a0="urn:p" a0:b="1" xml:lang="en">t<c xmlns=""/></a>\n&lt;&amp;'
        "</message>"
    )


@pytest.mark.parametrize(
    "bad",
    [
        "", "<message>", "<presence/>", "<message xmlns='urn:other'/>", "<message/><message/>",
        "<!DOCTYPE message><message/>", "<!DOCTYPE m [<!ENTITY a 'b'>]><message>&a;</message>",
    ],
)  # fmt: skip
def test_invalid_message_is_refused(bad: str) -> None:
    with pytest.raises(MessageRefused):
        messages.normalize(bad)


_NAMES = st.text("abcXYZ", min_size=1, max_size=4)
_CHARACTERS = st.characters(
    codec="utf-8", exclude_categories=["Cs", "Cc"], exclude_characters="\ufffe\uffff"
)
_SPECIAL = st.sampled_from(["\t", "\n", "\r", "\r\n", "<&>\"'", "]]>"])
_TEXTS = st.text(_CHARACTERS, max_size=8) | _SPECIAL
_SPACES = st.sampled_from(["", "{urn:a}", "{urn:b}", "{jabber:client}"])
_TAGS = st.tuples(_SPACES, _NAMES).map("".join)


def _element(children: st.SearchStrategy[list[ET.Element]]) -> st.SearchStrategy[ET.Element]:
    def build(
        tag: str, attributes: dict[str, str], text: str, tail: str, inner: list[ET.Element]
    ) -> ET.Element:
        element = ET.Element(tag, attributes)
        element.text, element.tail = text, tail
        element.extend(inner)
        return element

    return st.builds(
        build, _TAGS, st.dictionaries(_TAGS, _TEXTS, max_size=3), _TEXTS, _TEXTS, children
    )


_TREES = st.recursive(
    _element(st.just([])), lambda inner: _element(st.lists(inner, max_size=3)), max_leaves=6
)


@given(_TREES)
def test_written_message_round_trips(tree: ET.Element) -> None:
    root = ET.Element("{jabber:client}message")
    root.append(tree)
    text = messages.write(root)
    again = _parse(text)
    assert _shape(again) == _shape(root)
    assert messages.write(again) == text
    assert messages.normalize(text) == text


def _parse(text: str) -> ET.Element:
    return ET.fromstring(text)  # noqa: S314 - what our own code wrote


def _shape(element: ET.Element) -> object:
    inner = [_shape(child) for child in element]
    return element.tag, dict(element.items()), element.text or "", element.tail or "", inner


@pytest.mark.parametrize("qos", [-1, 3])
async def test_an_invalid_level_lists_the_valid_ones(tmp_path: Path, qos: int) -> None:
    device = Device("a@gw/fw", "secret", outbox_path=tmp_path / "outbox", ca_file="ca.pem")
    valid = f"qos is {qos}; choose one of 0 (at most once), 1 (acknowledged), 2 (assured)"
    with pytest.raises(ValueError, match=re.escape(valid)):
        await device.send_log("Started", "Pump started.", qos=qos)
