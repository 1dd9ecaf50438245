"""A gateway that is killed between the steps of MQTT loses nothing, and repeats nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from edge.mqtt.packets import (
    V5,
    V311,
    Property,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
)
from tests.helpers.gateway import Gateway
from tests.helpers.mqtt import MqttClient

KEPT_S = 3600
TOPIC = "plant/temp"
SHARES = ("$share/pool/plant/#", "$share:pool:plant/#")


class Killed:
    """A gateway that can be killed and started again, and clients whose sessions are durable."""

    def __init__(self, folder: Path, version: int) -> None:
        self.version = version
        self.gateway = Gateway(folder, "ant", "bee", "cat", require_tls=False, auto_create=["#"])
        self.gateway.configure_section("mqtt", listen="127.0.0.1:0", require_tls=False)
        self.process = self.gateway.run()
        self.clients: list[MqttClient] = []

    async def begin(self, name: str, *, is_resumed: bool = False) -> MqttClient:
        """Begin a durable session, or continue it."""
        keep = {Property.SESSION_EXPIRY: KEPT_S} if self.version == V5 else {}
        client = await MqttClient.connect(
            self.process, name, version=self.version, clean=False, properties=keep
        )
        assert client.connack.session_present == is_resumed
        self.clients.append(client)
        return client

    async def kill(self) -> None:
        """Kill the gateway and start it again; all clients lose their connections."""
        self.process.kill9()
        await self.close()
        self.process = self.gateway.run()

    async def return_after_kill(self, name: str) -> MqttClient:
        """Kill the gateway, start it again, and continue a session."""
        await self.kill()
        return await self.begin(name, is_resumed=True)

    async def close(self) -> None:
        for client in self.clients:
            await client.close()
        self.clients.clear()


@pytest.fixture(params=[pytest.param(V311, marks=pytest.mark.long), V5])
async def running(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Killed]:
    found = Killed(tmp_path / "gateway", request.param)
    try:
        yield found
    finally:
        await found.close()
        found.process.close()


async def payloads(client: MqttClient, count: int) -> list[bytes]:
    return [(await client.take()).payload for _ in range(count)]


async def test_a_publication_survives_a_kill_after_each_step(running: Killed) -> None:
    packet = Publish(TOPIC, b"21.5", 2, id=1)
    bee = await running.begin("bee")
    assert await bee.subscribe("plant/#", qos=2) == (2,)
    ant = await running.begin("ant")
    ant.send(packet)  # perhaps it is lost
    ant = await running.return_after_kill("ant")
    assert await ant.ask(replace(packet, dup=True)) == PubRec(1)
    ant = await running.return_after_kill("ant")
    assert await ant.ask(replace(packet, dup=True)) == PubRec(1)
    ant.send(PubRel(1))  # perhaps it is lost
    ant = await running.return_after_kill("ant")
    assert await ant.ask(PubRel(1)) == PubComp(1)
    ant = await running.return_after_kill("ant")
    assert await ant.ask(PubRel(1)) == PubComp(1)
    await ant.publish(TOPIC, b"22", 2)  # the id is free again
    bee = await running.begin("bee", is_resumed=True)
    assert await payloads(bee, 2) == [b"21.5", b"22"]
    await bee.settle()


@pytest.mark.parametrize("filter", ["plant/#", *SHARES])
async def test_an_item_survives_a_kill_after_each_step(running: Killed, filter: str) -> None:
    """Of a node and of a share; the same member gets the item of the share again."""
    ant, bee, cat = [await running.begin(name) for name in ("ant", "bee", "cat")]
    assert await ant.subscribe(filter, qos=2) == (2,)
    await bee.publish(TOPIC, b"21.5", 2)
    offer = await ant.receive()
    assert isinstance(offer, Publish)
    assert replace(offer, id=0) == Publish(TOPIC, b"21.5", 2)
    if filter in SHARES:  # other members do not get it while the session is kept
        assert await cat.subscribe(filter, qos=2) == (2,)
    ant = await running.return_after_kill("ant")
    assert await ant.receive() == replace(offer, dup=True)
    assert await ant.ask(PubRec(offer.id)) == PubRel(offer.id)
    ant = await running.return_after_kill("ant")
    assert await ant.receive() == PubRel(offer.id)
    await ant.settle(PubComp(offer.id))
    ant = await running.return_after_kill("ant")
    await ant.settle()  # a copy that was delivered is gone
    await (await running.begin("cat", is_resumed=True)).settle()
    assert await ant.subscribe("plant/#", qos=2) == (2,)
    bee = await running.begin("bee", is_resumed=True)
    await bee.publish(TOPIC, b"22", 2)
    assert (await ant.take()).payload == b"22"


async def test_an_answered_message_at_qos_1_is_not_repeated_after_a_kill(running: Killed) -> None:
    ant, bee = await running.begin("ant"), await running.begin("bee")
    assert await ant.subscribe("plant/#", qos=1) == (1,)
    await bee.publish(TOPIC, b"21.5", 1)
    offer = await ant.receive()
    assert isinstance(offer, Publish)
    ant = await running.return_after_kill("ant")
    assert await ant.receive() == replace(offer, dup=True)
    await ant.settle(PubAck(offer.id))
    await (await running.return_after_kill("ant")).settle()


async def test_messages_of_an_absent_session_survive_restarts(running: Killed) -> None:
    """The gateway is killed, and stopped, before the client returns."""
    ant, bee = await running.begin("ant"), await running.begin("bee")
    assert await ant.subscribe("plant/+", "other/+", qos=2) == (2, 2)
    await ant.close()
    for number in range(3):
        await bee.publish(TOPIC, b"%d" % number, 1 + number % 2)
    await running.kill()
    assert running.process.terminate() == 0
    running.process = running.gateway.run()
    bee = await running.begin("bee", is_resumed=True)
    await bee.publish(TOPIC, b"3", 2)
    ant = await running.return_after_kill("ant")
    assert await payloads(ant, 4) == [b"0", b"1", b"2", b"3"]
    await ant.settle()
    await (await running.return_after_kill("ant")).settle()


async def test_a_share_allots_nothing_to_an_absent_member(running: Killed) -> None:
    ant, bee, cat = [await running.begin(name) for name in ("ant", "bee", "cat")]
    for client, filter in zip((ant, bee), SHARES, strict=True):
        assert await client.subscribe(filter, qos=2) == (2,)
    await ant.close()
    for number in range(4):
        await cat.publish(TOPIC, b"%d" % number, 2)
    assert await payloads(bee, 4) == [b"0", b"1", b"2", b"3"]
    await bee.settle()
    await running.kill()
    cat = await running.begin("cat", is_resumed=True)
    await cat.publish(TOPIC, b"4", 2)  # for the first member that is back
    bee = await running.begin("bee", is_resumed=True)
    assert await payloads(bee, 1) == [b"4"]
    await (await running.begin("ant", is_resumed=True)).settle()
