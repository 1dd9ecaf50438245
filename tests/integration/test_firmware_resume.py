"""A device resumes its session after a lost connection (XEP-0198, section 5)."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from firmware_sim.device import Device, ReceiveOptions, ReconnectPolicy
from tests.helpers.gateway import DOMAIN, PASSWORD, Gateway, port_of
from tests.helpers.processes import Process, free_port
from tests.helpers.talk import wait_online

RECONNECT = ReconnectPolicy(base=0.05, cap=0.2, stable=0.1)
SOON_S = 30.0


@pytest.fixture
def gateway(tmp_path: Path) -> Gateway:
    return Gateway(tmp_path / "gateway", "pump1", "valve1")


def device(gateway: Gateway, process: Process, name: str) -> Device:
    folder = gateway.folder.parent
    return Device(
        f"{name}@{DOMAIN}/fw",
        PASSWORD,
        outbox_path=folder / f"{name}-outbox",
        ca_file=gateway.ca,
        host="127.0.0.1",
        port=port_of(process),
        reconnect=RECONNECT,
        receive=ReceiveOptions(folder / f"{name}-inbox"),
        resume=True,
    )


async def until_resumed(times: int, *devices: Device) -> None:
    async with asyncio.timeout(SOON_S):
        for each in devices:
            while each.resumptions < times:
                await each.changed()


async def bodies(receiver: Device, count: int) -> list[str]:
    received = receiver.messages()
    async with asyncio.timeout(SOON_S):
        return [(await anext(received)).body for _ in range(count)]


def message(text: str) -> str:
    return f"<message><body>{text}</body></message>"


async def test_nothing_is_repeated_or_lost_in_a_resumed_session(
    gateway: Gateway, own_process: Process
) -> None:
    async with (
        device(gateway, own_process, "pump1") as pump,
        device(gateway, own_process, "valve1") as valve,
    ):
        await wait_online(pump, valve)
        for cut in range(4):
            for number in range(10):
                await pump.send(message(f"{cut}-{number}"), to=f"valve1@{DOMAIN}", qos=1)
            pump.cut()
            valve.cut()
            await until_resumed(cut + 1, pump, valve)
        await pump.flush(SOON_S)
        await pump.send(message("end"), to=f"valve1@{DOMAIN}")
        sent = [f"{cut}-{n}" for cut in range(4) for n in range(10)]
        assert await bodies(valve, 41) == [*sent, "end"]
        assert (pump.sessions, valve.sessions) == (1, 1)


async def test_plain_messages_wait_for_the_resumption(
    gateway: Gateway, own_process: Process
) -> None:
    """At level 0 a lost session loses them; a resumed one does not."""
    async with (
        device(gateway, own_process, "pump1") as pump,
        device(gateway, own_process, "valve1") as valve,
    ):
        await wait_online(pump, valve)
        for number in range(20):
            if number % 5 == 4:
                valve.cut()
            await pump.send(message(str(number)), to=f"valve1@{DOMAIN}/fw", qos=0)
        assert await bodies(valve, 20) == list(map(str, range(20)))
        assert valve.sessions == 1


async def test_a_session_that_cannot_be_resumed_is_replaced(gateway: Gateway) -> None:
    gateway.configure(listen=f"127.0.0.1:{free_port()}", listen_tls="")
    with gateway.run() as process:
        pump = device(gateway, process, "pump1")
        await pump.start()
        await wait_online(pump)
    with gateway.run():
        try:
            await pump.send_log("Entered", "again")
            await pump.flush(SOON_S)
            assert (pump.sessions, pump.resumptions) == (2, 0)
        finally:
            await pump.close()
