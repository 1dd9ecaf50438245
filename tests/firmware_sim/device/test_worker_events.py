from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest

from firmware_sim.device.pubsub import EVENT, ItemEventKind, parse_item_events


def parsed(inner: str) -> ET.Element:
    return ET.fromstring(f"<message xmlns='jabber:client'>{inner}</message>")  # noqa: S314


def message(items: str, beside: str = "") -> ET.Element:
    event = f"<event xmlns='{EVENT}'><items node='jobs'>{items}</items></event>"
    return parsed(f"{event}{beside}")


def test_item_is_read_with_its_payload() -> None:
    (event,) = parse_item_events(message("<item id='j1'><job xmlns='urn:x' n='1'/></item>"))
    found = (event.kind, event.node, event.item, event.redeliveries)
    assert found == (ItemEventKind.PUBLISHED, "jobs", "j1", 0)
    assert event.payload is not None
    assert event.payload.tag == "{urn:x}job"


def test_publisher_is_read() -> None:
    found = parse_item_events(message("<item id='j1' publisher='p1@gw.example'/><item id='j2'/>"))
    assert [each.publisher for each in found] == ["p1@gw.example", ""]


@pytest.mark.parametrize(("count", "times"), [("3", 3), ("x", 1), ("9" * 30, 1)])
def test_redelivery_count_is_read(count: str, times: int) -> None:
    beside = f"<redelivered xmlns='urn:y' times='{count}'/>"
    (event,) = parse_item_events(message("<item id='j1'/>", beside))
    assert (event.payload, event.redeliveries) == (None, times)


@pytest.mark.parametrize("namespace", ["urn:xmpp:pubsub:queueing:0", "urn:xmpp:queueing:0"])
def test_deletion_and_unlock_are_read(namespace: str) -> None:
    found = parse_item_events(message(f"<retract id='j1'/><unlock xmlns='{namespace}' id='j2'/>"))
    assert [(each.kind, each.item) for each in found] == [
        (ItemEventKind.DELETED, "j1"),
        (ItemEventKind.UNLOCKED, "j2"),
    ]


@pytest.mark.parametrize("items", ["", "<item/>", "<other id='j1'/>", "<unlock id='j1'/>"])
def test_other_content_is_ignored(items: str) -> None:
    assert parse_item_events(message(items)) == []
    assert parse_item_events(parsed("<body>x</body>")) == []
