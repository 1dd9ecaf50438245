from __future__ import annotations

from typing import Any, Final

import pytest
from msgspec import DecodeError, ValidationError, msgpack

from edge.mqtt.batches import decode_batch, encode_batch
from edge.mqtt.packets import (
    MAX_ID,
    V311,
    Auth,
    ConnAck,
    Connect,
    Disconnect,
    Fault,
    PingReq,
    Property,
    PubAck,
    Publish,
    PubRel,
    Subscribe,
    Subscription,
    Unsubscribe,
    Will,
)
from edge.mqtt.reasons import Reason
from tests.helpers.mqtt_packets import PACKETS

LONG: Final = "\u20ac" * 30_000

NOT_PARSED: Final[dict[str, Any]] = {
    "QoS 3": Publish("a", b"", 3, id=1),
    "no identifier": Publish("a", b"", 1),
    "identifier at QoS 0": Publish("a", b"", id=1),
    "DUP at QoS 0": Publish("a", b"", dup=True),
    "identifier too large": PubRel(MAX_ID + 1),
    "identifier 0": PubAck(0),
    "wildcard": Publish("a/#", b""),
    "zero character": Publish("a\0", b""),
    "no topic": Publish("", b""),
    "long topic": Publish(LONG, b""),
    "text as a payload": Publish("a", "b"),  # type: ignore[arg-type]
    "number as a flag": Publish("a", b"", retain=1),  # type: ignore[arg-type]
    "subscription identifier": Publish("a", b"", properties={Property.SUBSCRIPTION_ID: (1,)}),
    "alias 0": Publish("a", b"", properties={Property.TOPIC_ALIAS: 0}),
    "text as an alias": Publish("a", b"", properties={Property.TOPIC_ALIAS: "1"}),
    "property of CONNECT": Publish("a", b"", properties={Property.RECEIVE_MAXIMUM: 1}),
    "number as user properties": Publish("a", b"", properties={Property.USER: 1}),
    "text as user properties": Publish("a", b"", properties={Property.USER: "ab"}),
    "numbers as a user property": Publish("a", b"", properties={Property.USER: [[1, 2]]}),
    "half a user property": Publish("a", b"", properties={Property.USER: [["a"]]}),
    "wildcard to answer to": Publish("a", b"", properties={Property.RESPONSE_TOPIC: "#"}),
    "long property": Publish("a", b"", properties={Property.CONTENT_TYPE: LONG}),
    "unknown property": [3, "a", b"", 0, False, False, 0, {0x7F: 1}],
    "version 6": Connect("a", 6),
    "will without a topic": Connect("a", will=Will("", b"")),
    "password alone": Connect("a", V311, password=b""),
    "reason of another packet": PubAck(1, Reason.BANNED),
    "QoS 3 of a filter": Subscribe(1, (Subscription("a", 3),)),
    "no filter": Unsubscribe(1, ()),
    "data without a method": Auth(Reason.REAUTHENTICATE, {Property.AUTHENTICATION_DATA: b""}),
    "end by a server": Disconnect(Reason.SERVER_SHUTTING_DOWN),
    "packet of a server": ConnAck(False),
    "success as a fault": Fault(Reason.SUCCESS, ""),
    "unknown reason of a fault": [0, 0xEE, ""],
    "too many fields": [12, 0],
    "unknown type": [16],
}


def test_packets_come_back_from_a_batch() -> None:
    items = [sent.packet for sent in PACKETS.values() if sent.from_client]
    assert decode_batch(encode_batch(items)) == items


@pytest.mark.parametrize("item", NOT_PARSED.values(), ids=NOT_PARSED)
def test_what_no_parser_returns_is_refused(item: Any) -> None:
    with pytest.raises(ValidationError):
        decode_batch(encode_batch([PingReq(), item]))


@pytest.mark.parametrize(
    "data",
    {
        "empty": b"",
        "no list": msgpack.encode({}),
        "more bytes": encode_batch([]) + b"\xc0",
        "cut": encode_batch([PubAck(1)])[:-1],
        "no UTF-8": encode_batch([Unsubscribe(1, ("?",))]).replace(b"?", b"\xff"),
        "deep": encode_batch([Publish("a", b"")])[:-1] + b"\x81\x03" + b"\x91" * 5000 + b"\xc0",
        "more items than bytes": b"\xdd\xff\xff\xff\xff\x91\x0c",
    }.values(),
)
def test_other_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(DecodeError):
        decode_batch(data)
