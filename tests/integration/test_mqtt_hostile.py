"""Clients of MQTT that harm, or try to: they disturb no others, and the gateway stays sound."""

from __future__ import annotations

from typing import Final

import pytest

from edge.config.options import AccessRule
from edge.mqtt.codec import encode
from edge.mqtt.packets import (
    V5,
    V311,
    ConnAck,
    Connect,
    Disconnect,
    PingReq,
    Property,
    PubAck,
    Publish,
    PubRec,
    SubAck,
    Subscribe,
    Subscription,
    UnsubAck,
    Unsubscribe,
    Will,
)
from edge.mqtt.reasons import Reason
from edge.xmpp.namespaces import CONTENT, PUBSUB
from tests.helpers.folder import set_access
from tests.helpers.gateway import PASSWORD, Gateway, bind_session
from tests.helpers.mqtt import MqttClient
from tests.helpers.processes import Process

MOST: Final = 8
"""Maximum subscriptions of an account."""

OPTIONS: Final = {
    "auto_create": ["#"],
    "require_tls": False,
    "stanza_bytes": 131_072,
    "authenticate_delay": 0.0,
    "subscriptions_per_account": MOST,
}


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Gateway:
    found = Gateway(tmp_path_factory.mktemp("gateway"), "pump1", "meter1", **OPTIONS)
    found.configure_section("mqtt", listen="127.0.0.1:0", require_tls=False)
    set_access(found.folder, AccessRule(device="*", publish=["%u/#"], subscribe=["#"]))
    return found


async def test_refused_messages_do_not_use_up_the_receive_maximum(process: Process) -> None:
    """A refusal with a long text ends the message, too."""
    async with await MqttClient.connect(process, "pump1", "refused") as pump:
        topic = "x" * 200
        for id in range(1, 2 + pump.connack.properties[Property.RECEIVE_MAXIMUM]):
            answer = await pump.ask(Publish(topic, b"", 2, id=id))
            assert isinstance(answer, PubRec)
            assert (answer.id, answer.reason) == (id, Reason.NOT_AUTHORIZED)
            assert len(answer.properties[Property.REASON_STRING]) > 127
        await pump.publish("pump1/a", b"", 2, 100)


@pytest.mark.parametrize("version", [V5, V311])
async def test_a_packet_with_many_filters(process: Process, version: int) -> None:
    """More filters than an account may have are refused at once."""
    async with await MqttClient.connect(process, "meter1", "many", version=version) as meter:
        refused = Reason.QUOTA_EXCEEDED if version == V5 else Reason.UNSPECIFIED_ERROR
        wanted = (Subscription("many"),) * 1000
        reasons = (0,) * MOST + (refused,) * (1000 - MOST)
        why = {Property.REASON_STRING: f"more than {MOST} filters at once"} if version == V5 else {}
        assert await meter.ask(Subscribe(1, wanted)) == SubAck(1, reasons, why)
        answer = await meter.ask(Unsubscribe(2, ("many",) * 1000))
        assert isinstance(answer, UnsubAck)
        if version == V5:
            none, unread = Reason.NO_SUBSCRIPTION_EXISTED, Reason.IMPLEMENTATION_SPECIFIC_ERROR
            assert answer.reasons == (0,) + (none,) * (MOST - 1) + (unread,) * (1000 - MOST)


async def test_what_mqtt_cannot_carry_blocks_nothing(process: Process) -> None:
    """MQTT has content types of 65,535 bytes; what XMPP publishes may have longer ones."""
    long = "t" * 70_000
    item = f"<item><data xmlns='{CONTENT}' type='{long}'>aGk=</data></item>"
    publish = f"<pubsub xmlns='{PUBSUB}'><publish node='pump1/long'>{item}</publish></pubsub>"
    async with await MqttClient.connect(process, "meter1", "long") as meter:
        assert await meter.subscribe("pump1/+", qos=2) == (2,)
        pump = await bind_session(process, "pump1")
        pump.send(f"<iq type='set' id='1' to='pubsub.gw.example'>{publish}</iq>")
        assert (await pump.element()).get("type") == "result"
        async with await MqttClient.connect(process, "pump1", "next") as next:
            await next.publish("pump1/next", b"next", 2)
        assert (await meter.take()).payload == b"next"
        await pump.close()


async def test_a_long_nonce_is_refused(process: Process) -> None:
    """The answer to it would not fit into a packet."""
    async with await MqttClient.open(process) as client:
        message = b"n,,n=pump1,r=" + b"a" * 65_500
        method = "SCRAM-SHA-256"
        properties = {
            Property.AUTHENTICATION_METHOD: method,
            Property.AUTHENTICATION_DATA: message,
        }
        refused = ConnAck(False, Reason.BAD_USER_NAME_OR_PASSWORD)
        assert await client.ask(Connect("x", properties=properties)) == refused


@pytest.mark.parametrize("version", [V5, V311])
async def test_nothing_is_handled_after_a_disconnect(process: Process, version: int) -> None:
    async with (
        await MqttClient.connect(process, "meter1", "after") as meter,
        await MqttClient.connect(process, "pump1", "after", version=version) as pump,
    ):
        await meter.subscribe("pump1/after")
        packets = Disconnect(), PingReq(), Publish("pump1/after", b"")
        pump.writer.write(b"".join(encode(packet, version) for packet in packets))  # in one read
        assert await pump.receive() is None
        await meter.sync()


async def test_the_text_of_a_refusal_is_cut(gateway: Gateway, process: Process) -> None:
    """A device that refuses messages has the text kept with each."""
    async with (
        await MqttClient.connect(process, "meter1", "refuses") as meter,
        await MqttClient.connect(process, "pump1", "refused2") as pump,
    ):
        await meter.subscribe("pump1/refused", qos=1)
        await pump.publish("pump1/refused", b"", 1)
        found = await meter.receive()
        assert isinstance(found, Publish)
        long = {Property.REASON_STRING: "why" * 20_000}
        await meter.settle(PubAck(found.id, Reason.UNSPECIFIED_ERROR, long))
    (dead,) = [each for each in gateway.events("system") if "why" in (each["text"] or "")]
    assert dead["text"] == long[Property.REASON_STRING][:200]


@pytest.mark.parametrize("qos", [1, 2])
async def test_too_many_properties_are_refused(process: Process, qos: int) -> None:
    """A message that could not be published is not acknowledged as if it was."""
    async with await MqttClient.connect(process, "pump1", "properties") as pump:
        many = {Property.USER: (("a", "b"),) * 65}
        answer = await pump.ask(Publish("pump1/a", b"", qos, id=1, properties=many))
        assert isinstance(answer, PubAck | PubRec)
        assert answer.reason == Reason.IMPLEMENTATION_SPECIFIC_ERROR
        assert answer.properties[Property.REASON_STRING] == "an item has at most 64 properties"


async def test_a_will_with_too_many_properties_is_refused(process: Process) -> None:
    """Nobody could be told later that it cannot be published."""
    will = Will("pump1/will", b"lost", properties={Property.USER: (("a", "b"),) * 65})
    async with await MqttClient.open(process) as client:
        password = PASSWORD.encode()
        answer = await client.ask(Connect("w", user_name="pump1", password=password, will=will))
        assert answer == ConnAck(False, Reason.IMPLEMENTATION_SPECIFIC_ERROR)
        assert await client.receive() is None
