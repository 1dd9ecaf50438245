"""`fieldpost status` of a running, killed and stopped gateway."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from edge.config.load import load
from edge.engine.clock import boot_id
from edge.errors import SetupError
from edge.ops import control
from edge.ops.status import PROCESS_LIMITS, limits_by_name
from tests.helpers.gateway import DOMAIN, PASSWORD, Gateway, port_of
from tests.helpers.processes import Process, start
from tests.helpers.scripted_server import SECRET, serving
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
    assert {name: limit["allowed"] for name, limit in found["limits"].items()} == limits_by_name(
        load(gateway.folder).limits
    )


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


def test_stopped_process_does_not_answer(gateway: Gateway, process: Process) -> None:
    os.kill(process.pid, signal.SIGSTOP)
    with pytest.raises(SetupError, match="has not answered"):
        control.process_status(gateway.folder, timeout=0.1)
    os.kill(process.pid, signal.SIGCONT)
    assert control.process_status(gateway.folder) is not None


def test_gateway_runs_without_a_control_socket(gateway: Gateway) -> None:
    place = gateway.folder / control.SOCKET
    place.mkdir()
    with gateway.run() as process:
        process.wait_told("no control socket")
        assert process.terminate() == 0
    assert place.is_dir()


async def test_status_of_a_component(tmp_path: Path) -> None:
    gateway = Gateway(
        tmp_path / "gateway",
        listen="",
        listen_tls="",
        component="127.0.0.1:1",
        component_secret="component.secret",
    )
    secret = gateway.folder / "component.secret"
    secret.write_text(SECRET)
    secret.chmod(0o600)
    async with serving() as server:
        gateway.configure(component=f"127.0.0.1:{server.port}")
        with start("fieldpost", "run", "--dir", gateway.folder, ready=False) as process:
            link = await server.link()
            await link.shake()
            await asyncio.to_thread(process.wait_ready)
            found = await asyncio.to_thread(status, gateway)
            assert found["state"] == "running"
            assert found["limits"]["waiting_units"]["used"] == 0
            assert found["limits"]["handshakes"]["used"] is None  # these are the server's
            assert process.terminate() == 0


def test_long_folder_path_is_supported(tmp_path: Path) -> None:
    folder = tmp_path.joinpath(*["deep" * 10] * 4)
    folder.parent.mkdir(parents=True)
    gateway = Gateway(folder)
    with gateway.run() as process:
        assert status(gateway)["state"] == "running"
        assert process.terminate() == 0
