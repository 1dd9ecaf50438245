"""The bounds of a connection's memory: the size of requests, and the topics of aliases."""

from __future__ import annotations

from typing import Any

import pytest

from edge.mqtt.packets import (
    Property,
    PubAck,
    Publish,
    PubRel,
    Subscribe,
    Subscription,
    Unsubscribe,
)
from edge.server.mqtt.aliases import ReceivedAliases, SentAliases, UnknownAlias
from edge.server.mqtt.session import OVERHEAD, _size

TEXTS: dict[Property, Any] = {
    Property.CONTENT_TYPE: "abc",
    Property.CORRELATION_DATA: b"de",
    Property.MESSAGE_EXPIRY: 9,
    Property.USER: (("n", "value"), ("", "")),
}


@pytest.mark.parametrize(
    ("packet", "size"),
    [
        (Publish("topic", b"payload"), 12),
        (Publish("topic", b"payload", properties=TEXTS), 12 + 5 + 6 + 2 * OVERHEAD),
        (Subscribe(1, (Subscription("a/b"), Subscription("#"))), 4 + 2 * OVERHEAD),
        (Subscribe(1, (Subscription("#"),), {Property.SUBSCRIPTION_ID: (7,)}), 1 + OVERHEAD),
        (Unsubscribe(1, ("a/b",)), 3 + OVERHEAD),
        (PubAck(1), 0),
        (PubAck(1, 0x80, {Property.REASON_STRING: "why"}), 3),
    ],
)
def test_a_request_counts_what_it_holds(packet: Any, size: int) -> None:
    assert _size(packet) == size


def aliased(topic: str, alias: int = 1) -> Publish:
    return Publish(topic, b"", properties={Property.TOPIC_ALIAS: alias})


def test_an_alias_stands_for_its_last_topic() -> None:
    aliases = ReceivedAliases(max_bytes=4)
    for topic in ("a", "b", "caf\u00e9"[:3]):
        assert aliases.resolve(aliased(topic)).topic == topic
        assert aliases.resolve(aliased("")).topic == topic


@pytest.mark.parametrize("topic", ["five!", "\u00e9\u00e9\u00e9"])
def test_the_alias_of_a_topic_that_is_too_long_stands_for_nothing(topic: str) -> None:
    aliases = ReceivedAliases(max_bytes=4)
    assert aliases.resolve(aliased("a")).topic == "a"
    assert aliases.resolve(aliased(topic)).topic == topic
    with pytest.raises(UnknownAlias):
        aliases.resolve(aliased(""))


def test_an_alias_above_the_maximum_is_refused() -> None:
    with pytest.raises(UnknownAlias):
        ReceivedAliases(max_bytes=4).resolve(aliased("a", 17))


def test_an_alias_is_used_only_if_the_client_was_sent_it() -> None:
    aliases = SentAliases(most=4)
    first = aliases.shorten(Publish("a", b""))
    aliases.shorten(PubRel(1))  # the publication was too large, and this is sent
    aliases.confirm()
    assert aliases.shorten(Publish("a", b"")) == first
    aliases.confirm()
    assert aliases.shorten(Publish("a", b"")) == aliased("", 1)
