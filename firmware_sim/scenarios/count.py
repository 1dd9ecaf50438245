"""The scenario `count`: N devices each send M assured events, while links and devices fail.

Each event is an XEP-0337 log event with the tags `n` (1 to M) and `run`. Restarted devices, and an
interrupted run, continue from the outboxes. The gateway may be killed and restarted at any time.
`count_verdict` judges the result.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from firmware_sim.device.device import Device
from firmware_sim.device.errors import DeviceStopped, OutboxFull
from firmware_sim.device.limits import SendPolicy
from firmware_sim.device.sender_loop import DeliveryStep
from firmware_sim.device.sender_rules import State
from firmware_sim.scenarios.actor import FULL_WAIT_S, RECONNECT, Actor, taken, waiting
from firmware_sim.scenarios.faults import Fault, FaultPlan
from firmware_sim.scenarios.record import EVENT, RunRecord

_PROGRESS_S: Final = 0.5  # seconds between two reports of progress


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


@dataclass(frozen=True, slots=True)
class CountResult:
    """Numbers of faults, by kind, and of devices offline with messages pending, by last error."""

    faults: Counter[Fault]
    errors: Counter[str]


class _Counting:
    """One device of the run, which sends its events at random times."""

    def __init__(self, name: str, run: RunRecord, settings: CountSettings) -> None:
        self._name = name
        self._run = run
        self._settings = settings
        self._random = random.Random(f"pace/{settings.seed}/{name}")  # noqa: S311 - repeatable
        plan = FaultPlan(settings.seed, name, settings.faults)
        self.actor = Actor(settings.host, settings.port, plan, self._make)

    def _make(self, host: str, port: int, observe: Callable[[DeliveryStep, int], None]) -> Device:
        run, settings = self._run, self._settings
        return Device(
            run.jid(self._name),
            settings.passwords[self._name],
            outbox_path=run.outbox(settings.state, self._name),
            ca_file=settings.ca_file,
            host=host,
            port=port,
            policy=settings.policy,
            limits=run.limits,
            reconnect=RECONNECT,
            observe=observe,
        )

    async def run(self) -> None:
        """Send all messages at their times, and wait until each is done, failed or in doubt."""
        await self.actor.start()
        begun = asyncio.get_running_loop().time()
        dues = self._dues()
        while (number := taken(await self.actor.steady()) + 1) <= self._run.messages:
            await asyncio.sleep(begun + dues[number - 1] - asyncio.get_running_loop().time())
            await self._send(number)
        await self.actor.flush()

    def _dues(self) -> list[float]:
        step = self._settings.seconds / max(self._run.messages, 1)
        return [(n + self._random.random()) * step for n in range(self._run.messages)]

    async def _send(self, number: int) -> None:
        tags: dict[str, str | int | float] = {"n": number, "run": self._run.run}
        device = await self.actor.steady()
        if taken(device) >= number:
            return
        try:
            text, to = f"Event {number}.", self._settings.gateway
            await device.send_log(EVENT, text, tags=tags, to=to, label=str(number))
        except OutboxFull:
            await asyncio.sleep(FULL_WAIT_S)
        except DeviceStopped:
            pass  # it restarts; its outbox tells whether this one was taken


async def count(
    run: RunRecord, settings: CountSettings, progress: Callable[[str], None] = lambda _line: None
) -> CountResult:
    """Run the scenario until every message has ended, or the time limit has passed.

    Args:
        run: the record of the run: its devices and numbers of messages.
        settings: the settings of the run.
        progress: called twice a second with a line about the progress.

    Returns:
        The numbers of faults and errors. The states of the messages are in the outboxes.

    Raises:
        OutboxError: an outbox cannot be opened, or its disk failed.
    """
    played = [_Counting(name, run, settings) for name in run.devices]
    actors = [each.actor for each in played]
    most = settings.seconds + settings.patience
    reporting = asyncio.create_task(_report(actors, run, progress))
    try:
        async with asyncio.timeout(most), asyncio.TaskGroup() as group:
            for each in played:
                group.create_task(each.run())
    except TimeoutError:
        pass  # what is not delivered is reported by the verdict
    finally:
        reporting.cancel()
        errors = Counter(actor.error for actor in actors if actor.error)
        await asyncio.gather(*(actor.stop() for actor in actors))
    return CountResult(sum((actor.plan.happened for actor in actors), Counter[Fault]()), errors)


async def _report(actors: list[Actor], run: RunRecord, progress: Callable[[str], None]) -> None:
    while True:
        counts = [actor.counts() for actor in actors]
        delivered = sum(each.get(State.DONE, 0) for each in counts)
        online = sum(actor.online for actor in actors)
        faults = sum(actor.plan.happened.total() for actor in actors)
        progress(
            f"{delivered}/{run.planned} delivered, {sum(map(waiting, counts))} waiting,"
            f" {online} devices online, {faults} faults"
        )
        await asyncio.sleep(_PROGRESS_S)
