"""`fieldpost status` of a running, killed and stopped gateway."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from edge.config.load import load
from edge.engine.clock import boot_id
from edge.ops import control
from edge.ops.status import PROCESS_LIMITS
from tests.helpers.gateway import DOMAIN, PASSWORD, Gateway, port_of
from tests.helpers.processes import Process
from tests.helpers.xmpp import log_in, log_message


@pytest.fixture
def gateway(tmp_path: Path) -> Gateway:
    return Gateway(tmp_path / "gateway", "pump1", "valve")


@pytest.fixture
def process(gateway: Gateway) -> Iterator[Process]:
    with gateway.run() as started:
        yield started


def status(gateway: Gateway) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(gateway.command("status", "--json"))
    return found


async def test_status_shows_the_use_of_a_running_gateway(
    gateway: Gateway, process: Process
) -> None:
    before = status(gateway)
    port = port_of(process)
    async with (
        await log_in(port, gateway.ca, "pump1", PASSWORD) as pump,
        await log_in(port, gateway.ca, "pump1", PASSWORD, "other"),
        await log_in(port, gateway.ca, "valve", PASSWORD),
    ):
        await pump.assured("m1", log_message(1))
        found = status(gateway)
    limits = found["limits"]
    assert {name for name, limit in limits.items() if limit.get("used", 0) is None} == set()
    assert {name for name in PROCESS_LIMITS if limits[name]["used"]} >= {
        *("sessions", "sessions_per_account", "sessions_per_address")
    }
    for name, figure in (
        ("sessions", 3),
        ("sessions_per_account", 2),
        ("sessions_per_address", 3),
        ("unauthenticated", 0),
        ("held_messages", 1),
    ):
        assert limits[name]["used"] == figure
    assert limits["held_messages_per_source"]["of"] == f"pump1@{DOMAIN}"
    assert (found["gateway"], found["state"], found["sessions"]) == (DOMAIN, "running", 3)
    assert found["waiting"]["held"] == 1
    assert found["boot"] == boot_id()
    assert 0 <= before["uptime"] < found["uptime"] < 600
    assert before["service"] < found["service"]
    assert found["synchronised"] in (True, False)
    assert not found["changed"]


def test_status_shows_the_limits_in_force(gateway: Gateway, process: Process) -> None:
    gateway.configure(sessions=77)
    found = status(gateway)
    assert found["changed"]
    assert found["limits"]["sessions"]["allowed"] == 1000
    text = gateway.command("status")
    assert "apply them with `fieldpost reload`" in text
    assert text.startswith(f"{DOMAIN}: running, fieldpost ")
    assert process.terminate() == 0
    found = status(gateway)
    assert not found["changed"]
    assert found["limits"]["sessions"]["allowed"] == 77
    assert {
        name: limit["allowed"] for name, limit in found["limits"].items()
    } == msgspec.to_builtins(load(gateway.folder).limits)


def test_status_after_a_kill_and_a_restart(gateway: Gateway, process: Process) -> None:
    place = gateway.folder / control.SOCKET
    assert place.stat().st_mode & 0o777 == 0o600
    process.kill9()
    assert place.is_socket()
    found = status(gateway)
    assert (found["state"], found["trouble"]) == ("not running", None)
    assert found["limits"]["sessions"] == {"allowed": 1000, "unit": "sessions", "used": None}
    with gateway.run() as again:
        assert status(gateway)["state"] == "running"
        assert again.terminate() == 0
    assert not place.exists()
    assert status(gateway)["state"] == "not running"
