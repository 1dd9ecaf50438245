"""Which devices are connected: `fieldpost device list` and `show`, and the status page."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.gateway import PASSWORD, Gateway, port_of
from tests.helpers.xmpp import log_in, log_message


@pytest.fixture
def gateway(tmp_path: Path) -> Gateway:
    return Gateway(tmp_path / "gateway", "pump1", "valve")


def listed(gateway: Gateway) -> dict[str, Any]:
    lines = gateway.command("device", "list", "--json").splitlines()
    return {found["name"]: found for found in map(json.loads, lines)}


def shown(gateway: Gateway, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(gateway.command("device", "show", name, "--json"))
    return found


async def until_state(gateway: Gateway, name: str, state: str) -> dict[str, Any]:
    async with asyncio.timeout(10):
        while True:
            found = shown(gateway, name)
            if found["state"] == state:
                return found
            await asyncio.sleep(0)


async def test_sessions_and_waiting_messages_are_listed(gateway: Gateway) -> None:
    before = round(time.time() * 1000)
    with gateway.run() as process:
        port = port_of(process)
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
                "resource": "fw", "address": "127.0.0.1", "detached": False, "unacknowledged": 1,
            }  # fmt: skip
            assert (found["state"], found["held"], found["outbox"], found["offline"]) == (
                *("online", 1, 0, 0),
            )
            assert shown(gateway, "valve")["sessions"][0]["resource"] == "tool"
            text = gateway.command("device", "show", "pump1")
            assert text.startswith("pump1@gw.example: online\n")
            assert "1 message from it awaiting its `deliver`" in text
            pump.cut()
            found = await until_state(gateway, "pump1", "detached")
            (session,) = found["sessions"]
            assert (session["address"], session["detached"]) == (None, True)
            assert before < session["since"] <= session["seen"] <= round(time.time() * 1000)
        assert process.terminate() == 0
    found = listed(gateway)["valve"]
    assert (found["state"], found["sessions"]) == ("offline", [])
    assert before < found["seen"] <= round(time.time() * 1000)
