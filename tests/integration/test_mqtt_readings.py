"""Readings that sensors publish by MQTT, from the packet to the event log."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from edge.mqtt.packets import V5, V311, PubComp, Publish, PubRec, PubRel
from tests.helpers.gateway import DOMAIN, Gateway
from tests.helpers.mqtt import MqttClient

TOPIC = "tele/cellar/SENSOR"
SENSOR = (
    b'{"Time":"2026-03-04T10:15:00","SI7021":{"Temperature":%s,"Humidity":null},"TempUnit":"C"}'
)
RULES = """
[[readings]]
filter = "tele/+/SENSOR"
unit = "Cel"
time = "Time"

[[readings]]
filter = "shellies/#"
name = "%2 %f"
"""
TIME = {"timestamp": "2026-03-04T10:15:00"}


@pytest.fixture
def gateway(tmp_path: Path) -> Gateway:
    found = Gateway(tmp_path / "gateway", "plug1", "meter1", auto_create=["#"], require_tls=False)
    found.configure_section("mqtt", listen="127.0.0.1:0", require_tls=False)
    path = found.folder / "fieldpost.toml"
    path.write_text(path.read_text("utf-8") + RULES, "utf-8")
    return found


def readings(gateway: Gateway) -> list[tuple[Any, ...]]:
    fields = "source", "topic", "name", "value", "unit", "qos", "tags"
    return [tuple(each[field] for field in fields) for each in gateway.events("readings")]


def reading(value: float, qos: int) -> tuple[Any, ...]:
    return f"plug1@{DOMAIN}/fw", TOPIC, "SI7021.Temperature", value, "Cel", qos, TIME


@pytest.mark.parametrize("version", [V311, V5])
async def test_readings_of_each_level_are_logged_and_all_else_is_delivered(
    gateway: Gateway, version: int
) -> None:
    with gateway.run() as process:
        async with (
            await MqttClient.connect(process, "plug1", version=version) as plug,
            await MqttClient.connect(process, "meter1", version=version) as meter,
        ):
            await meter.subscribe("shellies/#", qos=1)
            for qos in (0, 1, 2):
                await plug.publish(TOPIC, SENSOR % b"21.5", qos)
            topics = "shellies/plug1/relay/0/power", "shellies/plug1/relay/0"
            for topic, payload in zip(topics, (b"143.27", b"\xffon"), strict=True):
                await plug.publish(topic, payload, 1)
                found = await meter.take()
                assert (found.topic, found.payload) == (topic, payload)
        assert readings(gateway) == [
            *(reading(21.5, qos) for qos in (0, 1, 2)),
            (f"plug1@{DOMAIN}/fw", topics[0], "plug1 power", 143.27, None, 1, {}),
        ]
        (event,) = (each for each in gateway.events("system") if each["name"] == "unlogged")
        assert event["text"] == f"{topics[1]}: invalid JSON: it is not UTF-8"


async def test_a_reading_at_level_2_is_logged_once_across_kills_of_the_gateway(
    gateway: Gateway,
) -> None:
    packet = Publish(TOPIC, SENSOR % b"22.5", 2, id=7)
    keep: dict[str, Any] = {"clean": False, "version": V311}
    with gateway.run() as process:
        async with await MqttClient.connect(process, "plug1", **keep) as plug:
            assert await plug.ask(packet) == PubRec(7)
            process.kill9()
    assert readings(gateway) == []
    with gateway.run() as process:
        async with await MqttClient.connect(process, "plug1", **keep) as plug:
            assert plug.connack.session_present
            assert await plug.ask(replace(packet, dup=True)) == PubRec(7)
            assert await plug.ask(PubRel(7)) == PubComp(7)
            process.kill9()
    with gateway.run() as process:
        async with await MqttClient.connect(process, "plug1", **keep) as plug:
            assert await plug.ask(PubRel(7)) == PubComp(7)
        assert readings(gateway) == [reading(22.5, 2)]
