"""How operators see devices that speak MQTT."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from edge.mqtt.packets import V5, V311, Disconnect, Property, Publish
from tests.helpers.gateway import Gateway
from tests.helpers.mqtt import MqttClient
from tests.helpers.processes import Process

KEPT: dict[str, Any] = {"clean": False, "properties": {Property.SESSION_EXPIRY: 3600}}


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Gateway:
    found = Gateway(
        tmp_path_factory.mktemp("gateway"), "pump1", "meter1", auto_create=["#"], require_tls=False
    )
    found.configure_section("mqtt", listen="127.0.0.1:0", require_tls=False)
    return found


@pytest.fixture(scope="module")
def process(gateway: Gateway) -> Iterator[Process]:
    with gateway.run() as process:
        yield process


def shown(gateway: Gateway, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(gateway.command("device", "show", name, "--json"))
    return found


async def test_sessions_are_shown_with_protocol_and_client_identifier(
    gateway: Gateway, process: Process
) -> None:
    async with (
        await MqttClient.connect(process, "meter1", "old", version=V311),
        await MqttClient.connect(process, "meter1", "new", version=V5),
    ):
        sessions = shown(gateway, "meter1")["sessions"]
        assert [
            (one["resource"], one["protocol"], one["version"], one["address"]) for one in sessions
        ] == [("new", "mqtt", "5.0", "127.0.0.1"), ("old", "mqtt", "3.1.1", "127.0.0.1")]
        status = json.loads(gateway.command("status", "--json"))
        assert (status["sessions"], status["protocols"]) == (2, {"mqtt": 2})
        assert "mqtt 3.1.1" in gateway.command("device", "list")


async def test_unacknowledged_and_queued_messages_are_counted(
    gateway: Gateway, process: Process
) -> None:
    async with (
        await MqttClient.connect(process, "meter1", "kept", **KEPT) as meter,
        await MqttClient.connect(process, "pump1") as pump,
    ):
        await meter.subscribe("counted/#", qos=1)
        await pump.publish("counted/1", b"a", 1)
        assert isinstance(await meter.receive(), Publish)
        (session,) = shown(gateway, "meter1")["sessions"]
        assert session["unacknowledged"] == 1
        (durable,) = shown(gateway, "meter1")["durable"]
        expected = {"resource": "kept", "seconds": 3600, "until": None, "queued": 0, "in_flight": 1}
        assert durable == expected
        assert await meter.ask(Disconnect()) is None
        await pump.publish("counted/2", b"b", 1)
        found = shown(gateway, "meter1")
        (durable,) = found["durable"]
        assert (found["state"], found["sessions"]) == ("offline", [])
        assert durable["queued"] + durable["in_flight"] == 2
        assert durable["until"] > found["seen"]
        words = gateway.command("device", "show", "meter1").splitlines()[-1].split()
        assert words[:2] == ["kept", "until"]
        assert words[-2:] == [str(durable["queued"]), str(durable["in_flight"])]


async def test_a_member_of_a_share_is_shown(gateway: Gateway, process: Process) -> None:
    async with await MqttClient.connect(process, "meter1", "worker") as meter:
        await meter.subscribe("$share/work/jobs/#", qos=1)
        queue = json.loads(gateway.command("queue", "show", "$share:work:jobs/#", "--json"))
        (member,) = queue["members"]
        assert member["jid"] == "meter1@gw.example/worker"
