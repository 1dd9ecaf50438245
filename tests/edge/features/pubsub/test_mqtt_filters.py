"""SUBSCRIBE and UNSUBSCRIBE, against a gateway in the same process."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from edge.features.pubsub.mqtt import MAX_FILTERS, PART
from edge.mqtt.packets import (
    V5,
    V311,
    PingReq,
    PingResp,
    Publish,
    SubAck,
    Subscribe,
    Subscription,
    UnsubAck,
    Unsubscribe,
)
from edge.mqtt.reasons import Reason
from tests.helpers.in_process import InProcessGateway, in_process
from tests.helpers.mqtt import MqttClient

MOST = 3


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[InProcessGateway]:
    options = {"subscriptions_per_account": MOST, "subscriptions": MOST}
    async with in_process(tmp_path, "pump1", **options) as found:
        yield found


async def test_each_filter_has_a_reason(running: InProcessGateway) -> None:
    async with await MqttClient.connect(running.mqtt, "pump1") as client:
        found = await client.subscribe("a/#", "a/#/b", "$share/s/b/+", qos=2)
        assert found == (2, Reason.TOPIC_FILTER_INVALID, 2)
        ended = Unsubscribe(7, ("a/#", "$share/s/b/+", "none"))
        reasons = (Reason.SUCCESS, Reason.SUCCESS, Reason.NO_SUBSCRIPTION_EXISTED)
        assert await client.ask(ended) == UnsubAck(7, reasons)


@pytest.mark.parametrize("version", [V311, V5])
async def test_filters_beyond_the_limit_are_refused(
    running: InProcessGateway, version: int
) -> None:
    refused = Reason.QUOTA_EXCEEDED if version == V5 else Reason.UNSPECIFIED_ERROR
    failed = Reason.IMPLEMENTATION_SPECIFIC_ERROR
    async with await MqttClient.connect(running.mqtt, "pump1", version=version) as client:
        filters = [f"f/{number}" for number in range(MOST + 2)]
        assert await client.subscribe(*filters) == (0,) * MOST + (refused,) * 2
        found = await client.ask(Unsubscribe(7, tuple(filters)))
        reasons = (Reason.SUCCESS,) * MOST + (failed,) * 2
        assert found == UnsubAck(7, reasons if version == V5 else ())


async def test_a_hub_subscribes_to_hundreds_of_topics_at_once(tmp_path: Path) -> None:
    """By default, 500 filters are accepted; a packet has a limit of its own."""
    async with (
        in_process(tmp_path, "hub") as running,
        await MqttClient.connect(running.mqtt, "hub") as client,
    ):
        before = running.store.commits
        assert await client.subscribe(*(f"z/{number}/set" for number in range(500))) == (0,) * 500
        assert running.store.commits - before >= 500 // PART  # others are served in between
        more = await client.subscribe(*(f"z/{number}/get" for number in range(MAX_FILTERS + 1)))
        refused = Reason.QUOTA_EXCEEDED
        assert more == (0,) * 500 + (refused,) * (MAX_FILTERS + 1 - 500)


@pytest.mark.parametrize("filter", ["$share/s/a", "$share:s:a"])
async def test_a_share_cannot_leave_out_what_its_member_publishes(
    running: InProcessGateway, filter: str
) -> None:
    """Source: MQTT 5.0, section 3.8.3.1."""
    async with await MqttClient.connect(running.mqtt, "pump1") as client:
        with pytest.raises(AssertionError, match="reason=130"):
            await client.subscribe(Subscription(filter, no_local=True))
        assert await client.receive() is None


async def test_packets_with_many_filters_are_handled_in_order(tmp_path: Path) -> None:
    filters = tuple(f"z/{number}" for number in range(3 * PART))
    wanted = Subscribe(1, tuple(Subscription(filter, 1) for filter in filters))
    packets = wanted, Unsubscribe(2, filters), Publish("z/1", b"lost"), wanted, PingReq()
    async with (
        in_process(tmp_path, "hub", auto_create=["#"]) as running,
        await MqttClient.connect(running.mqtt, "hub") as client,
    ):
        client.send(*packets)
        found = [await client.receive() for _ in packets[1:]]
        done = (Reason.SUCCESS,) * len(filters)
        subscribed = SubAck(1, (1,) * len(filters))
        assert PingResp() in found
        found.remove(PingResp())  # it is answered at once
        assert found == [subscribed, UnsubAck(2, done), subscribed]


async def test_sessions_of_an_account_take_turns(tmp_path: Path) -> None:
    """Two packets with many filters at once delay others no more than one."""
    filters = tuple(f"z/{number}" for number in range(4 * PART))
    async with (
        in_process(tmp_path, "hub") as running,
        await MqttClient.connect(running.mqtt, "hub", "one") as one,
        await MqttClient.connect(running.mqtt, "hub", "two") as two,
    ):
        before = running.store.commits
        wanted = Subscribe(1, tuple(Subscription(filter, 1) for filter in filters))
        for client in (one, two):
            client.send(wanted)
        answered = SubAck(1, (1,) * len(filters))
        assert [await client.receive() for client in (one, two)] == [answered] * 2
        assert running.store.commits - before >= 2 * len(filters) // PART
