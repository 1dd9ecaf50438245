"""A device resumes its session after a lost connection (XEP-0198, section 5)."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from firmware_sim.device import Device, ReceivedMessage, ReceiveOptions, ReconnectPolicy
from tests.helpers.gateway import DOMAIN, PASSWORD, Gateway, port_of
from tests.helpers.processes import Process, free_port

RECONNECT = ReconnectPolicy(base=0.05, cap=0.2, stable=0.1)
SOON_S = 30.0


@pytest.fixture
def gateway(tmp_path: Path) -> Gateway:
    return Gateway(tmp_path / "gateway", "pump1", "valve1")


def device(
    gateway: Gateway,
    process: Process,
    name: str,
    shown: Callable[[ReceivedMessage], None] = lambda _message: None,
    **options: Any,
) -> Device:
    folder = gateway.folder.parent
    return Device(
        f"{name}@{DOMAIN}/fw",
        PASSWORD,
        outbox_path=folder / f"{name}-outbox",
        ca_file=gateway.ca,
        host="127.0.0.1",
        port=port_of(process),
        reconnect=RECONNECT,
        receive=ReceiveOptions(folder / f"{name}-inbox", nothing, shown),
        resume=True,
        **options,
    )


def nothing(_message: ReceivedMessage, _db: sqlite3.Connection) -> None:
    """Write nothing."""


async def online(*devices: Device) -> None:
    async with asyncio.timeout(SOON_S):
        for one in devices:
            while not one.online:
                await one.changed()


async def until_resumed(one: Device, times: int) -> None:
    async with asyncio.timeout(SOON_S):
        while one.resumptions < times:
            await one.changed()


def sessions(gateway: Gateway) -> list[str]:
    found = [e for e in gateway.events("system") if e["kind"] == "session"]
    return [e["name"] for e in found if e["source"] == f"pump1@{DOMAIN}"]


async def test_nothing_is_repeated_or_lost_in_a_resumed_session(gateway: Gateway) -> None:
    with gateway.run() as process:
        received: asyncio.Queue[ReceivedMessage] = asyncio.Queue()
        async with (
            device(gateway, process, "pump1") as pump,
            device(gateway, process, "valve1", received.put_nowait) as valve,
        ):
            await online(pump, valve)
            for cut in range(4):
                for number in range(10):
                    body = f"<message><body>{cut}-{number}</body></message>"
                    await pump.send(body, to=f"valve1@{DOMAIN}", qos=1)
                pump.cut()
                valve.cut()
                await until_resumed(pump, cut + 1)
                await until_resumed(valve, cut + 1)
            await pump.flush(SOON_S)
            found = [await asyncio.wait_for(received.get(), SOON_S) for _ in range(40)]
            await pump.send("<message><body>end</body></message>", to=f"valve1@{DOMAIN}")
            found.append(await asyncio.wait_for(received.get(), SOON_S))
            assert received.empty()
            assert (pump.sessions, valve.sessions) == (1, 1)
        bodies = [one.xml().findtext("{jabber:client}body") for one in found]
        assert bodies == [f"{cut}-{n}" for cut in range(4) for n in range(10)] + ["end"]


async def test_plain_messages_wait_for_the_resumption(gateway: Gateway) -> None:
    """At level 0 a lost session loses them; a resumed one does not."""
    with gateway.run() as process:
        received: asyncio.Queue[ReceivedMessage] = asyncio.Queue()
        async with (
            device(gateway, process, "pump1") as pump,
            device(gateway, process, "valve1", received.put_nowait) as valve,
        ):
            await online(pump, valve)
            for number in range(20):
                if number % 5 == 4:
                    valve.cut()
                body = f"<message><body>{number}</body></message>"
                await pump.send(body, to=f"valve1@{DOMAIN}/fw", qos=0)
            found = [await asyncio.wait_for(received.get(), SOON_S) for _ in range(20)]
            assert valve.sessions == 1
        bodies = [one.xml().findtext("{jabber:client}body") for one in found]
        assert bodies == list(map(str, range(20)))


async def test_a_session_that_is_gone_is_replaced(gateway: Gateway) -> None:
    gateway.configure(listen=f"127.0.0.1:{free_port()}", listen_tls="")
    with gateway.run() as process:
        pump = device(gateway, process, "pump1")
        await pump.start()
        await online(pump)
    with gateway.run():
        try:
            await pump.send_log("Entered", "again")
            await pump.flush(SOON_S)
            assert (pump.sessions, pump.resumptions) == (2, 0)
        finally:
            await pump.close()
