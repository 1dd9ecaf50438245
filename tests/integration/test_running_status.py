"""The status of a running gateway: commands, the list of devices, the status page, metrics."""

from __future__ import annotations

import asyncio
import json
import re
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import msgspec
import pytest

from edge.config import load
from edge.engine.time.clock import boot_id
from edge.ops.gateway import control
from tests.helpers.folder import configure, fieldpost
from tests.helpers.gateway import DOMAIN, PASSWORD, Gateway, port_of
from tests.helpers.processes import Process
from tests.helpers.xmpp import condition, log_in, log_message

SECONDS = 20


@pytest.fixture
def gateway(tmp_path: Path) -> Gateway:
    gateway = Gateway(tmp_path / "gateway", "pump1", "valve")
    configure(gateway.folder, "web", listen="127.0.0.1:0")
    return gateway


def command(gateway: Gateway, *words: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(gateway.command(*words, "--json"))
    return found


# `fieldpost status`.


async def test_status_shows_the_use_of_a_running_gateway(
    gateway: Gateway, own_process: Process
) -> None:
    before = command(gateway, "status")
    port = port_of(own_process)
    async with (
        await log_in(port, gateway.ca, "pump1", PASSWORD) as pump,
        await log_in(port, gateway.ca, "pump1", PASSWORD, "other"),
        await log_in(port, gateway.ca, "valve", PASSWORD),
    ):
        await pump.assured("m1", log_message(1))
        found = command(gateway, "status")
    used = {name: limit.get("used", 0) for name, limit in found["limits"].items()}
    assert None not in used.values()
    assert used.items() >= {
        "sessions": 3, "sessions_per_account": 2, "sessions_per_address": 3, "unauthenticated": 0,
        "held_messages": 1,
    }.items()  # fmt: skip
    assert found["limits"]["held_messages_per_source"]["of"] == f"pump1@{DOMAIN}"
    assert (found["gateway"], found["state"], found["sessions"]) == (DOMAIN, "running", 3)
    assert (found["waiting"]["held"], found["boot"], found["changed"]) == (1, boot_id(), False)
    assert 0 <= before["uptime"] < found["uptime"] < 600
    assert before["service"] < found["service"]
    assert found["synchronised"] in (True, False)


def test_status_shows_the_limits_in_force(gateway: Gateway, own_process: Process) -> None:
    gateway.configure(sessions=77)
    found = command(gateway, "status")
    assert found["changed"]
    assert found["limits"]["sessions"]["allowed"] == 1000
    text = gateway.command("status")
    assert "apply them with `fieldpost reload`" in text
    assert text.startswith(f"{DOMAIN}: running, fieldpost ")
    assert own_process.terminate() == 0
    found = command(gateway, "status")
    assert not found["changed"]
    allowed = {name: limit["allowed"] for name, limit in found["limits"].items()}
    assert allowed["sessions"] == 77
    assert allowed == msgspec.to_builtins(load.load(gateway.folder).limits)


def test_status_after_a_kill_and_a_restart(gateway: Gateway) -> None:
    control_socket = gateway.folder / control.SOCKET
    with gateway.run() as process:
        assert control_socket.stat().st_mode & 0o777 == 0o600
        process.kill9()
    assert control_socket.is_socket()
    found = command(gateway, "status")
    assert (found["state"], found["trouble"]) == ("not running", None)
    assert found["limits"]["sessions"] == {"allowed": 1000, "unit": "sessions", "used": None}
    with gateway.run() as process:
        assert command(gateway, "status")["state"] == "running"
        assert process.terminate() == 0
    assert not control_socket.exists()
    assert command(gateway, "status")["state"] == "not running"


# `fieldpost device`.


def listed(gateway: Gateway) -> dict[str, Any]:
    lines = gateway.command("device", "list", "--json").splitlines()
    return {found["name"]: found for found in map(json.loads, lines)}


async def until_state(gateway: Gateway, name: str, state: str) -> dict[str, Any]:
    async with asyncio.timeout(10):
        while (found := command(gateway, "device", "show", name))["state"] != state:  # noqa: ASYNC110
            await asyncio.sleep(0)
    return found


async def test_sessions_and_waiting_messages_are_listed(
    gateway: Gateway, own_process: Process
) -> None:
    before, port = round(time.time() * 1000), port_of(own_process)
    assert {found["state"] for found in listed(gateway).values()} == {"offline"}
    async with (
        await log_in(port, gateway.ca, "pump1", PASSWORD) as pump,
        await log_in(port, gateway.ca, "valve", PASSWORD, "tool") as valve,
    ):
        await pump.assured("m1", log_message(1))
        await pump.enable()
        valve.send("<message to='pump1@gw.example/fw'><body>hello</body></message>")
        assert (await pump.stanza()).tag.endswith("message")
        found = listed(gateway)["pump1"]
        (session,) = found.pop("sessions")
        after = round(time.time() * 1000)
        assert before < session.pop("since") <= session["seen"] == found["seen"] <= after
        session.pop("seen")
        assert session == {
            "resource": "fw", "protocol": "xmpp", "version": "", "transport": "",
            "address": "127.0.0.1", "detached": False, "unacknowledged": 1,
        }  # fmt: skip
        waiting = (found["held"], found["outbox"], found["offline"])
        assert (found["state"], waiting) == ("online", (1, 0, 0))
        device = command(gateway, "device", "show", "valve")
        assert device["sessions"][0]["resource"] == "tool"
        text = gateway.command("device", "show", "pump1")
        assert text.startswith("pump1@gw.example: online\n")
        assert "1 message from it awaiting its `deliver`" in text
        pump.cut()
        (session,) = (await until_state(gateway, "pump1", "detached"))["sessions"]
        assert (session["address"], session["detached"]) == (None, True)
        assert before < session["since"] <= session["seen"] <= round(time.time() * 1000)
        valve.send("</stream:stream>")
        found = await until_state(gateway, "valve", "offline")
        assert before < found["seen"] <= round(time.time() * 1000), "before any heartbeat"
    assert own_process.terminate() == 0
    found = listed(gateway)["valve"]
    assert (found["state"], found["sessions"]) == ("offline", [])
    assert before < found["seen"] <= round(time.time() * 1000)


# The status page.


SESSIONS = 'sessions{protocol="xmpp",transport="tcp"}'


def get(process: Process, path: str) -> str:
    host, port = process.host_port("web")
    with urllib.request.urlopen(f"http://{host}:{port}{path}", timeout=SECONDS) as answer:
        text: str = answer.read().decode()
        return text


def metric(text: str, name: str) -> float:
    found = re.search(rf"^fieldpost_{re.escape(name)} (\S+)$", text, re.MULTILINE)
    assert found is not None
    return float(found[1])


async def test_metrics_follow_sessions_messages_and_commits(
    gateway: Gateway, own_process: Process
) -> None:
    before = get(own_process, "/metrics")
    assert metric(before, "listener_up") == 1
    async with await log_in(port_of(own_process), gateway.ca, "pump1", PASSWORD) as pump:
        await pump.assured("m1", log_message(1))
        assert json.loads(get(own_process, "/health"))["status"] == "ok"
        assert await pump.assured("m2", log_message(2)) == "received"
        assert await pump.deliver("m2") == "delivered"
        pump.send(log_message(3).replace("<message", "<message to='gw.example'", 1))
        pump.send("<message to='nobody@gw.example'><body>x</body></message>")
        assert condition(await pump.element()) == "service-unavailable"
        after = get(own_process, "/metrics")
    assert metric(after, 'limit_used{limit="sessions"}') == metric(after, SESSIONS) == 1
    assert metric(after, 'messages_total{qos="2",outcome="accepted"}') == 2
    assert metric(after, 'messages_total{qos="2",outcome="delivered"}') == 1
    assert metric(after, 'messages_total{qos="0",outcome="delivered"}') == 1
    assert metric(after, 'messages_total{qos="0",outcome="refused"}') == 1
    for name in ("stanzas_total", "commits_total", "database_written_bytes_total"):
        assert metric(after, name) > metric(before, name)
    page = get(own_process, "/")
    assert "<td>pump1" in page or '<th scope="row">pump1' in page
    assert "Devices can connect" in page
    assert "m1" not in page
    with pytest.raises(urllib.error.HTTPError) as refused:
        get(own_process, "/../fieldpost.toml")
    refused.value.close()
    assert refused.value.code == 404
    findings = json.loads(fieldpost(gateway.folder, "doctor", "--json").output)["findings"]
    verdicts = {each["name"]: each["verdict"] for each in findings}
    assert verdicts["gateway"] == verdicts["database"] == "ok"
