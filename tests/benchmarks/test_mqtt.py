from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from socketserver import StreamRequestHandler, ThreadingTCPServer
from threading import Thread
from typing import Any

import pytest

from benchmarks import mqtt, native, server
from benchmarks.__main__ import main
from benchmarks.exchange_steps import MESSAGES, SensorStream, transaction
from benchmarks.mqtt_steps import Publications
from benchmarks.peer_servers import MQTT, find_program
from benchmarks.peers import AWAY, Case, PeerRuns
from benchmarks.relay_steps import GROUP
from edge.config import load
from edge.mqtt.packets import V5, V311
from tests.benchmarks.test_peers import RUN, built

CONNECT, PUBLISH, PUBREL, SUBSCRIBE, PINGREQ = 1, 3, 6, 8, 12
PUBACK, PUBREC, PUBCOMP = 0x40, 0x50, 0x70
QUOTA_EXCEEDED = 0x97

Answers = list[bytes]
Change = Callable[[Answers], Answers]


def packet(kind: int, content: bytes) -> bytes:
    assert len(content) < 128
    return bytes((kind, len(content))) + content


def same(answers: Answers) -> Answers:
    return answers


class Broker(ThreadingTCPServer):
    """A server with one subscriber, which keeps what is published, and the last of each topic.

    Attributes:
        answers: change the answers to a message.
        messages: change what the subscriber receives.
        numbers: the packet identifiers of the messages.
    """

    def __init__(
        self,
        version: int,
        answers: Change = same,
        messages: Change = same,
        receive_maximum: int = 65_535,
    ) -> None:
        super().__init__(("127.0.0.1", 0), Client)
        self.answers = answers
        self.messages = messages
        self.numbers: set[int] = set()
        self._no_properties = b"\0" if version == V5 else b""
        self._connected = b"\3\x21" + receive_maximum.to_bytes(2) if version == V5 else b""
        self._queue: Answers = []
        self._retained: dict[bytes, bytes] = {}
        self._has_session = False

    def answer(self, first: int, content: bytes) -> Answers:
        kind = first >> 4
        if kind == CONNECT:
            resumed = b"subscriber" in content and self._has_session and not content[7] & 2
            waiting = self.messages(self._queue) if resumed else []
            return [packet(0x20, bytes((resumed, 0)) + self._connected), *waiting]
        if kind == SUBSCRIBE:
            self._has_session = True
            kept = self.messages(list(self._retained.values()))
            return [*kept, packet(0x90, content[:2] + self._no_properties + b"\2")]
        if kind == PINGREQ:
            return [packet(0xD0, b"")]
        if kind == PUBREL:
            return [packet(PUBCOMP, content)]
        assert kind == PUBLISH
        return self._publish(first, content)

    def _publish(self, first: int, content: bytes) -> Answers:
        qos, size = first >> 1 & 3, 2 + int.from_bytes(content[:2])
        topic, number, rest = content[:size], content[size:][: 2 if qos else 0], content[size:]
        self.numbers.add(int.from_bytes(number))
        message = packet(0x30, topic + rest.removeprefix(number))
        self._queue.append(message)
        self._retained[topic] = message
        return self.answers([packet((0, PUBACK, PUBREC)[qos], number)] if qos else [])


class Client(StreamRequestHandler):
    server: Broker

    def handle(self) -> None:
        while head := self.rfile.read(2):
            content = self.rfile.read(head[1])
            self.wfile.write(b"".join(self.server.answer(head[0], content)))


