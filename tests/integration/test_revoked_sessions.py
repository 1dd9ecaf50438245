"""Devices that are revoked and restored at once: earlier sessions and logins end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from edge.ops.devices import devices
from tests.helpers.gateway import Gateway, log_in
from tests.helpers.xmpp import BIND, Closed, condition, log_message


def renew(folder: Path, name: str) -> None:
    """Revoke a device and give it a new password, before the gateway has looked."""
    devices.revoke(folder, name)
    devices.set_password(folder, name, "another password")


def certify(folder: Path, name: str) -> None:
    """Give a device a certificate in place of all that it logged in with."""
    devices.renew(folder, name, revoke_old=True)
    devices.set_password(folder, name, "another password")


def replace(folder: Path, name: str) -> None:
    """Remove a device and give its name to another."""
    devices.remove(folder, name)
    devices.add(folder, name, "another password", trusted=True)


ALL = (renew, certify, replace)


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Gateway:
    folder = tmp_path_factory.mktemp("gw") / "gateway"
    names = (f"{change.__name__}{number}" for change in ALL for number in range(4))
    return Gateway(folder, *names, require_tls=False)


@pytest.mark.parametrize("change", ALL)
async def test_a_request_after_the_revocation_ends_the_session_without_an_answer(
    gateway: Gateway, port: int, change: Callable[[Path, str], None]
) -> None:
    """An error would tell the device that its message failed, and not to repeat it."""
    name = f"{change.__name__}2"
    async with await log_in(port, name) as client:
        await client.bind("fw")
        await asyncio.to_thread(change, gateway.folder, name)
        message = f"<assured xmlns='urn:xmpp:qos' msgId='1'>{log_message(1)}</assured>"
        with pytest.raises(Closed) as end:
            await client.iq("set", message)
        assert end.value.condition == "not-authorized"


async def test_a_message_after_the_revocation_does_not_count_as_handled(
    gateway: Gateway, port: int
) -> None:
    async with await log_in(port, "renew3") as client:
        await client.bind("fw")
        await client.enable()
        await asyncio.to_thread(renew, gateway.folder, "renew3")
        client.send(log_message(1))
        with pytest.raises(Closed) as end:
            await client.handled()
        assert end.value.condition == "not-authorized"


async def test_sessions_end_although_the_device_is_restored(gateway: Gateway, port: int) -> None:
    async with AsyncExitStack() as stack:
        clients = []
        for change in ALL:
            client = await stack.enter_async_context(await log_in(port, f"{change.__name__}0"))
            await client.bind("fw")
            clients.append(client)
        for change in ALL:
            await asyncio.to_thread(change, gateway.folder, f"{change.__name__}0")
        assert [await client.closed() for client in clients] == ["not-authorized"] * len(ALL)


@pytest.mark.parametrize("change", ALL)
async def test_login_before_revocation_cannot_bind(
    gateway: Gateway, port: int, change: Callable[[Path, str], None]
) -> None:
    name = f"{change.__name__}1"
    async with await log_in(port, name) as client:
        await asyncio.to_thread(change, gateway.folder, name)
        answer = await client.iq("set", f"<bind xmlns='{BIND}'/>", to=None)
        assert (answer.get("type"), condition(answer)) == ("error", "not-allowed")
    async with await log_in(port, name, "another password") as client:
        assert await client.bind("fw") == f"{name}@gw.example/fw"
