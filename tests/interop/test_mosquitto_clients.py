"""mosquitto_pub, mosquitto_sub and mosquitto_rr over verified TLS, with both versions of MQTT."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import paho.mqtt.client as mqtt
import pytest
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from edge.ops.devices import devices
from tests.helpers.clients import WAIT_S, Client
from tests.helpers.gateway import PASSWORD
from tests.helpers.mqtt_clients import HOST, MqttSite, mosquitto

EXPIRY: Final = {"5": ("-x", "3600"), "311": ()}
"""Options of a durable session, in addition to `-c`."""

FORMAT: Final = "message %t %q %r %p"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MqttSite]:
    names = [f"{user}-{version}" for user in ("pump", "meter") for version in EXPIRY]
    found = MqttSite(tmp_path_factory.mktemp("mqtt") / "gateway", *names)
    yield found
    with found.process:
        assert found.process.terminate() == 0


class Mosquitto:
    """The command line of mosquitto's programs, for one version of MQTT."""

    def __init__(self, site: MqttSite, version: str) -> None:
        self.site = site
        self.version = version

    def words(self, name: str, user: str, *more: str) -> list[str]:
        port, ca = str(self.site.port), str(self.site.gateway.ca)
        login = ("-u", f"{user}-{self.version}", "-P", PASSWORD, "-V", f"mqttv{self.version}")
        return [mosquitto(name), "-h", HOST, "-p", port, "--cafile", ca, *login, *more]

    def run(self, name: str, user: str, *more: str) -> str:
        """Run a program to its end, and return what it has printed."""
        words = self.words(name, user, *more)
        done = subprocess.run(words, capture_output=True, text=True, timeout=WAIT_S, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def publish(self, topic: str, text: str, *more: str) -> None:
        self.run("mosquitto_pub", "pump", "-t", topic, "-m", text, *more)

    @contextmanager
    def subscribe(self, filter: str, *more: str, user: str = "meter") -> Iterator[Client]:
        """Run mosquitto_sub, subscribed at QoS 2; it is killed in the end."""
        words = self.words("mosquitto_sub", user, "-t", filter, "-q", "2", "-F", FORMAT, *more)
        with Client(["stdbuf", "--output=L", *words, "-d"]) as client:
            assert client.expect("Subscribed").endswith(": 2")
            yield client


@pytest.fixture(scope="module", params=EXPIRY)
def programs(site: MqttSite, request: pytest.FixtureRequest) -> Mosquitto:
    return Mosquitto(site, request.param)


def test_each_level_and_retained_messages(programs: Mosquitto) -> None:
    topic = f"levels/{programs.version}"
    with programs.subscribe(topic) as sub:
        for qos in ("0", "1", "2"):
            programs.publish(topic, f"at-{qos}", "-q", qos)
            assert sub.expect("message") == f"{topic} {qos} 0 at-{qos}"
    programs.publish(topic, "on", "-q", "1", "-r")
    with programs.subscribe(topic) as sub:
        assert sub.expect("message") == f"{topic} 1 1 on"


def test_a_will_is_published_for_a_killed_client(programs: Mosquitto) -> None:
    topic = f"wills/{programs.version}"
    will = ("--will-topic", topic, "--will-payload", "gone", "--will-qos", "1")
    with programs.subscribe(topic) as sub:
        with programs.subscribe("none", *will, user="pump"):
            pass
        assert sub.expect("message") == f"{topic} 1 0 gone"


def test_a_durable_session_across_a_restart_of_the_gateway(programs: Mosquitto) -> None:
    topic = f"durable/{programs.version}"
    session = ("-t", topic, "-q", "2", "-c", "-i", "durable", *EXPIRY[programs.version])
    programs.run("mosquitto_sub", "meter", *session, "-E")
    for qos in ("1", "2"):
        programs.publish(topic, f"at-{qos}", "-q", qos)
    programs.site.restart()
    out = programs.run("mosquitto_sub", "meter", *session, "-C", "2", "-F", FORMAT)
    assert out.splitlines() == [f"message {topic} {qos} 0 at-{qos}" for qos in (1, 2)]


def test_a_share_divides_the_messages(programs: Mosquitto) -> None:
    topic = f"jobs/{programs.version}"
    share = f"$share/workers/{topic}"
    with programs.subscribe(share) as one, programs.subscribe(share, user="pump") as other:
        for number in range(4):
            programs.publish(topic, str(number), "-q", "2")
        found = [client.expect("message") for client in (one, other) for _ in range(2)]
        assert sorted(found) == [f"{topic} 2 0 {number}" for number in range(4)]


def test_a_client_certificate(site: MqttSite, programs: Mosquitto) -> None:
    name, topic = f"cam-{programs.version}", f"certificates/{programs.version}"
    devices.add(site.gateway.folder, name, None, trusted=True, certificate=True)
    place = site.gateway.folder / "devices" / name
    files = ("--cert", place / "cert.pem", "--key", place / "key.pem", "--cafile", place / "ca.pem")
    where = ("-h", HOST, "-p", str(site.port), "-V", f"mqttv{programs.version}")
    with programs.subscribe(topic) as sub:
        words: list[str | Path] = [
            mosquitto("mosquitto_pub"),
            *where,
            *files,
            "-t",
            topic,
            "-m",
            "seen",
            "-q",
            "2",
        ]
        subprocess.run(words, check=True, timeout=WAIT_S)
        assert sub.expect("message") == f"{topic} 2 0 seen"


def test_request_and_response(site: MqttSite) -> None:
    """A responder in paho-mqtt answers to the response topic, with the correlation data."""
    programs = Mosquitto(site, "5")

    def answer(client: mqtt.Client, _data: Any, request: Any) -> None:
        properties = Properties(PacketTypes.PUBLISH)
        properties.CorrelationData = request.properties.CorrelationData
        topic = request.properties.ResponseTopic
        client.publish(topic, b"you said " + request.payload, 1, properties=properties)

    responder = mqtt.Client(CallbackAPIVersion.VERSION2, "responder", protocol=mqtt.MQTTv5)
    responder.username_pw_set("meter-5", PASSWORD)
    responder.tls_set(str(site.gateway.ca))
    responder.on_message = answer
    responder.on_connect = lambda client, *_rest: client.subscribe("requests/#", 1)
    subscribed = threading.Event()
    responder.on_subscribe = lambda *_arguments: subscribed.set()
    responder.connect(HOST, site.port)
    responder.loop_start()
    try:
        assert subscribed.wait(WAIT_S)
        request = ("-t", "requests/1", "-e", "answers/1", "-m", "hello", "-q", "1", "-W", "30")
        more = ("-D", "publish", "correlation-data", "c1")
        assert programs.run("mosquitto_rr", "pump", *request, *more) == "you said hello\n"
    finally:
        responder.disconnect()
        responder.loop_stop()
