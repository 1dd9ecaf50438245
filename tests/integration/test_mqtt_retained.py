"""A gateway with 10,000 retained messages, more than its limit of nodes, over MQTT.

A dashboard subscribes to everything and reads slowly, and others publish meanwhile. The gateway's
memory stays within a bound.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Final

import pytest

from benchmarks.usage import peak
from edge.content_types import UNKNOWN
from edge.engine.dispatch.item_attributes import ItemAttributes
from edge.engine.rules.service_time import Now
from edge.engine.store import database
from edge.features.pubsub.service.nodes import OPEN
from edge.features.pubsub.store import items, nodes
from edge.mqtt.packets import PingReq, Property, PubAck, Publish, PubRec
from edge.mqtt.reasons import Reason
from tests.helpers.gateway import NO_RATE_LIMITS, Gateway
from tests.helpers.mqtt import MqttClient
from tests.helpers.processes import Process

COUNT: Final = 10_000
PAYLOAD: Final = b"x" * 1500
LAST: Final = "z"
"""The last topic, whose message is small."""

MEMORY: Final = 8 << 20
"""Bytes by which the gateway's memory may grow: much less than the 15 MB of all messages."""

LAST_ITEMS: Final = 100
OWNER: Final = "pump1@gw.example"
AT: Final = Now(0.0, 1_760_000_000_000, True)


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Gateway:
    found = Gateway(
        tmp_path_factory.mktemp("gateway"),
        "pump1",
        "meter1",
        auto_create=["#"],
        require_tls=False,
        **NO_RATE_LIMITS,
    )
    found.configure_section("mqtt", listen="127.0.0.1:0", require_tls=False)
    _retain(found.folder)
    return found


def _retain(folder: Path) -> None:
    attributes = ItemAttributes(UNKNOWN, 2, True)
    with (
        closing(database.connect(folder / database.FILE_NAME)) as connection,
        database.transaction(connection, AT) as tx,
    ):
        contents = {f"site/{number:05d}": PAYLOAD for number in range(COUNT)} | {LAST: b"x"}
        for name, payload in contents.items():
            node, size = nodes.add(tx, name, OWNER, OPEN), len(payload) + 100
            items.put(tx, node.id, "i", f"{OWNER}/fw", payload, size, attributes=attributes)


def waiting(gateway: Gateway) -> int:
    """Return the number of messages in the outbox."""
    with closing(database.connect_reader(gateway.folder / database.FILE_NAME)) as connection:
        (count,) = connection.execute("SELECT count(*) FROM outbox").fetchone()
        return int(count)


async def test_messages_that_a_client_does_not_accept_are_left_out(process: Process) -> None:
    accepts = {Property.MAXIMUM_PACKET_SIZE: len(PAYLOAD)}
    async with await MqttClient.connect(process, "meter1", "small", properties=accepts) as meter:
        await meter.subscribe("#")
        async with asyncio.timeout(60):
            while not isinstance(found := await meter.ask(PingReq()), Publish):
                pass
        assert found.topic == LAST


@pytest.mark.parametrize(("qos", "answer"), [(1, PubAck), (2, PubRec)])
async def test_the_limit_of_nodes_is_named_and_concerns_new_retained_messages_alone(
    process: Process, qos: int, answer: type[PubAck | PubRec]
) -> None:
    async with await MqttClient.connect(process, "pump1") as pump:
        why = {Property.REASON_STRING: "the limit nodes_per_account = 2500 is reached"}
        refused = answer(1, Reason.QUOTA_EXCEEDED, why)
        assert await pump.ask(Publish("new", b"x", qos, retain=True, id=1)) == refused
        await pump.publish("new", b"x", qos)
        await pump.publish("new", b"", qos, retain=True)
        await pump.publish("site/00000", PAYLOAD, qos, retain=True)


@pytest.mark.parametrize("qos", [0, 1, pytest.param(2, marks=pytest.mark.long)])
async def test_each_retained_message_is_sent_once(
    gateway: Gateway, process: Process, qos: int
) -> None:
    before = peak(process.pid)
    live = f"site/{COUNT - 1:05d}"
    async with (
        await MqttClient.connect(process, "meter1", f"dashboard{qos}") as meter,
        await MqttClient.connect(process, "pump1") as pump,
    ):
        assert await meter.subscribe("#", qos=qos) == (qos,)
        await pump.publish(live, b"live", 1)
        await pump.publish("other", b"live", 1)
        assert waiting(gateway) <= LAST_ITEMS + 3  # the client has not read anything
        found: list[Publish] = [await meter.take() for _ in range(COUNT + 3)]
        await meter.sync()
    retained = Counter(one.topic for one in found if one.retain)
    assert len(retained) == COUNT + 1
    assert set(retained.values()) == {1}
    assert {one.qos for one in found if one.retain} == {qos}
    assert [one.payload for one in found if one.topic == live] == [PAYLOAD, b"live"]
    assert peak(process.pid) - before < MEMORY
