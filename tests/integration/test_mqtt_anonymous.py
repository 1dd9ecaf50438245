"""Clients without a user name, which act as the account in `[mqtt] anonymous`."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from msgspec.structs import replace

from edge.mqtt.packets import V5, V311, ConnAck, Connect
from edge.mqtt.reasons import Reason
from edge.ops.devices import devices
from tests.helpers.gateway import PASSWORD, Gateway
from tests.helpers.mqtt import MqttClient
from tests.helpers.processes import Process


async def refuses(process: Process, connect: Connect) -> bool:
    """Return whether a log-in is refused for its name or password."""
    async with await MqttClient.open(process, connect.version) as client:
        answer = await client.ask(connect)
        assert isinstance(answer, ConnAck)
        return answer.reason is Reason.BAD_USER_NAME_OR_PASSWORD


@pytest.mark.parametrize("version", [V311, V5])
async def test_a_reload_changes_who_anonymous_clients_are(tmp_path: Path, version: int) -> None:
    gateway = Gateway(tmp_path, "old1", "old2", authenticate_delay=0.0)
    gateway.configure_section("mqtt", listen="127.0.0.1:0", require_tls=False)
    anonymous = Connect("meter-7", version)
    with gateway.run() as process:
        assert await refuses(process, anonymous)
        for name in ("old1", "old2"):
            gateway.configure_section("mqtt", anonymous=name)
            assert "mqtt.anonymous" in gateway.command("reload")
            async with await MqttClient.open(process, version) as client:
                await client.ask(anonymous)
                await client.sync()
                assert "meter-7" in gateway.command("device", "show", name)
        assert await refuses(process, replace(anonymous, user_name="old2"))
        assert await refuses(process, replace(anonymous, user_name="old2", password=b"wrong"))
        named = replace(anonymous, user_name="old1", password=PASSWORD.encode())
        assert not await refuses(process, named)
        await asyncio.to_thread(devices.revoke, gateway.folder, "old2")
        assert await refuses(process, anonymous)
        process.wait_for_stderr("account=old2, mechanism=ANONYMOUS")
