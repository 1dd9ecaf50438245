"""MQTT clients over verified TLS: paho-mqtt, aiomqtt and MQTT.js, each with its own defaults."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pytest

from tests.helpers.clients import Client
from tests.helpers.mqtt_clients import PROGRAM_NAMES, MqttSite

NUMBERS: Final = 60
KILLS: Final = (5, 30)
"""The messages after which the gateway is killed, while others are in flight both ways."""

ACCOUNTS: Final = [f"{user}-{program}" for program in PROGRAM_NAMES for user in ("pump1", "pump2")]
"""Each program has two accounts, because the durable sessions of an account are limited."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MqttSite]:
    found = MqttSite(tmp_path_factory.mktemp("mqtt") / "gateway", *ACCOUNTS)
    yield found
    with found.process:
        assert found.process.terminate() == 0


@pytest.fixture(scope="module", params=PROGRAM_NAMES)
def program(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def subscribe(client: Client, filter: str, qos: int) -> None:
    client.send_line("subscribe", filter, str(qos))
    assert client.expect("subscribed", filter) == str(qos)


def publish(client: Client, topic: str, qos: int, text: str) -> None:
    client.send_line("publish", topic, str(qos), text)
    client.expect("published", topic)


@pytest.mark.parametrize("transport", ["tls", "wss"])
def test_each_level_and_retained_messages(site: MqttSite, program: str, transport: str) -> None:
    topic = f"levels/{program}/{transport}"
    user = f"pump1-{program}"
    with site.start(program, user, f"levels-{transport}", transport=transport) as client:
        client.expect("online")
        subscribe(client, f"{topic}/#", 2)
        for qos in (0, 1, 2):
            publish(client, topic, qos, f"at-{qos}")
            assert client.expect("message") == f"{topic} {qos} 0 at-{qos}"
        client.send_line("retain", f"{topic}/state", "on")
        assert client.expect("message") == f"{topic}/state 1 0 on"
        subscribe(client, f"{topic}/+", 1)
        assert client.expect("message") == f"{topic}/state 1 1 on"
        assert client.quit() == 0


def test_a_will_is_published_for_a_killed_client(site: MqttSite, program: str) -> None:
    topic = f"wills/{program}"
    with site.start(program, f"pump1-{program}", "watcher") as watcher:
        watcher.expect("online")
        subscribe(watcher, topic, 1)
        with site.start(program, f"pump2-{program}", "will", topic) as client:
            client.expect("online")
        assert watcher.expect("message") == f"{topic} 1 0 gone"


def test_a_durable_session_across_a_restart_of_the_gateway(site: MqttSite, program: str) -> None:
    topic = f"durable/{program}"
    with site.start(program, f"pump1-{program}", "durable") as client:
        client.expect("online")
        subscribe(client, topic, 2)
        assert client.quit() == 0
    with site.start(program, f"pump2-{program}", "sender") as sender:
        sender.expect("online")
        for qos in (1, 2):
            publish(sender, topic, qos, f"at-{qos}")
        assert sender.quit() == 0
    site.restart()
    with site.start(program, f"pump1-{program}", "durable") as client:
        client.expect("online")
        assert [client.expect("message") for _ in range(2)] == [
            f"{topic} {qos} 0 at-{qos}" for qos in (1, 2)
        ]
        assert client.quit() == 0


def test_a_share_divides_the_messages(site: MqttSite, program: str) -> None:
    topic = f"jobs/{program}"
    with (
        site.start(program, f"pump1-{program}", "worker") as one,
        site.start(program, f"pump2-{program}", "worker") as other,
    ):
        for client in (one, other):
            client.expect("online")
            subscribe(client, f"$share/workers/{topic}", 2)
        for number in range(4):
            publish(one, topic, 2, str(number))
        found = [client.expect("message") for client in (one, other) for _ in range(2)]
        assert sorted(found) == [f"{topic} 2 0 {number}" for number in range(4)]


@pytest.mark.parametrize("program", [p for p in PROGRAM_NAMES if not p.startswith("aiomqtt")])
def test_messages_in_flight_arrive_once_across_kills_of_the_gateway(
    site: MqttSite, program: str
) -> None:
    """aiomqtt leaves it to its user to repeat a publication."""
    topic = f"once/{program}"
    with (
        site.start(program, f"pump1-{program}", "receiver") as receiver,
        site.start(program, f"pump2-{program}", "counter") as counter,
    ):
        receiver.expect("online")
        counter.expect("online")
        subscribe(receiver, topic, 2)
        counter.send_line("count", topic, str(NUMBERS))
        found = []
        for number in range(NUMBERS):
            found.append(receiver.expect("message"))
            if number in KILLS:
                site.restart()
                counter.expect("online")  # paho-mqtt repeats messages if it fails to connect
        assert sorted(found) == sorted(f"{topic} 2 0 {number}" for number in range(NUMBERS))
        counter.expect("published", topic)
        publish(counter, topic, 2, "end")
        assert receiver.expect("message") == f"{topic} 2 0 end"
