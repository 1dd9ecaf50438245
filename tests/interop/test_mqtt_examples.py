"""The programs in `examples/` that speak MQTT: with paho-mqtt, MQTT.js and mosquitto's clients."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TypeAlias

import pytest

from tests.helpers.clients import WAIT_S, Client, node_with
from tests.helpers.gateway import PASSWORD
from tests.helpers.mqtt_clients import HOST, MqttSite, mosquitto

EXAMPLES: Final = Path(__file__).parents[2] / "examples"

Program: TypeAlias = Callable[[str], list[str | Path]]
"""Returns the command of the example `sensor` or `worker`."""


@pytest.fixture(scope="module", params=["paho-mqtt", "MQTT.js"])
def program(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Program:
    if request.param == "paho-mqtt":
        return lambda name: [sys.executable, EXAMPLES / f"mqtt_{name}.py"]
    node, packages = node_with("mqttjs")
    folder = tmp_path_factory.mktemp("example") / "mqttjs"
    shutil.copytree(EXAMPLES / "mqttjs", folder)
    example, tested = (
        json.loads((path / "package.json").read_text("utf-8"))["dependencies"]
        for path in (folder, packages.parent)
    )
    assert example == tested
    (folder / "node_modules").symlink_to(packages)
    return lambda name: [node, folder / f"{name}.js"]


@pytest.fixture
def site(tmp_path: Path) -> Iterator[MqttSite]:
    found = MqttSite(tmp_path / "gateway", "pump1", "pump2", "meter")
    with found.process:
        yield found
        assert found.process.terminate() == 0


@contextmanager
def running(site: MqttSite, command: list[str | Path], *words: str | Path) -> Iterator[Client]:
    """Run an example; it is killed in the end."""
    with Client([*command, HOST, str(site.port), site.gateway.ca, *words]) as client:
        client.send_line(PASSWORD)
        client.close_input()
        yield client


def test_a_sensor_publishes_each_reading_once(site: MqttSite, program: Program) -> None:
    topic = "pump1/temp"
    with site.start("paho-v5", "meter", "fw") as meter:
        meter.expect("online")
        meter.send_line("subscribe", topic, "2")
        meter.expect("subscribed")
        with running(site, program("sensor"), "pump1", topic) as sensor:
            assert sensor.wait_ended() == 0
            assert len([line for line in sensor.lines() if "published" in line]) == 3
        found = [meter.expect("message", topic, "2", "0") for _ in range(3)]
        assert [json.loads(text)["temperature"] for text in found] == [21.5, 21.7, 21.6]


def test_a_sensor_is_told_that_it_may_not_publish(site: MqttSite, program: Program) -> None:
    topic = "owned/by/the/gateway"
    site.gateway.command("node", "create", topic)
    with running(site, program("sensor"), "pump1", "pump1/temp") as sensor:
        assert sensor.wait_ended() == 0
    with running(site, program("sensor"), "pump1", topic) as sensor:  # in the same session
        assert sensor.wait_ended() == 0
        refusals = [line for line in sensor.lines() if "published" not in line]
        assert len(refusals) == 3
        assert all("Not authorized" in line or "not found" in line for line in refusals)


def test_another_worker_takes_over_the_jobs(
    site: MqttSite, program: Program, tmp_path: Path
) -> None:
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
    one = (program("worker"), "pump1", place(program, tmp_path / "one"))
    other = (program("worker"), "pump2", place(program, tmp_path / "other"))
    with site.start("paho-v5", "meter", "jobs") as meter:
        meter.expect("online")

        def publish(*payloads: str) -> None:
            for payload in payloads:
                meter.send_line("publish", "jobs/pump", "2", payload)
                meter.expect("published")

        with running(site, *other) as second:
            second.expect("subscribed")
            with running(site, *one) as first:
                first.expect("subscribed")
                publish('{"id":1}', '{"id":2}')
                found = {client.expect("stored") for client in (first, second)}
                assert found == {"1", "2"}
            # It is killed, perhaps before its acknowledgement is sent: then its job comes again.
            publish("[]", '{"id":3}', '{"id":4}')
            while not found >= {"3", "4"}:
                found.add(second.expect("stored"))
            assert found == {"1", "2", "3", "4"}


def place(program: Program, folder: Path) -> Path:
    """Return where a worker stores its results: a file in Python, a folder in JavaScript."""
    return folder / "results.db" if program("worker")[0] == sys.executable else folder


def test_the_lines_for_mosquitto(site: MqttSite, tmp_path: Path) -> None:
    mosquitto("mosquitto_pub")
    text = (EXAMPLES / "README.md").read_text("utf-8")
    [block] = re.findall(r"^```console\n(.+?)^```", text, re.MULTILINE | re.DOTALL)
    script = re.sub(r"^\$ ", "", block, flags=re.MULTILINE)
    script = script.replace("-h gw.example -p 8883", f"-h {HOST} -p {site.port}")
    shutil.copy(site.gateway.ca, tmp_path / "ca.pem")
    (tmp_path / "password.txt").write_text(f"{PASSWORD}\n", "utf-8")
    done = subprocess.run(
        ["bash", "-euc", script],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, '{"temperature": 21.5}\n'), done.stderr
