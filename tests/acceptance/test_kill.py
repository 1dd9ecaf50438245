"""`kill -9` of the gateway at random moments: nothing acknowledged is lost or repeated.

Devices send assured messages over TLS as fast as they are answered. Each remembers the
replies, as firmware does in its outbox, and continues from there after every kill. A kill ends
the gateway, or one of its front processes.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import ssl
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from tests.helpers.gateway import PASSWORD, Gateway, kills, port_of
from tests.helpers.processes import wait_all_ended
from tests.helpers.xmpp import Client, Closed, log_in, log_message

DEVICES: Final = 6
STEPS: Final = 170
"""Most steps of all devices until a kill: those of the log-ins, and answers."""


class Device:
    """A sender that has one message in flight, and records its progress."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.number = 1
        self.released = False
        self.delivered: list[int] = []

    async def step(self, client: Client) -> None:
        """Offer the next message, or release the one that was offered."""
        if self.released:
            assert await client.deliver(str(self.number)) == "delivered"
            self.delivered.append(self.number)
            self.number += 1
        else:
            assert await client.assured(str(self.number), log_message(self.number)) == "received"
        self.released = not self.released

    async def send(self, port: int, ca: Path, is_over: Callable[[], bool]) -> None:
        """Send until the connection is closed or `is_over`, which is called at each step, also of
        the log-in."""
        with contextlib.suppress(Closed, ConnectionError, ssl.SSLError):
            async with await Client.connect(port) as client:
                is_over()
                await client.start_tls(ca)
                is_over()
                await client.element()
                assert await client.authenticate("SCRAM-SHA-256", self.name, PASSWORD) == "success"
                is_over()
                await client.bind("fw")
                while not is_over():
                    await self.step(client)

    async def finish(self, port: int, ca: Path) -> None:
        """Complete the exchange that is in flight."""
        async with await log_in(port, ca, self.name, PASSWORD) as client:
            await self.step(client)
            if self.released:
                await self.step(client)


class Site:
    """A gateway that is killed, and started again if its core was."""

    def __init__(self, gateway: Gateway, devices: list[Device]) -> None:
        self.gateway = gateway
        self.devices = devices
        self.process = gateway.run()

    async def send_until_kill(self, victim: int, steps: int) -> None:
        """Let the devices send until a process, or a group of them, is killed after so many
        steps."""
        left = steps

        def is_over() -> bool:
            nonlocal left
            left -= 1
            if left == 0:
                with contextlib.suppress(ProcessLookupError):  # a front of which the core has not
                    os.kill(victim, signal.SIGKILL)  # noticed yet that it was killed before
            return left <= 0

        port, ca = port_of(self.process), self.gateway.ca
        await asyncio.gather(*(device.send(port, ca, is_over) for device in self.devices))
        if abs(victim) != self.process.pid:
            wait_all_ended([victim])
            return
        assert self.process.wait() == -signal.SIGKILL
        self.process = self.gateway.run()

    async def finish(self) -> None:
        """Let the devices finish what they have begun, and stop the gateway."""
        port, ca = port_of(self.process), self.gateway.ca
        await asyncio.gather(*(device.finish(port, ca) for device in self.devices))
        assert self.process.terminate() == 0


@pytest.mark.parametrize("fronts", [0, 2])
async def test_kills_lose_and_repeat_no_acknowledged_message(
    tmp_path: Path, scale: Callable[[int, int], int], seed: int, fronts: int
) -> None:
    chance = random.Random(seed)
    devices = [Device(f"device{number}") for number in range(DEVICES)]
    names = (device.name for device in devices)
    gateway = Gateway(
        tmp_path / "gateway", *names, processes=fronts, segment_age=1, recent_bytes=1 << 24
    )
    site = Site(gateway, devices)
    try:
        for what in kills(fronts, scale(3 if fronts else 2, 50), chance):
            victim = gateway.victim(site.process, what, chance)
            await site.send_until_kill(victim, chance.randint(1, STEPS))
        await site.finish()
    finally:
        site.process.close()

    logged = Counter((event["source"], int(event["tags"]["n"])) for event in gateway.events("logs"))
    confirmed = {(f"{d.name}@gw.example/fw", n) for d in devices for n in d.delivered}
    assert logged.keys() == confirmed
    assert set(logged.values()) == {1}
    for lane in ("logs", "system"):
        numbers = [event["seq"] for event in gateway.events(lane)]
        assert numbers == list(range(1, len(numbers) + 1))
