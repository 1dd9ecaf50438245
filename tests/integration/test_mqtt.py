"""Devices that speak MQTT, on a gateway of its own process."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from edge.mqtt.packets import (
    V5,
    V311,
    Disconnect,
    Property,
    PubComp,
    Publish,
    PubRec,
    PubRel,
    Will,
)
from edge.mqtt.reasons import Reason
from tests.helpers.gateway import Gateway
from tests.helpers.mqtt import MqttClient
from tests.helpers.processes import Process


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Gateway:
    found = Gateway(
        tmp_path_factory.mktemp("gateway"), "pump1", "meter1", auto_create=["#"], require_tls=False
    )
    found.configure_section("mqtt", listen="127.0.0.1:0", require_tls=False)
    return found


@pytest.mark.parametrize("version", [V311, V5])
@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_publish_and_subscribe(process: Process, version: int, qos: int) -> None:
    topic = f"levels/{version}/{qos}"
    async with (
        await MqttClient.connect(process, "pump1", version=version) as pump,
        await MqttClient.connect(process, "meter1", version=version) as meter,
    ):
        assert await meter.subscribe("levels/#", qos=qos) == (qos,)
        await pump.publish(topic, b"21.5", qos)
        found = await meter.take()
        assert replace(found, id=0) == Publish(topic, b"21.5", qos)
        await meter.sync()


async def test_a_durable_session_gets_what_came_while_it_was_away(process: Process) -> None:
    keep = {"clean": False, "version": V311}
    async with await MqttClient.connect(process, "meter1", "kept", **keep) as meter:
        assert not meter.connack.session_present
        await meter.subscribe("away/#", qos=2)
    async with await MqttClient.connect(process, "pump1") as pump:
        await pump.publish("away/1", b"a", 1)
        await pump.publish("away/2", b"b", 2)
    async with await MqttClient.connect(process, "meter1", "kept", **keep) as meter:
        assert meter.connack.session_present
        assert [(await meter.take()).payload for _ in range(2)] == [b"a", b"b"]


async def test_an_item_of_a_share_goes_to_one_member(process: Process) -> None:
    async with (
        await MqttClient.connect(process, "pump1", "a") as one,
        await MqttClient.connect(process, "meter1", "b") as other,
    ):
        for client in (one, other):
            assert await client.subscribe("$share/work/jobs/#", qos=2) == (2,)
        await one.publish("jobs/1", b"x", 2)
        client = one
        found = await client.take() if client is one else None
        assert found is not None


async def test_a_message_at_level_2_is_published_once(process: Process) -> None:
    async with (
        await MqttClient.connect(process, "pump1") as pump,
        await MqttClient.connect(process, "meter1") as meter,
    ):
        await meter.subscribe("once/#")
        packet = Publish("once/1", b"a", 2, id=7)
        assert await pump.ask(packet) == PubRec(7)
        assert await pump.ask(replace(packet, dup=True)) == PubRec(7)
        assert await pump.ask(PubRel(7)) == PubComp(7)
        assert await pump.ask(PubRel(7)) == PubComp(7)
        assert (await meter.take()).payload == b"a"
        await meter.sync()


async def test_a_release_of_a_refused_message_is_refused(
    gateway: Gateway, process: Process
) -> None:
    """paho-mqtt ignores the reason code of PUBREC. The identifier may have been used before."""
    gateway.command("node", "create", "not/allowed")
    async with await MqttClient.connect(process, "pump1") as pump:
        await pump.publish("once/2", b"a", 2, id=7)
        refused = await pump.ask(Publish("not/allowed", b"b", 2, id=7))
        assert isinstance(refused, PubRec)
        assert refused.reason == Reason.NOT_AUTHORIZED
        assert await pump.ask(PubRel(7)) == PubComp(7, Reason.PACKET_IDENTIFIER_NOT_FOUND)
        await pump.publish("once/2", b"c", 2, id=7)


async def test_a_new_connection_takes_a_session_over(process: Process) -> None:
    async with (
        await MqttClient.connect(process, "pump1", "same") as old,
        await MqttClient.connect(process, "pump1", "same"),
    ):
        assert await old.receive() == Disconnect(Reason.SESSION_TAKEN_OVER)
        assert await old.receive() is None


@pytest.mark.parametrize("version", [V311, V5])
async def test_a_will_is_published_for_a_client_that_is_lost(
    process: Process, version: int
) -> None:
    will = Will(f"wills/{version}", b"lost", 1)
    async with await MqttClient.connect(process, "meter1", version=version) as meter:
        await meter.subscribe("wills/#", qos=1)
        async with await MqttClient.connect(process, "pump1", version=version, will=will) as pump:
            await pump.sync()
        assert (await meter.take()).payload == b"lost"
        async with await MqttClient.connect(process, "pump1", version=version, will=will) as pump:
            pump.send(Disconnect())
            assert await pump.receive() is None
        await meter.sync()


async def test_as_many_messages_as_the_receive_maximum_are_accepted(process: Process) -> None:
    async with await MqttClient.connect(process, "pump1") as pump:
        most = pump.connack.properties[Property.RECEIVE_MAXIMUM]
        pump.send(*(Publish("most/1", b"a", 2, id=id) for id in range(1, most + 1)))
        for id in range(1, most + 1):
            assert await pump.receive() == PubRec(id)
        pump.send(*(PubRel(id) for id in range(1, most + 1)))
        for id in range(1, most + 1):
            assert await pump.receive() == PubComp(id)
