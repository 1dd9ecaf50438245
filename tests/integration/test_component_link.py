"""A gateway that is a component whose server is not there: what the operator sees."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.folder import configure, fieldpost
from tests.helpers.gateway import Gateway
from tests.helpers.processes import Process, free_port, start

REFUSED = "cannot be reached: Connection refused"


@pytest.fixture
def gateway(tmp_path: Path) -> Gateway:
    server = f"127.0.0.1:{free_port()}"
    gateway = Gateway(
        tmp_path / "gw", listen="", listen_tls="", component=server, component_secret="secret"
    )
    secret = gateway.folder / "secret"
    secret.write_text("between us")
    secret.chmod(0o600)
    return gateway


@pytest.fixture
def waiting(gateway: Gateway, web: int) -> Iterator[Process]:
    configure(gateway.folder, "web", listen=f"127.0.0.1:{web}")
    with start("fieldpost", "run", "--dir", gateway.folder, ready=False) as process:
        process.wait_for_stderr(REFUSED)
        yield process
        assert process.terminate() == 0
        assert process.stdout == ""


@pytest.fixture
def web() -> int:
    return free_port()


def test_commands_say_that_the_gateway_runs_and_waits(gateway: Gateway, waiting: Process) -> None:
    folder = gateway.folder
    status = gateway.command("status")
    assert ": running, fieldpost" in status
    assert "health: failing" in status
    assert REFUSED in status
    found = json.loads(gateway.command("status", "--json"))
    assert found["state"] == "running"
    assert REFUSED in found["link_error"]
    doctor = fieldpost(folder, "doctor")
    assert doctor.exit_code == 1
    assert REFUSED in doctor.output
    assert "systemctl start" not in doctor.output
    with start("fieldpost", "run", "--dir", folder, ready=False) as second:
        second.wait_for_stderr("is already running")
        assert second.wait() == 1
        assert REFUSED in second.stderr
        assert "waits for its XMPP server" in second.stderr


def test_pages_say_why_no_device_can_connect(gateway: Gateway, waiting: Process, web: int) -> None:
    with pytest.raises(urllib.error.HTTPError) as failing:
        urllib.request.urlopen(f"http://127.0.0.1:{web}/health", timeout=20)
    with failing.value:
        health = json.load(failing.value)
    assert (failing.value.code, health["status"]) == (503, "failing")
    assert REFUSED in health["problems"][0]["text"]
    with urllib.request.urlopen(f"http://127.0.0.1:{web}/", timeout=20) as page:
        assert REFUSED in page.read().decode()
    with urllib.request.urlopen(f"http://127.0.0.1:{web}/metrics", timeout=20) as metrics:
        lines = metrics.read().decode().splitlines()
    assert "fieldpost_listener_up 0" in lines
    assert 'fieldpost_health{state="failing"} 1' in lines
    names = [event["name"] for event in gateway.events("system")]
    assert "component_lost" in names
