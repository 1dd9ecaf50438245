from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from edge.engine.dispatch.encoding import encode, encodings, pack, source_of, unpack
from edge.engine.dispatch.hooks import RegistrationError
from edge.engine.store.database import (
    MESSAGE_OVERHEAD,
    MessageBytes,
    SentMessage,
    Transaction,
    estimate_size,
)
from edge.engine.store.events import NewEvent
from edge.features.eventlog.messages import EventNotification
from edge.features.messages.rules import MessageType
from edge.features.messages.service import AccountMessage
from edge.features.outbox.service import DeliveryFailure, DeviceError, FailureReason, FailureReport
from edge.features.presence.rules.subscriptions import SubscriptionType
from edge.features.presence.service.messages import (
    Presence,
    RosterPush,
    SessionPresence,
    SubscriptionStanza,
    UnavailablePresence,
)
from edge.features.presence.store.roster import RosterItem
from edge.features.pubsub.rules.node_config import NodeConfig
from edge.features.pubsub.service.notifications import (
    ItemPublished,
    ItemRetracted,
    NodeConfigured,
    NodeDeleted,
    NodePurged,
    Notification,
    SubscriptionChanged,
)
from edge.features.queues.service.messages import ItemDelivery, LockEnded
from edge.xmpp import PROTOCOL
from tests.helpers.store import Gateway

PUMP = "pump1@gw.example/fw"


REFUSED = DeliveryFailure(
    FailureReason.DEVICE_ERROR, "why", DeviceError("not-allowed", "cancel", "text")
)


class Reading(NamedTuple):
    """A message that no feature declares."""

    value: str
    payload: bytes = b""


class Nested(NamedTuple):
    """A message with another one in it."""

    number: float
    reading: Reading


@pytest.fixture
def gateway(path: Path) -> Iterator[Gateway]:
    gateway = Gateway(path)
    yield gateway
    gateway.close()


def test_each_protocol_has_its_own_encoder(gateway: Gateway) -> None:
    context = gateway.router.context
    context.hooks.encode("other", MessageBytes, lambda _context, message: message.body[1:])
    message = MessageBytes(b"<presence/>")
    assert encode(context, PROTOCOL, message) == b"<presence/>"
    assert encode(context, "other", message) == b"presence/>"


def test_messages_without_an_encoder_are_dropped(gateway: Gateway) -> None:
    gateway.bind(PUMP)
    content = AccountMessage(Reading("1"), PUMP, PUMP, MessageType.CHAT, storable=True)

    def send(tx: Transaction) -> None:
        for message in (Reading("1"), content):
            tx.send(gateway.generation(PUMP), message)

    gateway.tx(send)
    assert [sent.stanza for sent in gateway.sends(PUMP)] == [b"", b""]


PROPERTIES = (("a", "b"), ("c", b"d"))
LATE = DeliveryFailure(FailureReason.EXPIRED, "late")
STORED = (
    Notification(ItemPublished("n", "i", b"<a/>", "p@gw.example"), None, "headline", "s1", 5),
    Notification(
        ItemPublished("n", "i", b"1", None, "text/plain", 9.5, (("a", "b"), ("c", b"d"))), PUMP
    ),
    Notification(ItemRetracted("n", "i"), PUMP),
    Notification(NodePurged("n"), None),
    Notification(NodeDeleted("n", "xmpp:x"), None),
    Notification(NodeConfigured("n", NodeConfig(title="t", roster_groups_allowed=("g",))), None),
    Notification(NodeConfigured("n", None), None),
    Notification(SubscriptionChanged("n", PUMP, "s1", True), PUMP),
    ItemDelivery("n", "i", b"<a/>", "p@gw.example", 2, "s1", PUMP, "id"),
    LockEnded("n", "i", PUMP, "id", is_deleted=True),
    FailureReport(2, "m1", "v@gw.example", PUMP, REFUSED, False, 5, "id"),
    FailureReport(1, None, "v@gw.example", PUMP, LATE, True, None, None),
    EventNotification(PUMP, "id", NewEvent("message", PUMP, value=1.5, tags={"a": "b"}), 5),
)


