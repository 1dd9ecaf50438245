"""Tests of expiry in gateways that crash, lose their power, or have their clock set.

Real processes, on clocks that the test sets (`tests.helpers.machine`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from edge.engine.store import database
from edge.engine.store.events import SYSTEM
from tests.helpers.gateway import Gateway, bind_session
from tests.helpers.machine import ClockReadings, run, write_readings
from tests.helpers.processes import Process
from tests.helpers.store import unsealed_events
from tests.helpers.xmpp import log_message

DAY = 86_400.0
PATIENCE = 20.0
SPEED = 30
"""Seconds of the gateway's clock per real second."""


@pytest.fixture
def gateway(tmp_path: Path) -> Gateway:
    options: dict[str, object] = {"require_tls": False, "heartbeat": 1, "held_ttl": 120.0}
    return Gateway(tmp_path / "gateway", "pump1", **options)


async def hold(process: Process, msg_id: str) -> None:
    """Offer an assured message, and never ask for its delivery."""
    async with await bind_session(process, "pump1") as client:
        assert await client.assured(msg_id, log_message(1)) == "received"


def query(gateway: Gateway, sql: str) -> list[Any]:
    path = gateway.folder / database.FILE_NAME
    with closing(database.connect_reader(path)) as db:
        return [value for (value,) in db.execute(sql)]


def held(gateway: Gateway) -> list[str]:
    return query(gateway, "SELECT msg_id FROM held ORDER BY id")


def saved(gateway: Gateway) -> float:
    (service,) = query(gateway, "SELECT value FROM meta WHERE key = 'service'")
    return float(service)


def unsealed(gateway: Gateway) -> list[str | None]:
    with closing(database.connect_reader(gateway.folder / database.FILE_NAME)) as db:
        return [event.name for event in unsealed_events(db, SYSTEM)]


def system(gateway: Gateway, name: str) -> list[dict[str, Any]]:
    return [event for event in gateway.events("system") if event["name"] == name]


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not condition():  # noqa: ASYNC110 - another process writes it
            await asyncio.sleep(0.05)


async def test_a_message_expires_in_a_gateway_with_short_runs(
    gateway: Gateway, tmp_path: Path
) -> None:
    """Each run lasts for less than a real second, in a boot of its own, on a wrong clock."""
    clock, boots = tmp_path / "clock", 0
    while boots < 20:
        boots += 1
        write_readings(
            clock, ClockReadings(f"boot-{boots}", 5.0, -50 * 365 * DAY, synchronised=False)
        )
        with run(gateway.folder, clock, SPEED) as process:
            if boots == 1:
                await hold(process, "m1")
            before = saved(gateway)
            await until(lambda before=before: saved(gateway) > before)  # type: ignore[misc]
            process.kill9()
        if not held(gateway):
            break
    assert 2 <= boots < 20, "no run was as long as that"
    assert system(gateway, "expired")


async def test_setting_the_clock_expires_nothing_and_is_logged(
    gateway: Gateway, tmp_path: Path
) -> None:
    clock = tmp_path / "clock"
    write_readings(clock, ClockReadings("boot-1", 5.0, 0.0, synchronised=True))
    with run(gateway.folder, clock) as process:
        await hold(process, "m1")
        write_readings(clock, ClockReadings("boot-1", 5.0, 30 * DAY, synchronised=False))
        await until(lambda: "clock_lost" in unsealed(gateway))
        process.kill9()
    write_readings(clock, ClockReadings("boot-1", 15.0, -30 * DAY, synchronised=True))
    with run(gateway.folder, clock) as process:
        assert held(gateway) == ["m1"]
        assert process.terminate() == 0
    assert held(gateway) == ["m1"]
    (stepped,) = system(gateway, "clock_stepped")
    assert stepped["value"] == pytest.approx(30 * DAY, abs=1.0)
    tags = [event["tags"] for event in system(gateway, "start")]
    found = [(each["previous"], each["off_known"]) for each in tags]
    assert found == [("unknown", "unknown"), ("unclean", "uptime")]


async def test_a_day_without_power_is_counted_when_it_becomes_known(
    gateway: Gateway, tmp_path: Path
) -> None:
    """Messages stored before the clock was corrected are not aged by the correction."""
    began = time.monotonic()
    clock = tmp_path / "clock"
    write_readings(clock, ClockReadings("boot-1", 5.0, 0.0, synchronised=True))
    with run(gateway.folder, clock) as process:
        await hold(process, "old")
        assert process.terminate() == 0
    write_readings(clock, ClockReadings("boot-2", 5.0, -365 * DAY, synchronised=False))
    with run(gateway.folder, clock) as process:
        await hold(process, "new")
        assert held(gateway) == ["old", "new"]
        write_readings(clock, ClockReadings("boot-2", 5.0, DAY, synchronised=True))
        await until(lambda: held(gateway) == ["new"])
        assert process.terminate() == 0
    (off,) = system(gateway, "time_off")
    assert off["value"] == pytest.approx(DAY, abs=5.0 + time.monotonic() - began)
    write_readings(clock, ClockReadings("boot-3", 5.0, 2 * DAY, synchronised=True))
    with run(gateway.folder, clock) as process:
        await until(lambda: not held(gateway))
        assert process.terminate() == 0
    tags = system(gateway, "start")[-1]["tags"]
    assert (tags["previous"], tags["off_known"]) == ("clean", "wall clock")
    assert float(tags["off"]) == pytest.approx(DAY, abs=5.0 + time.monotonic() - began)
