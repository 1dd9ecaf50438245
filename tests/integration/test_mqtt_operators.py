"""MQTT sessions in the commands and pages for operators."""

from __future__ import annotations

import json
import re
from typing import Any
from unittest.mock import ANY

import pytest

from edge import __version__
from edge.config.options import AccessRule
from edge.mqtt.packets import (
    V5,
    V311,
    ConnAck,
    Connect,
    Disconnect,
    Property,
    PubAck,
    Publish,
    Subscribe,
    Subscription,
)
from edge.mqtt.reasons import Reason
from tests.helpers.folder import set_access
from tests.helpers.gateway import PASSWORD, Gateway
from tests.helpers.mqtt import MqttClient
from tests.helpers.mqtt_websocket import WebSocketClient
from tests.helpers.processes import Process

KEPT: dict[str, Any] = {"clean": False, "properties": {Property.SESSION_EXPIRY: 3600}}


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Gateway:
    found = Gateway(
        tmp_path_factory.mktemp("gateway"), "pump1", "meter1", auto_create=["#"], require_tls=False
    )
    listen = {"listen": "127.0.0.1:0", "listen_ws": "127.0.0.1:0"}
    found.configure_section("mqtt", **listen, require_tls=False, sys_interval=0.1)
    every, live = ["#"], ["$SYS/#", "$fieldpost/status"]
    set_access(
        found.folder,
        AccessRule(device="meter1", publish=every, subscribe=[*every, *live]),
        AccessRule(device="*", publish=every, subscribe=every),
    )
    return found


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
        times = {"seconds": 3600, "left": None, "until": None}
        assert durable == {"resource": "kept", "queued": 0, "in_flight": 1} | times
        assert "away" not in gateway.command("device", "list")
        assert await meter.ask(Disconnect()) is None
        await pump.publish("counted/2", b"b", 1)
        found = shown(gateway, "meter1")
        (durable,) = found["durable"]
        assert (found["state"], found["sessions"]) == ("offline", [])
        assert durable["queued"] + durable["in_flight"] == 2
        assert durable["until"] > found["seen"]
        words = gateway.command("device", "show", "meter1").splitlines()[-1].split()
        numbers = [str(durable["queued"]), str(durable["in_flight"])]
        assert (words[0], words[3], words[-2:]) == ("kept", "until", numbers)
        rows = [line.split() for line in gateway.command("device", "list").splitlines()]
        (away,) = [row for row in rows if row[0] == "away"]
        assert ("kept" in away, away[-2:]) == (True, numbers)


async def test_a_member_of_a_share_is_shown(gateway: Gateway, process: Process) -> None:
    async with await MqttClient.connect(process, "meter1", "worker") as meter:
        await meter.subscribe("$share/work/jobs/#", qos=1)
        queue = json.loads(gateway.command("queue", "show", "$share:work:jobs/#", "--json"))
        (member,) = queue["members"]
        assert member["jid"] == "meter1@gw.example/worker"


async def figures(client: MqttClient, count: int) -> dict[str, str]:
    """Return the first retained messages, by topic."""
    found: dict[str, str] = {}
    while len(found) < count:
        packet = await client.receive()
        assert isinstance(packet, Publish)
        assert packet.qos == 0
        if packet.retain:
            found[packet.topic] = packet.payload.decode()
    return found


async def test_a_monitor_gets_the_figures_at_once_and_again(
    gateway: Gateway, process: Process
) -> None:
    async with await MqttClient.connect(process, "meter1", "away", **KEPT) as away:
        assert await away.ask(Disconnect()) is None
    app = Connect("app", user_name="pump1", password=PASSWORD.encode())
    async with (
        await MqttClient.connect(process, "meter1", "monitor", version=V311) as meter,
        await WebSocketClient.open(process) as other,
    ):
        answer = await other.ask(app)
        assert isinstance(answer, ConnAck)
        assert answer.reason is Reason.SUCCESS
        assert await meter.subscribe("$SYS/#", qos=2) == (2,)
        found = await figures(meter, 15 + 8 * 3)
        assert found["$SYS/broker/version"] == f"fieldpost {__version__}"
        assert found["$SYS/broker/uptime"].endswith(" seconds")
        names = ("connected", "disconnected", "total", "maximum")
        connected, kept, total, most = (int(found[f"$SYS/broker/clients/{n}"]) for n in names)
        assert (connected >= 2, kept >= 1, total) == (True, True, connected + kept)
        assert most >= 2
        assert int(found["$SYS/broker/messages/received"]) >= 2
        assert int(found["$SYS/broker/bytes/received"]) > int(
            found["$SYS/broker/messages/received"]
        )
        assert int(found["$SYS/broker/subscriptions/count"]) >= 1
        assert "$SYS" not in gateway.command("node", "list")
        assert re.fullmatch(r"\d+\.\d\d", found["$SYS/broker/load/publish/received/15min"])
        loads = "messages/received", "bytes/sent", "publish/sent", "connections", "sockets"
        waiting = {f"$SYS/broker/load/{name}/1min" for name in loads}
        while waiting:  # the first figures may be older than the first averages
            packet = await meter.receive()
            assert isinstance(packet, Publish)
            assert (packet.topic in found, packet.retain) == (True, False)
            if packet.topic in waiting and float(packet.payload):
                waiting.remove(packet.topic)


async def test_the_status_is_the_one_of_the_command(gateway: Gateway, process: Process) -> None:
    async with await MqttClient.connect(process, "meter1", "monitor") as meter:
        wanted = Subscription("$fieldpost/status", 1, retain_as_published=True)
        await meter.subscribe(wanted)
        expected = json.loads(gateway.command("status", "--json"))
        for _ in range(2):
            packet = await meter.receive()
            assert isinstance(packet, Publish)
            assert packet.retain
            assert packet.properties[Property.CONTENT_TYPE] == "application/json"
            status = json.loads(packet.payload)
            assert status.keys() == expected.keys()
            assert (status["state"], status["health"]) == (expected["state"], expected["health"])


async def test_figures_are_for_those_whom_a_rule_allows_to_read_them(process: Process) -> None:
    async with await MqttClient.connect(process, "pump1") as pump:
        assert await pump.subscribe("$SYS/#", "#") == (Reason.NOT_AUTHORIZED, 0)
        assert await pump.ask(Publish("$SYS/broker/version", b"x", 1, id=1)) == PubAck(
            1, Reason.NOT_AUTHORIZED, {Property.REASON_STRING: ANY}
        )


async def test_a_subscription_that_wants_no_retained_messages_gets_new_figures(
    process: Process,
) -> None:
    async with await MqttClient.connect(process, "meter1", "monitor") as meter:
        for identifier, filter in enumerate(("$SYS/+/uptime", "$SYS/broker/uptime"), 1):
            wanted = (Subscription(filter, retain_handling=2),)
            meter.send(Subscribe(1, wanted, {Property.SUBSCRIPTION_ID: (identifier,)}))
        packets: list[Publish] = []
        while not packets or len(packets[-1].properties[Property.SUBSCRIPTION_ID]) < 2:
            packet = await meter.receive()
            assert packet is not None
            packets += [packet] if isinstance(packet, Publish) else []
        packets.append(await meter.take())
        assert {(one.topic, one.retain) for one in packets} == {("$SYS/broker/uptime", False)}
        assert packets[-1].properties[Property.SUBSCRIPTION_ID] == (1, 2), "once for both"