def test_messages_are_read_from_rows_as_they_were_stored(gateway: Gateway) -> None:
    context = gateway.router.context
    assert {type(message) for message in STORED} == context.hooks.kinds.keys()
    for message in STORED:
        stored = pack(context, message)
        assert stored.kind
        assert unpack(context, stored) == message
        assert encode(context, PROTOCOL, stored) == encode(context, PROTOCOL, message) != b""
        assert list(encodings(context, stored)) == [encode(context, PROTOCOL, message)]


def test_what_a_device_handed_over_is_stored_as_it_is(gateway: Gateway) -> None:
    context = gateway.router.context
    for message in (MessageBytes(b"<message/>"), MessageBytes(b"21.5", "", "text/plain")):
        assert pack(context, message) is message
    assert encode(context, PROTOCOL, MessageBytes(b"<message/>")) == b"<message/>"


def test_a_later_version_may_add_fields_with_defaults(gateway: Gateway) -> None:
    context = gateway.router.context
    context.hooks.store("reading", Reading)
    assert unpack(context, MessageBytes(msgspec.msgpack.encode(["1"]), "reading")) == Reading("1")


def test_a_kind_and_a_type_are_registered_once(gateway: Gateway) -> None:
    hooks = gateway.router.context.hooks
    hooks.store("reading", Reading)
    for kind, message_type in (("reading", Nested), ("another", Reading)):
        with pytest.raises(RegistrationError):
            hooks.store(kind, message_type)


async def test_an_encoder_that_fails_is_reported(gateway: Gateway) -> None:
    reports: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, report: reports.append(report))
    context = gateway.router.context
    context.hooks.encode(PROTOCOL, Reading, lambda _context, message: bytes(int(message.value)))
    assert encode(context, PROTOCOL, Reading("no number")) == b""
    assert [type(report["exception"]) for report in reports] == [ValueError]
    assert encode(context, PROTOCOL, Reading("2")) == bytes(2)
    reports.clear()
    content = AccountMessage(Reading("no number"), PUMP, PUMP, MessageType.CHAT, storable=True)
    assert encode(context, PROTOCOL, content) == b""
    assert [type(report["exception"]) for report in reports] == [ValueError]


def test_the_size_counts_all_texts_and_bytes() -> None:
    assert estimate_size(Reading("1234", bytes(100)), {}) == MESSAGE_OVERHEAD + 104
    assert estimate_size(Nested(1.0, Reading("1234")), {}) == 2 * MESSAGE_OVERHEAD + 4


@pytest.mark.parametrize(
    ("presence", "key"),
    [
        (SessionPresence(b"<presence/>", PUMP, "a@gw.example"), PUMP),
        (SessionPresence(b"<presence/>", PUMP, "a@gw.example", is_error=True), f"{PUMP} error"),
        (UnavailablePresence(PUMP, "a@gw.example"), PUMP),
        (
            SubscriptionStanza(SubscriptionType.SUBSCRIBE, "pump1@gw.example", "a@gw.example"),
            "pump1@gw.example subscribe",
        ),
    ],
)
def test_a_presence_names_its_account_and_what_replaces_it(presence: Presence, key: str) -> None:
    assert source_of(presence) == "pump1@gw.example"
    assert presence.replacement_key == key


@pytest.mark.parametrize(
    "message",
    [
        Reading("1"),
        RosterPush(PUMP, "push", "1", RosterItem("valve@gw.example")),
        AccountMessage(Reading("1"), "pubsub.gw.example", PUMP, MessageType.NORMAL, storable=True),
        SubscriptionStanza(SubscriptionType.UNSUBSCRIBED, "other.example", "pump1@gw.example"),
    ],
)
def test_the_gateways_own_messages_come_from_no_account(message: SentMessage) -> None:
    assert source_of(message) == ""
