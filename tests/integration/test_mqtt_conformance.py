"""The statements of MQTT's specifications that concern a server, over the wire.

docs/reference/mqtt-conformance.md names the tests of each statement.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from msgspec.structs import replace

from edge.mqtt.packets import (
    NO_PROPERTIES,
    V5,
    V311,
    Disconnect,
    Packet,
    PingReq,
    PingResp,
    Properties,
    Property,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
    SubAck,
    Subscribe,
    Subscription,
    UnsubAck,
    Unsubscribe,
    Will,
)
from edge.mqtt.reasons import Reason
from tests.helpers.gateway import Gateway
from tests.helpers.mqtt import MqttClient
from tests.helpers.processes import Process

VERSIONS = pytest.mark.parametrize("version", [V311, V5])


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Gateway:
    folder = tmp_path_factory.mktemp("gateway")
    topics = ["#", "$own/#"]
    gateway = Gateway(
        folder,
        "pump1",
        "meter1",
        auto_create=topics,
        require_tls=False,
        held_messages_per_source=5,
    )
    gateway.configure_section("mqtt", listen="127.0.0.1:0", require_tls=False)
    return gateway


async def pump(process: Process, client_id: str = "fw", **connect: Any) -> MqttClient:
    return await MqttClient.connect(process, "pump1", client_id, **connect)


async def meter(process: Process, client_id: str = "fw", **connect: Any) -> MqttClient:
    return await MqttClient.connect(process, "meter1", client_id, **connect)


async def publishes(client: MqttClient, count: int) -> list[Publish]:
    """Receive messages without answering them."""
    found = [await client.receive() for _ in range(count)]
    messages = [one for one in found if isinstance(one, Publish)]
    assert len(messages) == count, found
    return messages


# Topics and filters


EXACT = (
    " ",
    " a b ",
    "/",
    "//",
    "/a",
    "a/",
    "a",
    "A",
    "\uff41",  # full width
    "\u00e5",  # composed,
    "a\u030a",  # and decomposed
    "\ufeffa",
    "a\u00ad",
    "\u0378",  # unassigned
    "\ue000",
    "\U0001f9ea\u200d\U0001f52c",
    "pump1@gw.example/x",
    "<&\"'>",
    "$own/a",
)


@VERSIONS
async def test_topics_are_exact_texts(process: Process, version: int) -> None:
    async with (
        await pump(process, version=version) as one,
        await meter(process, version=version) as other,
    ):
        for topic in EXACT:
            prefix = "" if topic.startswith("$") else f"exact{version}/"
            name = prefix + topic
            assert await other.subscribe(name, qos=2) == (2,)
        for qos, topic in product((0, 1, 2), EXACT):
            prefix = "" if topic.startswith("$") else f"exact{version}/"
            await one.publish(prefix + topic, topic.encode(), qos)
            found = await other.take()
            assert (found.topic, found.payload) == (prefix + topic, topic.encode())
            assert found.qos == qos
        await other.sync()


REFUSED_TOPICS = {
    "a\tb": Reason.TOPIC_NAME_INVALID,
    "a\x7f": Reason.TOPIC_NAME_INVALID,
    "a\ufdd0": Reason.TOPIC_NAME_INVALID,
    "a\uffff": Reason.TOPIC_NAME_INVALID,
    "x" * 257: Reason.TOPIC_NAME_INVALID,
    "/" * 32: Reason.TOPIC_NAME_INVALID,
    "$share": Reason.NOT_AUTHORIZED,
    "$SYS/broker/load": Reason.NOT_AUTHORIZED,
    "$fieldpost/status": Reason.NOT_AUTHORIZED,
    "$other/a": Reason.NOT_AUTHORIZED,
}


@pytest.mark.parametrize("topic", REFUSED_TOPICS)
async def test_a_topic_that_cannot_be_published_to_is_refused(process: Process, topic: str) -> None:
    reason = REFUSED_TOPICS[topic]
    async with await pump(process) as client:
        for qos, answer in ((1, PubAck), (2, PubRec)):
            found = await client.ask(Publish(topic, b"x", qos, id=7))
            assert isinstance(found, answer)
            assert (found.id, found.reason) == (7, reason)
        await client.sync(Publish(topic, b"x"))
    async with await pump(process, version=V311) as client:  # it cannot be told
        assert await client.ask(Publish(topic, b"x", 1, id=7)) == PubAck(7)
        assert await client.ask(Publish(topic, b"x", 2, id=8)) == PubRec(8)
        assert await client.ask(PubRel(8)) == PubComp(8)


REFUSED_FILTERS = (
    "",
    "a#",
    "#/a",
    "a/#/b",
    "a+",
    "a/+b",
    "a\x01",
    "a\uffff",
    "x" * 257,
    "$share/n",
    "$share//a",
    "$share/n/",
    "$share/n+/a",
    "$share/n#/a",
    "$share/n/a#",
)


@pytest.mark.parametrize("filter", REFUSED_FILTERS)
async def test_an_invalid_filter_is_refused(process: Process, filter: str) -> None:
    async with await pump(process) as client:
        assert await client.subscribe(filter) == (Reason.TOPIC_FILTER_INVALID,)
        answer = await client.ask(Unsubscribe(9, (filter,)))
        assert answer == UnsubAck(9, (Reason.TOPIC_FILTER_INVALID,))
    async with await pump(process, version=V311) as client:
        assert await client.subscribe(filter) == (Reason.UNSPECIFIED_ERROR,)
        assert await client.ask(Unsubscribe(9, (filter,))) == UnsubAck(9, ())


async def test_a_wildcard_at_the_front_does_not_match_a_dollar(process: Process) -> None:
    async with await pump(process) as one, await meter(process) as other:
        await other.subscribe("#", "+/a", "+/#", Subscription("$own/#"))
        await one.publish("$own/a", b"x", 1)
        assert (await other.take()).topic == "$own/a"
        await other.sync()


# Sessions


KEEP: dict[int, dict[str, Any]] = {
    V311: {"version": V311, "clean": False},
    V5: {"version": V5, "clean": False, "properties": {Property.SESSION_EXPIRY: 60}},
}


@VERSIONS
async def test_a_session_is_kept_or_clean(process: Process, version: int) -> None:
    """A clean start ends the earlier session with its subscriptions; another one resumes it."""
    steps = (
        ({"version": version}, False),
        (KEEP[version], False),
        (KEEP[version], True),
        ({"version": version}, False),
        (KEEP[version], False),
    )
    for connect, is_present in steps:
        async with await pump(process, "kept", **connect) as one:
            assert one.connack.session_present is is_present
            assert one.connack.reason == Reason.SUCCESS
            assert Property.AUTHENTICATION_METHOD not in one.connack.properties
            if is_present:
                await one.publish("session/1", b"x", 1)
                assert (await one.take()).qos == 1
                await one.sync()
            else:
                await one.sync(Publish("session/1", b"x"))
                await one.subscribe("session/#", qos=1)
    async with await pump(process, "kept", version=version) as one:
        await one.sync()


# Messages to the gateway


@VERSIONS
async def test_an_identifier_may_be_used_again(process: Process, version: int) -> None:
    """A message is new after PUBACK, after PUBCOMP, and after a PUBREC that refuses."""
    async with (
        await pump(process, version=version) as one,
        await meter(process, version=version) as other,
    ):
        await other.subscribe("again/#")
        for text in (b"1", b"2"):
            await one.publish("again/1", text, 1, id=3)
            assert (await other.take()).payload == text
        for text in (b"3", b"4"):
            await one.publish("again/2", text, 2, id=3)
            assert (await other.take()).payload == text
        if version == V5:
            refused = await one.ask(Publish("$SYS/a", b"x", 2, id=3))
            assert isinstance(refused, PubRec)
            assert refused.reason == Reason.NOT_AUTHORIZED
            await one.publish("again/2", b"5", 2, id=3)
            assert (await other.take()).payload == b"5"
        await one.publish("again/1", b"6", 1, id=3)
        duplicate = Publish("again/1", b"6", 1, dup=True, id=3)
        assert await one.ask(duplicate) == PubAck(3)
        assert [(await other.take()).payload for _ in range(2)] == [b"6", b"6"]
        await other.sync()


@VERSIONS
async def test_a_client_that_lost_its_state_may_use_identifiers_again(
    process: Process, version: int
) -> None:
    """Another message replaces the one that its identifier had and that was not released."""
    async with (
        await pump(process, version=version) as one,
        await meter(process, version=version) as other,
    ):
        await other.subscribe("lost/#")
        for topic, payload in (("lost/1", b"a"), ("lost/1", b"b"), ("lost/2", b"b")):
            assert await one.ask(Publish(topic, payload, 2, id=3)) == PubRec(3)
        assert await one.ask(PubRel(3)) == PubComp(3)
        assert (await other.take()).topic == "lost/2"
        await other.sync()


@VERSIONS
async def test_an_unknown_identifier_is_answered(process: Process, version: int) -> None:
    missing = Reason.PACKET_IDENTIFIER_NOT_FOUND if version == V5 else 0
    async with await pump(process, version=version) as client:
        assert await client.ask(PubRel(901)) == PubComp(901, missing)
        assert await client.ask(PubRec(902)) == PubRel(902, missing)
        await client.sync(PubAck(903), PubComp(904))


async def test_a_client_of_3_1_1_over_a_limit_is_disconnected(process: Process) -> None:
    """It keeps its message and sends it again; no other client is affected."""
    async with await meter(process) as other, await pump(process, version=V311) as one:
        for id in range(1, 6):
            assert await one.ask(Publish("limit/1", b"x", 2, id=id)) == PubRec(id)
        assert await one.ask(Publish("limit/1", b"x", 2, id=6)) is None
        await other.publish("limit/2", b"y", 2)
    async with await pump(process) as one, await pump(process, "second") as second:
        for id in range(1, 6):
            client = one if id < 4 else second
            assert await client.ask(Publish("limit/1", b"x", 2, id=id)) == PubRec(id)
        refused = await one.ask(Publish("limit/1", b"x", 2, id=6))
        assert isinstance(refused, PubRec)
        assert refused.reason == Reason.QUOTA_EXCEEDED
        await one.sync()


# Messages from the gateway


@VERSIONS
@pytest.mark.parametrize("published", [0, 1, 2])
@pytest.mark.parametrize("granted", [0, 1, 2])
async def test_the_lower_level_applies(
    process: Process, version: int, published: int, granted: int
) -> None:
    topic = f"lower{version}/{published}/{granted}"
    async with (
        await pump(process, version=version) as one,
        await meter(process, version=version) as other,
    ):
        assert await other.subscribe(topic, qos=granted) == (granted,)
        packet = Publish(topic, b"x", published, id=5 if published else 0)
        if published:
            await one.publish(topic, b"x", published)
            duplicate = replace(packet, dup=True, id=6)
            assert isinstance(await one.ask(duplicate), PubAck | PubRec)
            if published == 2:
                assert await one.ask(PubRel(6)) == PubComp(6)
        else:
            await one.sync(packet)
        for _ in range(2 if published else 1):
            found = await other.take()
            assert found.qos == min(published, granted)
            assert not found.dup
            assert not found.retain
            assert bool(found.id) == bool(found.qos)
        await other.sync()


@VERSIONS
async def test_unfinished_messages_are_sent_again_after_a_reconnection(
    process: Process, version: int
) -> None:
    keep, name = KEEP[version], f"again{version}"
    async with await pump(process) as one, await meter(process, name, **keep) as other:
        await other.subscribe(f"{name}/#", qos=2)
        for number, qos in enumerate((1, 2, 2, 1)):
            await one.publish(f"{name}/a", b"%d" % number, qos)
        first = await publishes(other, 4)
        assert [(found.payload, found.qos) for found in first] == [
            (b"0", 1),
            (b"1", 2),
            (b"2", 2),
            (b"3", 1),
        ]
        assert len({found.id for found in first}) == 4
        assert not any(found.dup for found in first)
        await other.sync()  # nothing is repeated on the connection
        assert await other.ask(PubRec(first[1].id)) == PubRel(first[1].id)
    async with await meter(process, name, **keep) as other:
        assert other.connack.session_present
        found = [await other.receive() for _ in range(4)]
        assert found.pop(found.index(PubRel(first[1].id)))
        assert found == [replace(first[number], dup=True) for number in (0, 2, 3)]
        await other.sync(PubAck(first[0].id), PubAck(first[3].id), PubComp(first[1].id))
        assert await other.ask(PubRec(first[2].id)) == PubRel(first[2].id)
        await other.sync(PubComp(first[2].id))
    async with await meter(process, name, **keep) as other:
        await other.sync()
    async with await meter(process, name, version=version) as other:
        assert not other.connack.session_present


async def test_a_message_that_its_recipient_refuses_is_finished(process: Process) -> None:
    keep = KEEP[V5]
    async with await pump(process) as one, await meter(process, "refuses", **keep) as other:
        await other.subscribe("refused/#", qos=2)
        await one.publish("refused/1", b"a", 1)
        await one.publish("refused/2", b"b", 2)
        first, second = await publishes(other, 2)
        await other.sync(
            PubAck(first.id, Reason.QUOTA_EXCEEDED), PubRec(second.id, Reason.UNSPECIFIED_ERROR)
        )
    async with await meter(process, "refuses", **keep) as other:
        await other.sync()


@VERSIONS
@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_messages_of_a_topic_keep_their_order(
    process: Process, version: int, qos: int
) -> None:
    texts = [b"%d" % number for number in range(30)]
    async with (
        await pump(process, version=version) as one,
        await meter(process, version=version) as other,
    ):
        await other.subscribe("order/#", qos=qos)
        for text in texts:
            await one.publish("order/1", text, qos)
        assert [(await other.take()).payload for _ in texts] == texts
        await other.sync()


async def test_the_receive_maximum_delays_only_messages(process: Process) -> None:
    one_at_a_time = {Property.RECEIVE_MAXIMUM: 1}
    async with await pump(process) as one, await meter(process, properties=one_at_a_time) as other:
        await other.subscribe("quota/#", qos=1)
        await one.publish("quota/1", b"a", 1)
        await one.publish("quota/1", b"b", 1)
        (first,) = await publishes(other, 1)
        await other.sync()
        assert await other.subscribe("unlimited") == (0,)
        await one.publish("unlimited", b"c")
        assert [found.qos for found in await publishes(other, 1)] == [0]
        other.send(PubAck(first.id))
        assert (await other.take()).payload == b"b"
        await other.sync()


async def test_properties_reach_subscribers_unaltered(process: Process) -> None:
    properties: Properties = {
        Property.PAYLOAD_FORMAT: 1,
        Property.CONTENT_TYPE: "text/x-\u00fc",
        Property.RESPONSE_TOPIC: "answers/a b",
        Property.CORRELATION_DATA: b"\0\xff",
        Property.USER: (("b", "1"), ("a", "2"), ("b", ""), ("", "3")),
    }
    async with await pump(process) as one, await meter(process) as other:
        await other.subscribe("properties/#", qos=2)
        for qos in (0, 1, 2):
            await one.publish("properties/1", b"x", qos, properties=properties)
            assert (await other.take()).properties == properties
        expires = {**properties, Property.MESSAGE_EXPIRY: 1000}
        await one.publish("properties/1", b"x", 1, retain=True, properties=expires)
        assert (await other.take()).properties == expires
        await other.subscribe("properties/+", qos=2)
        found = await other.take()
        left = found.properties[Property.MESSAGE_EXPIRY]
        assert 0 < left <= 1000
        assert found.properties == {**expires, Property.MESSAGE_EXPIRY: left}
        await one.publish("properties/1", b"", 1, retain=True)
        await other.take()
    async with await meter(process, version=V311) as other:
        await other.subscribe("properties/#")
        async with await pump(process) as one:
            await one.publish("properties/1", b"x", 1, properties=properties)
        assert await other.take() == Publish("properties/1", b"x")


async def test_an_answer_is_as_short_as_the_client_accepts(process: Process) -> None:
    async with await pump(process) as client:
        found = await client.ask(Publish("$SYS/a", b"x", 1, id=7))
        assert isinstance(found, PubAck)
        assert found.properties[Property.REASON_STRING]
    async with await pump(process, properties={Property.MAXIMUM_PACKET_SIZE: 24}) as client:
        for qos, answer in ((1, PubAck), (2, PubRec)):
            refused = answer(7, Reason.NOT_AUTHORIZED)
            assert await client.ask(Publish("$SYS/a", b"x", qos, id=7)) == refused


# Retained messages


@VERSIONS
async def test_a_retained_message_is_replaced_and_removed(process: Process, version: int) -> None:
    topic = f"kept{version}/1"
    async with await pump(process, version=version) as one:

        async def kept() -> list[tuple[bytes, int, bool]]:
            async with await meter(process, version=version) as other:
                await other.subscribe(topic, qos=2)
                other.send(PingReq())
                found = []
                while isinstance(packet := await other.receive(), Publish):
                    found.append((packet.payload, packet.qos, packet.retain))
                return found

        await one.publish(topic, b"a", 1, retain=True)
        assert await kept() == [(b"a", 1, True)]
        await one.publish(topic, b"b", 2, retain=True)
        await one.publish(topic, b"c", 2)
        await one.publish(topic, b"", 1)
        assert await kept() == [(b"b", 2, True)]
        await one.publish(topic, b"d", 0, retain=True)
        assert await kept() == [(b"d", 0, True)]
        await one.subscribe(topic)
        assert (await one.take()).retain
        one.send(Publish(topic, b"", 0, True))
        found = await one.take()
        assert (found.payload, found.retain) == (b"", False)
        assert await kept() == []


@pytest.mark.parametrize(
    ("handling", "sent"), [(0, [True, True]), (1, [True, False]), (2, [False, False])]
)
async def test_retain_handling(process: Process, handling: int, sent: list[bool]) -> None:
    topic = f"handling/{handling}"
    wanted = Subscribe(4, (Subscription(topic, 0, retain_handling=handling),))
    async with await pump(process) as one:
        await one.publish(topic, b"a", 1, retain=True)
        for is_sent in sent:
            assert await one.ask(wanted) == SubAck(4, (0,))
            if is_sent:
                assert (await one.take()).payload == b"a"
            await one.sync()


async def test_retain_as_published(process: Process) -> None:
    async with await pump(process) as one, await meter(process) as other:
        await other.subscribe(Subscription("flag/0"), Subscription("flag/1", 0, False, True))
        for kept, retain in product((0, 1), (False, True)):
            await one.publish(f"flag/{kept}", b"a", 1, retain=retain)
            assert (await other.take()).retain == (retain and bool(kept))


@VERSIONS
@pytest.mark.parametrize("retain", [False, True])
async def test_a_will_is_retained_if_it_asks_for_it(
    process: Process, version: int, retain: bool
) -> None:
    topic = f"will{version}/{retain}"
    async with await meter(process, version=version) as other:
        await other.subscribe(topic, qos=2)
        user = {Property.USER: (("b", "1"), ("a", "2"), ("b", ""))}
        properties = user if version == V5 else NO_PROPERTIES
        will = Will(topic, b"x", 1, retain, properties)
        lost = await pump(process, "lost", version=version, will=will)
        await lost.close()
        found = await other.take()
        assert (found.payload, found.qos, found.retain) == (b"x", 1, False)
        assert found.properties == properties
        await other.subscribe(topic, qos=2)
        if retain:
            assert (await other.take()).retain
        await other.sync()


# Subscriptions


@VERSIONS
async def test_filters_are_answered_in_order(process: Process, version: int) -> None:
    asked = (Subscription("many/1", 2), Subscription("a#"), Subscription("many/2", 1))
    refused = Reason.TOPIC_FILTER_INVALID if version == V5 else Reason.UNSPECIFIED_ERROR
    async with await pump(process, version=version) as one:
        found = await one.ask(Subscribe(77, (*asked, Subscription("many/3"))))
        assert isinstance(found, SubAck)
        assert (found.id, found.reasons) == (77, (2, refused, 1, 0))
        for topic, qos in (("many/1", 2), ("many/2", 1), ("many/3", 0)):
            await one.ask(Publish(topic, b"x", 2, id=9))
            one.send(PubRel(9))
            packets = [await one.receive() for _ in range(2)]
            assert PubComp(9) in packets
            (message,) = (each for each in packets if isinstance(each, Publish))
            assert (message.topic, message.qos) == (topic, qos)
            if qos == 1:
                await one.sync(PubAck(message.id))
            elif qos == 2:
                assert await one.ask(PubRec(message.id)) == PubRel(message.id)
                await one.sync(PubComp(message.id))
        filters = ("many/1", "many/4", "many/2")
        gone = (0, Reason.NO_SUBSCRIPTION_EXISTED, 0) if version == V5 else ()
        assert await one.ask(Unsubscribe(78, filters)) == UnsubAck(78, gone)
        await one.publish("many/1", b"x", 1)
        await one.publish("many/2", b"x", 1)
        assert await one.ask(Publish("many/3", b"x")) == Publish("many/3", b"x")


@VERSIONS
async def test_a_subscription_replaces_that_of_the_same_filter(
    process: Process, version: int
) -> None:
    topic = f"replaced{version}/1"
    async with await pump(process, version=version) as one:
        await one.publish(topic, b"kept", 1, retain=True)
        for qos in (2, 0):
            assert await one.subscribe(topic, qos=qos) == (qos,)
            assert (await one.take()).retain
        assert await one.ask(Publish(topic, b"x")) == Publish(topic, b"x")
        await one.sync()


async def test_unsubscribing_compares_texts_and_finishes_messages(process: Process) -> None:
    async with await pump(process) as one, await meter(process) as other:
        await other.subscribe("ends/#", qos=1)
        await one.publish("ends/1", b"a", 1)
        (first,) = await publishes(other, 1)
        for filter in ("ends/+", "ends/1", "Ends/#"):
            missing = UnsubAck(5, (Reason.NO_SUBSCRIPTION_EXISTED,))
            assert await other.ask(Unsubscribe(5, (filter,))) == missing
        assert await other.ask(Unsubscribe(5, ("ends/#",))) == UnsubAck(5, (0,))
        await one.publish("ends/1", b"b", 1)
        await other.sync(PubAck(first.id))


async def test_no_local_excludes_what_its_session_publishes(process: Process) -> None:
    async with await pump(process) as one, await pump(process, "second") as second:
        await one.subscribe(Subscription("local/#", 1, no_local=True))
        await one.publish("local/1", b"own", 1)
        await second.publish("local/1", b"other", 1)
        assert (await one.take()).payload == b"other"
        await one.sync()


@VERSIONS
async def test_overlapping_subscriptions_get_a_message_once(process: Process, version: int) -> None:
    """It has the highest of their levels, and the identifiers of all that have one."""
    topic = f"overlap{version}/1"
    async with await pump(process) as one, await meter(process, version=version) as other:
        for filter, qos, number in ((f"overlap{version}/#", 1, 1), (topic, 2, 268_435_455)):
            properties: Properties = {Property.SUBSCRIPTION_ID: (number,)}
            wanted = Subscribe(3, (Subscription(filter, qos),), properties)
            assert await other.ask(wanted) == SubAck(3, (qos,))
        await other.subscribe(f"overlap{version}/+")
        await one.publish(topic, b"x", 2)
        (found,) = await publishes(other, 1)
        assert found.qos == 2
        if version == V5:
            assert sorted(found.properties[Property.SUBSCRIPTION_ID]) == [1, 268_435_455]
        assert await other.ask(PubRec(found.id)) == PubRel(found.id)
        await other.sync(PubComp(found.id))
        assert isinstance(await other.ask(Unsubscribe(4, (topic, f"overlap{version}/#"))), UnsubAck)
        await one.publish(topic, b"y", 2)
        assert (await other.take()).qos == 0


async def test_a_waiting_message_is_kept_for_another_subscription(process: Process) -> None:
    limited = {Property.RECEIVE_MAXIMUM: 1}
    async with await pump(process) as one, await meter(process, properties=limited) as other:
        await other.subscribe(Subscription("waits/#", 1), Subscription("waits/1", 2))
        for text in (b"a", b"b"):
            await one.publish("waits/1", text, 1)
        (first,) = await publishes(other, 1)
        assert await other.ask(Unsubscribe(4, ("waits/1",))) == UnsubAck(4, (0,))
        other.send(PubAck(first.id))
        assert (await other.take()).payload == b"b"
        await one.publish("waits/1", b"c", 1)
        assert (await other.take()).payload == b"c"


# Shared subscriptions


async def test_a_share_respects_the_level_of_each_member(process: Process) -> None:
    async with await pump(process) as one, await meter(process) as other:
        assert await other.subscribe("$share/level/shared/#", qos=1) == (1,)
        for qos in (0, 1, 2):
            await one.publish("shared/1", b"x", qos)
            assert (await other.take()).qos == min(qos, 1)


@pytest.mark.parametrize("qos", [1, 2])
async def test_a_message_that_a_member_refuses_is_discarded(process: Process, qos: int) -> None:
    async with await pump(process, "a") as one, await meter(process, "b") as other:
        for client in (one, other):
            await client.subscribe(f"$share/refuse{qos}/refuse{qos}/#", qos=qos)
        async with await pump(process, "c") as sender:
            await sender.publish(f"refuse{qos}/1", b"x", qos)
        for client in (one, other):
            client.send(PingReq())
        asked = [(client, await client.receive()) for client in (one, other)]
        ((member, message),) = [
            (client, found) for client, found in asked if isinstance(found, Publish)
        ]
        assert await member.receive() == PingResp()
        answer = PubAck if qos == 1 else PubRec
        await member.sync(answer(message.id, Reason.UNSPECIFIED_ERROR))
        for client in (one, other):
            await client.sync()


async def test_a_share_completes_a_delivery_when_its_member_returns(process: Process) -> None:
    keep = KEEP[V5]
    async with await pump(process) as one, await meter(process, "returns", **keep) as other:
        await other.subscribe("$share/returns/returns/#", qos=2)
        await one.publish("returns/1", b"x", 2)
        (first,) = await publishes(other, 1)
        assert await other.ask(PubRec(first.id)) == PubRel(first.id)
    async with await meter(process, "returns", **keep) as other:
        assert await other.receive() == PubRel(first.id)
        await other.sync(PubComp(first.id))


async def test_an_item_of_a_member_whose_session_ended_goes_to_nobody(process: Process) -> None:
    filter = "$share/ended/ended/#"
    async with await meter(process, "ended") as other:
        await other.subscribe(filter, qos=2)
        async with await pump(process) as one:
            await one.subscribe(filter, qos=2)
            other.send(Unsubscribe(1, ("x",)))
            await other.receive()
            for number in range(2):  # to the member with the fewest items
                await one.publish(f"ended/{number}", b"x", 2)
            await one.take()
            await publishes(other, 1)
            await other.close()
            async with await meter(process, "ended") as again:
                assert not again.connack.session_present
            await one.sync()


# Topic aliases


async def test_aliases_of_a_client(process: Process) -> None:
    async with await pump(process) as one, await meter(process) as other:
        await other.subscribe("alias/#")
        most = one.connack.properties[Property.TOPIC_ALIAS_MAXIMUM]
        for topic, alias in (("alias/1", 1), ("alias/2", most), ("alias/3", 1)):
            properties = {Property.TOPIC_ALIAS: alias}
            for name in (topic, ""):
                await one.sync(Publish(name, b"x", properties=properties))
                assert (await other.take()).topic == topic
    async with await pump(process) as one:  # the alias has ended with its connection
        found = await one.ask(Publish("", b"x", properties={Property.TOPIC_ALIAS: 1}))
        assert isinstance(found, Disconnect)
    assert most > 0


@pytest.mark.parametrize("most", [0, 1])
async def test_aliases_for_a_client(process: Process, most: int) -> None:
    properties = {Property.TOPIC_ALIAS_MAXIMUM: most} if most else NO_PROPERTIES
    async with await pump(process) as one, await meter(process, properties=properties) as other:
        await other.subscribe("short/#")
        found = []
        for topic in ("short/1", "short/1", "short/2"):
            await one.publish(topic, b"x")
            message = await other.take()
            found.append((message.topic, message.properties.get(Property.TOPIC_ALIAS)))
        names = ("short/1", "" if most else "short/1", "short/2")
        assert found == list(zip(names, (1, 1, None) if most else (None,) * 3, strict=True))


# Violations of the protocol


VIOLATIONS: dict[str, tuple[Packet | bytes, Reason]] = {
    "QoS 3": (bytes.fromhex("36 06 0001 61 0001 00"), Reason.MALFORMED_PACKET),
    "a reserved flag": (bytes.fromhex("60 02 0001"), Reason.MALFORMED_PACKET),
    "a topic that is not UTF-8": (bytes.fromhex("30 04 0001 ff 00"), Reason.MALFORMED_PACKET),
    "U+0000": (bytes.fromhex("30 04 0001 00 00"), Reason.MALFORMED_PACKET),
    "a wildcard": (bytes.fromhex("30 04 0001 23 00"), Reason.TOPIC_NAME_INVALID),
    "no topic": (bytes.fromhex("30 03 0000 00"), Reason.PROTOCOL_ERROR),
    "SUBSCRIBE without a filter": (bytes.fromhex("82 03 0001 00"), Reason.PROTOCOL_ERROR),
    "UNSUBSCRIBE without a filter": (bytes.fromhex("a2 03 0001 00"), Reason.PROTOCOL_ERROR),
    "the identifier 0": (bytes.fromhex("32 06 0001 61 0000 00"), Reason.PROTOCOL_ERROR),
    "a packet of a server": (SubAck(1, (0,)), Reason.PROTOCOL_ERROR),
    "a subscription identifier": (
        Publish("a", b"", properties={Property.SUBSCRIPTION_ID: (1,)}),
        Reason.PROTOCOL_ERROR,
    ),
}


@pytest.mark.parametrize("name", VIOLATIONS)
async def test_a_violation_ends_the_connection(process: Process, name: str) -> None:
    packet, reason = VIOLATIONS[name]
    async with await pump(process) as client:
        if isinstance(packet, bytes):
            client.writer.write(packet)
        else:
            client.send(packet)
        found = await client.receive()
        assert isinstance(found, Disconnect)
        assert found.reason == reason
        assert await client.receive() is None


@pytest.mark.parametrize(
    "packet", ["36 05 0001 61 0001", "60 02 0001", "82 02 0001", "e1 00", "90 03 0001 00", "f0 00"]
)
async def test_a_violation_ends_a_connection_of_3_1_1(process: Process, packet: str) -> None:
    async with await pump(process, version=V311) as client:
        client.writer.write(bytes.fromhex(packet))
        assert await client.receive() is None


@VERSIONS
async def test_a_client_that_disconnects_is_closed(process: Process, version: int) -> None:
    async with await pump(process, version=version) as client:
        assert await client.ask(Disconnect()) is None
