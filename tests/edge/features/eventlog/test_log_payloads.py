"""Log events (XEP-0337): each detail of `<log/>` becomes a part of the event."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from edge.engine.events import NewEvent
from edge.engine.hooks import UnreadablePayload
from edge.features.eventlog.rules.levels import LEVELS
from edge.features.eventlog.xmpp import payloads


def decode(attrs: str = "", content: str = "") -> NewEvent:
    xml = f"<log xmlns='urn:xmpp:eventlog' {attrs}>{content}</log>"
    ((lane, event),) = payloads.decode_log(ElementTree.fromstring(xml))  # noqa: S314 - our own text
    assert lane == "logs"
    return event


def test_complete_event() -> None:
    event = decode(
        "timestamp='2026-07-01T12:00:00Z' id='LogIn' type='Warning' level='Major' object='PLC'"
        " subject='pump1' facility='plant' module='auth'",
        "<message>It &lt;failed&gt;</message>"
        "<tag name='code' value='7' type='xs:int'/><tag name='empty'/>"
        "<stackTrace>at line 1</stackTrace>",
    )
    assert event == NewEvent(
        "log",
        name="LogIn",
        level="Warning",
        text="It <failed>",
        tags={
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
        },
    )


def test_empty_event_is_informational() -> None:
    assert decode() == NewEvent("log", level="Informational", tags={})
    assert decode(content="<message/>").text is None


@pytest.mark.parametrize("type_", LEVELS)
def test_types_of_the_specification(type_: str) -> None:
    assert decode(f"type='{type_}'").level == type_
    assert len(LEVELS) == 8


@pytest.mark.parametrize("type_", ["", "warning", "Loud", "Informational "])
def test_unknown_type_is_unreadable(type_: str) -> None:
    with pytest.raises(UnreadablePayload, match="is not one of XEP-0337"):
        decode(f"type='{type_}'")


def test_tags_without_a_name_and_foreign_elements_are_ignored() -> None:
    event = decode(
        content="<tag value='7'/><x:tag xmlns:x='urn:x' name='a' value='b'/><other/>"
        "<x:message xmlns:x='urn:x'>no</x:message>"
    )
    assert event == NewEvent("log", level="Informational", tags={})


def test_tags_of_the_same_name_are_all_kept() -> None:
    event = decode(
        content="<tag name='a' value='1' type='xs:long'/><tag name='b' value='x'/>"
        "<tag name='a' value='2'/><tag name='a' value='1' type='xs:string'/>"
    )
    assert event.tags == {"a": "1", "a:type": "xs:long", "b": "x", "a#2": "2", "a#3": "1"}


def test_stack_trace_may_be_an_attribute_or_an_element() -> None:
    assert decode("stackTrace='line 1'").tags == {"stackTrace": "line 1"}
    both = decode("stackTrace='line 1'", "<stackTrace>line 1\nline 2</stackTrace>")
    assert both.tags == {"stackTrace": "line 1\nline 2"}


def test_attributes_of_the_event_replace_tags() -> None:
    event = decode("timestamp='T' level='Minor'", "<tag name='timestamp' value='forged'/>")
    assert event.tags == {"timestamp": "T", "level": "Minor"}