def measured(
    qos: int, version: int, subscriber: str, *, patience: float = 0.01, **options: Any
) -> dict[str, Any]:
    """Return what the load generator prints for publications to the broker, and the identifiers of
    their packets. It waits `patience` seconds for answers, and longer for messages."""
    program = built(native.LOAD)
    with Broker(version, **options) as broker:
        thread = Thread(target=broker.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        plan = {
            "protocol": "mqtt", "host": "127.0.0.1", "port": broker.server_address[1],
            "connections": 2, "window": 2, "exchanges": 12, "password": "benchmark", "body": "21.5",
            "seconds": patience, "silence": 1 + patience, "qos": qos, "version": version,
            "subscriber": subscriber,
        }  # fmt: skip
        command = [str(program), *(f"{name}={value}" for name, value in plan.items())]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        broker.shutdown()
        thread.join()
    assert done.returncode == 0, done.stderr
    return {**json.loads(done.stdout.splitlines()[-1]), "numbers": broker.numbers}


@pytest.mark.parametrize("version", [V311, V5])
@pytest.mark.parametrize(("qos", "subscriber"), [(0, ""), (1, ""), (2, ""), (1, AWAY), (2, AWAY)])
def test_publications_are_finished_and_all_found(qos: int, version: int, subscriber: str) -> None:
    found = measured(qos, version, subscriber, patience=30.0)
    assert [found[name] for name in ("sent", "errors", "missing", "repeated")] == [12, 0, 0, 0]


def first_time(change: Change) -> Change:
    changes = [change]
    return lambda answers: changes.pop()(answers) if changes else answers


WRONG: dict[str, Change] = {
    "refused": lambda found: [packet(found[0][0], found[0][2:] + bytes((QUOTA_EXCEEDED, 0)))],
    "another type": lambda found: [packet(PUBCOMP, found[0][2:])],
    "twice": lambda found: 2 * found,
}


@pytest.mark.parametrize("what", WRONG)
def test_wrong_answers_to_publications_are_counted(what: str) -> None:
    found = measured(1, V5, AWAY, patience=30.0, answers=first_time(WRONG[what]))
    assert found["errors"] == 1


@pytest.mark.parametrize(
    ("subscriber", "messages", "missing", "repeated"),
    [
        ("", lambda found: found[:1], 1, 0),
        (AWAY, lambda found: found[:3] + found[4:], 1, 0),
        (AWAY, lambda found: found + found[-1:], 0, 1),
    ],
)  # fmt: skip
def test_messages_without_effect_are_counted(
    subscriber: str, messages: Change, missing: int, repeated: int
) -> None:
    found = measured(2, V311, subscriber, messages=messages)
    assert (found["errors"], found["missing"], found["repeated"]) == (0, missing, repeated)


def test_a_window_is_at_most_the_receive_maximum_of_the_server() -> None:
    """A place in the window uses two identifiers in turn."""
    assert measured(1, V5, "")["numbers"] == {1, 2, 3, 4}
    assert measured(1, V5, "", receive_maximum=1)["numbers"] == {1, 2}


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_the_measured_publication_uses_the_gateways_handlers_and_can_be_repeated(qos: int) -> None:
    with transaction(SensorStream()) as tx:
        publications = Publications(tx, qos)
        for _ in range(2 * GROUP):
            publications.publish(tx)
        tx.run_before_commit()
        assert tx.row("SELECT count(*) FROM held") == (0,)
        assert tx.row("SELECT count(*) FROM dead") == (0,)
        (content,) = tx.row("SELECT body FROM items")
        assert content.endswith(b"%08d" % ((2 * GROUP - 1) % MESSAGES))


CASE = Case("log", 50, 2)


def runs(killed: int = 0, **rates: tuple[int, ...]) -> PeerRuns:
    """Make the results of servers with these rates at QoS 2; `killed` is how many messages the
    gateway has lost."""
    found = {
        name.replace("_", "-"): [replace(RUN, exchanges=rate) for rate in each]
        for name, each in rates.items()
    }
    recovered = {("gateway-mqtt", 2): replace(RUN, sent=1000, missing=killed)}
    return PeerRuns({name: MQTT[name] for name in found}, {CASE: found}, recovered=recovered)


def test_the_page_compares_rates_by_qos_and_connections() -> None:
    found = runs(gateway_mqtt=(50, 60, 90), mosquitto_sqlite=(100, 100, 100))
    page = "\n".join(mqtt.topic(mqtt.PLAN, found).blocks)
    assert "| QoS 2 | none | log | 50 | 0.60 (0.50 to 0.90) |" in page
    assert "| the gateway, MQTT | QoS 2 | 1000 | 0 | 0 |" in page
    assert "## Log events with a tag, 50 connections, QoS 2, subscriber: none" in page


@pytest.mark.parametrize(("rate", "killed", "reached"), [(41, 0, [1, 1]), (39, 1, [0, 0])])
def test_goals_are_rates_and_that_no_message_is_lost(
    rate: int, killed: int, reached: list[bool]
) -> None:
    found = runs(killed, gateway_mqtt=(rate,), mosquitto_sqlite=(100,))
    assert [goal.reached for goal in mqtt.goals(found)] == reached


def test_an_option_of_one_section_is_set_there_alone(tmp_path: Path) -> None:
    server.prepare(tmp_path / "gateway", 1, **{"web.listen": '"127.0.0.1:9105"'})
    found = load.load(tmp_path / "gateway")
    assert found.web.listen == "127.0.0.1:9105"
    assert found.xmpp.listen == "127.0.0.1:0"
    assert not found.xmpp.require_tls


@pytest.mark.long
def test_a_quick_run_kills_servers_and_finds_what_they_have_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if missing := [name for name in ("gcc", "mosquitto") if find_program(name) is None]:
        pytest.skip(f"no {' and no '.join(missing)} (make interop-packages)")
    assert main(["mqtt", "--quick", "--scratch", str(tmp_path)]) == 0
    output = capsys.readouterr().out
    assert re.search(r"\| mosquitto, in memory \| QoS 2 \| (\d+) \| \1 \| 0 \|", output)
    assert not list(tmp_path.iterdir())
