"""`kill -9` of the gateway at random moments: nothing acknowledged is lost, nothing comes twice.

Devices send assured messages over TLS as fast as they are answered. Each remembers what it was
told, as firmware does in its outbox, and goes on from there after every kill.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from tests.helpers.gateway import PASSWORD, Gateway, port_of
from tests.helpers.processes import Process
from tests.helpers.xmpp import Client, Closed, log_in, log_message

DEVICES = 6


class Device:
    """A sender that has one message in flight, and knows how far it got."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.number = 1
        self.released = False
        self.told_delivered: list[int] = []

    async def step(self, client: Client) -> None:
        """Offer the next message, or release the one that was offered."""
        if self.released:
            assert await client.deliver(str(self.number)) == "delivered"
            self.told_delivered.append(self.number)
            self.number += 1
        else:
            assert await client.assured(str(self.number), log_message(self.number)) == "received"
        self.released = not self.released

    async def send(self, port: int, ca: Path, answered: Callable[[], bool]) -> None:
        """Send until told to stop, or until the connection is gone."""
        with contextlib.suppress(Closed, ConnectionError):
            async with await log_in(port, ca, self.name, PASSWORD) as client:
                while not answered():
                    await self.step(client)

    async def finish(self, port: int, ca: Path) -> None:
        """Bring what is in flight to its end."""
        async with await log_in(port, ca, self.name, PASSWORD) as client:
            await self.step(client)
            if self.released:
                await self.step(client)


async def one_life(process: Process, devices: list[Device], ca: Path, answers: int) -> None:
    """Let the devices send, and kill the gateway after so many answers."""
    left = answers

    def answered() -> bool:
        nonlocal left
        left -= 1
        if left == 0:
            process.kill9()
        return left <= 0

    port = port_of(process)
    await asyncio.gather(*(device.send(port, ca, answered) for device in devices))
    process.close()


async def test_no_kill_loses_or_repeats_what_was_acknowledged(
    tmp_path: Path, scale: Callable[[int, int], int], seed: int
) -> None:
    chance = random.Random(seed)
    devices = [Device(f"device{number}") for number in range(DEVICES)]
    gateway = Gateway(
        tmp_path / "gateway", *(d.name for d in devices), segment_age=1, recent_bytes=1 << 24
    )
    for _ in range(scale(4, 100)):
        with gateway.run() as process:
            await one_life(process, devices, gateway.ca, chance.randint(DEVICES, 150))
    with gateway.run() as process:
        port = port_of(process)
        await asyncio.gather(*(device.finish(port, gateway.ca) for device in devices))
        assert process.terminate() == 0

    logged = Counter((event["source"], int(event["tags"]["n"])) for event in gateway.events("logs"))
    told = {(f"{d.name}@gw.example/fw", n) for d in devices for n in d.told_delivered}
    assert logged.keys() == told
    assert set(logged.values()) == {1}
    for lane in ("logs", "system"):
        numbers = [event["seq"] for event in gateway.events(lane)]
        assert numbers == list(range(1, len(numbers) + 1))
