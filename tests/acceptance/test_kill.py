"""`kill -9` of the gateway at random moments: nothing acknowledged is lost or repeated.

Devices send assured messages over TLS as fast as they are answered. Each remembers the
replies, as firmware does in its outbox, and continues from there after every kill.
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

    async def send(self, port: int, ca: Path, answered: Callable[[], bool]) -> None:
        """Send until `answered` returns true or the connection is closed."""
        with contextlib.suppress(Closed, ConnectionError):
            async with await log_in(port, ca, self.name, PASSWORD) as client:
                while not answered():
                    await self.step(client)

    async def finish(self, port: int, ca: Path) -> None:
        """Complete the exchange that is in flight."""
        async with await log_in(port, ca, self.name, PASSWORD) as client:
            await self.step(client)
            if self.released:
                await self.step(client)


async def send_until_kill(process: Process, devices: list[Device], ca: Path, answers: int) -> None:
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


async def test_kills_lose_and_repeat_no_acknowledged_message(
    tmp_path: Path, scale: Callable[[int, int], int], seed: int
) -> None:
    chance = random.Random(seed)
    devices = [Device(f"device{number}") for number in range(DEVICES)]
    gateway = Gateway(
        tmp_path / "gateway", *(d.name for d in devices), segment_age=1, recent_bytes=1 << 24
    )
    for _ in range(scale(4, 100)):
        with gateway.run() as process:
            await send_until_kill(process, devices, gateway.ca, chance.randint(DEVICES, 150))
    with gateway.run() as process:
        port = port_of(process)
        await asyncio.gather(*(device.finish(port, gateway.ca) for device in devices))
        assert process.terminate() == 0

    logged = Counter((event["source"], int(event["tags"]["n"])) for event in gateway.events("logs"))
    confirmed = {(f"{d.name}@gw.example/fw", n) for d in devices for n in d.delivered}
    assert logged.keys() == confirmed
    assert set(logged.values()) == {1}
    for lane in ("logs", "system"):
        numbers = [event["seq"] for event in gateway.events(lane)]
        assert numbers == list(range(1, len(numbers) + 1))
