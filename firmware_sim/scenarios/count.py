"""The scenario `count`: N devices each send M assured events, while links and devices fail.

Each event is an XEP-0337 log event with the tags `n` (1 to M) and `run`. Restarted devices, and an
interrupted run, continue from the outboxes. The gateway may be killed and restarted at any time.
`count_verdict` judges the result.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from firmware_sim.device import messages
from firmware_sim.device.limits import SendPolicy
from firmware_sim.scenarios.actor import Actor, progress
from firmware_sim.scenarios.faults import FaultPlan
from firmware_sim.scenarios.play import ShowProgress, playing
from firmware_sim.scenarios.record import EVENT, RunRecord


@dataclass(frozen=True, slots=True)
class CountSettings:
    """Settings of a run of the scenario `count`.

    `seconds` is the time over which each device spreads its messages. `patience` is the maximum
    number of further seconds for deliveries. `faults` is the fraction of messages with a fault, 0
    to 1. `gateway` is the JID to which events are sent, if the gateway is a component; by default
    the devices' domain.
    """

    host: str
    port: int
    ca_file: Path
    passwords: Mapping[str, str]
    state: Path
    seed: int = 1
    seconds: float = 30.0
    patience: float = 120.0
    faults: float = 0.0
    gateway: str = ""
    policy: SendPolicy = field(default_factory=SendPolicy)


class _Counting(Actor):
    """One device of the run, which sends its events at random times."""

    def __init__(self, name: str, run: RunRecord, settings: CountSettings) -> None:
        self._run, self._settings = run, settings
        super().__init__(
            settings.state,
            run.jid(name),
            {"password": settings.passwords[name], "host": settings.host, "port": settings.port},
            FaultPlan(settings.seed, name, settings.faults),
            ca_file=settings.ca_file,
            policy=settings.policy,
            limits=run.limits,
        )

    async def send_all(self) -> None:
        """Send all messages at their times, and wait until each is done, failed or in doubt."""
        run, settings = self._run, self._settings
        first = sum((await self.steady()).counts().values()) + 1  # after those of an earlier run
        async for number in self.numbers(settings.seed, run.messages, settings.seconds, first):
            event = messages.log(EVENT, f"Event {number}.", tags={"n": number, "run": run.run})
            await self.send(event, to=settings.gateway, label=str(number))
        await self.flush()


async def count(
    run: RunRecord, settings: CountSettings, show: ShowProgress = lambda _line: None
) -> Counter[str]:
    """Run the scenario until every message has ended, or the time limit has passed.

    Returns the numbers of faults, and of devices that could not connect, by their names; the states
    of the messages are in the outboxes. Raises OutboxError if an outbox cannot be opened, or its
    disk failed.
    """
    actors = [_Counting(name, run, settings) for name in run.devices]
    async with (
        playing(actors, show, lambda: progress(actors, run.planned)) as happened,
        asyncio.timeout(settings.seconds + settings.patience),
        asyncio.TaskGroup() as group,
    ):
        for each in actors:
            group.create_task(each.send_all())
    return happened
