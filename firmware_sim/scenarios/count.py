"""The scenario `count`: N devices send M assured events each, while links and devices fail.

Each event is an XEP-0337 log with the tags `n` (1 to M) and `run`, so that it can be told from
every other. A device that restarts goes on from its outbox, its next number included; so does the
whole run. The gateway may die and come back on its port at any time. It judges nothing (`verdict`
does).
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from firmware_sim.courier import Moment
from firmware_sim.device import Device
from firmware_sim.errors import DeviceStopped, FirmwareError, OutboxFull
from firmware_sim.faults import Fault, FaultPlan
from firmware_sim.limits import Policy, Reconnect
from firmware_sim.link import FaultyLink
from firmware_sim.scenarios.record import EVENT, RunRecord
from firmware_sim.sender import LIVE, State

_RECONNECT: Final = Reconnect(base=0.25, cap=2.0, stable=0.5, timeout=10.0)  # a run is short
_LOST_FOR: Final = (0.02, 0.2)  # seconds that a mute link stays before it is cut
_FULL_WAIT_S: Final = 0.25  # seconds until a full outbox is tried again
_PROGRESS_S: Final = 0.5  # seconds between two reports of progress


@dataclass(frozen=True, slots=True)
class CountSettings:
    """How a run goes.

    `seconds` is the pace: each device spreads its messages over that time. `patience` is how many
    seconds more the run may take until everything is delivered. `faults` is the part of all
    messages at which something goes wrong, 0 to 1. `gateway` is the JID that events go to: where
    the gateway is a component of the server that the devices connect to; else their own domain.
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
    policy: Policy = field(default_factory=Policy)
    reconnect: Reconnect = _RECONNECT


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a run is: counts of messages, of sessions that are up, and of faults so far."""

    delivered: int
    waiting: int
    planned: int
    online: int
    faults: int


@dataclass(frozen=True, slots=True)
class Ran:
    """What a run met: its faults, and why devices could not deliver the rest."""

    faults: Counter[Fault]
    errors: Counter[str]


class _Actor:
    """One device of the run, its link and its misfortunes."""

    def __init__(self, name: str, run: RunRecord, settings: CountSettings) -> None:
        self._name = name
        self._run = run
        self._settings = settings
        self._random = random.Random(f"pace/{settings.seed}/{name}")  # noqa: S311 - repeatable
        self.plan = FaultPlan(settings.seed, name, settings.faults)
        self._link: FaultyLink | None = None
        self._device = self._make()
        self._tasks: set[asyncio.Task[None]] = set()
        self._running = asyncio.Event()
        self._error: FirmwareError | None = None

    def _make(self) -> Device:
        run, settings = self._run, self._settings
        link = self._link
        return Device(
            run.jid(self._name),
            settings.passwords[self._name],
            outbox_path=run.outbox(settings.state, self._name),
            ca_file=settings.ca_file,
            host=settings.host if link is None else "127.0.0.1",
            port=settings.port if link is None else link.port,
            policy=settings.policy,
            limits=run.limits,
            reconnect=settings.reconnect,
            observe=self._observe,
        )

    async def run(self) -> None:
        """Send all messages at their times, and wait until each has ended."""
        if self._settings.faults > 0.0:
            self._link = FaultyLink(self._settings.host, self._settings.port, self.plan.delay)
            await self._link.start()
            self._device = self._make()
        await self._device.start()
        self._running.set()
        begun = asyncio.get_running_loop().time()
        dues = self._dues()
        while (number := _taken(await self._steady()) + 1) <= self._run.messages:
            await asyncio.sleep(begun + dues[number - 1] - asyncio.get_running_loop().time())
            await self._send(number)
        while _waiting((await self._steady()).counts()):
            with contextlib.suppress(DeviceStopped):
                await self._device.flush()

    async def stop(self) -> None:
        """Stop the device and its link; what is not delivered stays in the outbox."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._device.close()
        if self._link is not None:
            await self._link.stop()

    def counts(self) -> Mapping[State, int]:
        """Count its messages by state; none while it restarts."""
        with contextlib.suppress(DeviceStopped):
            return self._device.counts()
        return {}

    @property
    def online(self) -> bool:
        """Whether it has a session."""
        return self._device.online

    @property
    def error(self) -> str:
        """Why it has no session for what still waits; empty if it has, or nothing does."""
        needs = _waiting(self.counts()) and not self._device.online
        return self._device.last_error if needs else ""

    def _dues(self) -> list[float]:
        step = self._settings.seconds / max(self._run.messages, 1)
        return [(n + self._random.random()) * step for n in range(self._run.messages)]

    async def _steady(self) -> Device:
        """Give the device once it runs, as it does but for the moments of a restart."""
        await self._running.wait()
        if self._error is not None:
            raise self._error
        return self._device

    async def _send(self, number: int) -> None:
        tags: dict[str, str | int | float] = {"n": number, "run": self._run.run}
        device = await self._steady()
        if _taken(device) >= number:
            return
        try:
            text, to = f"Event {number}.", self._settings.gateway
            await device.send_log(EVENT, text, tags=tags, to=to, label=str(number))
        except OutboxFull:
            await asyncio.sleep(_FULL_WAIT_S)
        except DeviceStopped:
            pass  # it restarts; its outbox tells whether this one was taken

    def _observe(self, moment: Moment, number: int) -> None:
        fault = self.plan.at(moment, number)
        if fault is None or self._link is None:
            return
        if fault is Fault.RESTART:
            self._begin(self._restart())
        elif fault in (Fault.CUT, Fault.RESET):
            self._link.cut(reset=fault is Fault.RESET)
        else:
            self._begin(self._lose(self._link, fault))

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _restart(self) -> None:
        if not self._running.is_set():
            return
        self._running.clear()
        try:
            await self._device.kill()
            self._device = self._make()
            await self._device.start()
        except FirmwareError as error:
            self._error = error
        self._running.set()

    async def _lose(self, link: FaultyLink, fault: Fault) -> None:
        link.lose(requests=fault is Fault.LOSE_REQUEST, answers=fault is Fault.LOSE_ANSWER)
        await asyncio.sleep(random.uniform(*_LOST_FOR))  # noqa: S311 - the network's own chance
        link.cut()


async def count(
    run: RunRecord,
    settings: CountSettings,
    progress: Callable[[Progress], None] | None = None,
) -> Ran:
    """Run the scenario until every message has ended, or patience has.

    Args:
        run: the devices and their messages.
        settings: where, how fast, and with which faults.
        progress: told where the run is, twice a second.

    Returns:
        What it met. What became of the messages is in the outboxes.

    Raises:
        OutboxError: an outbox cannot be used.
    """
    actors = [_Actor(name, run, settings) for name in run.devices]
    most = settings.seconds + settings.patience
    watcher = asyncio.create_task(_watch(actors, run, progress)) if progress else None
    try:
        async with (
            asyncio.timeout(most),
            asyncio.TaskGroup() as group,
        ):
            for actor in actors:
                group.create_task(actor.run())
    except TimeoutError:
        pass  # what is not delivered is told by the verdict
    finally:
        if watcher is not None:
            watcher.cancel()
        errors = Counter(actor.error for actor in actors if actor.error)
        await asyncio.gather(*(actor.stop() for actor in actors))
    return Ran(sum((actor.plan.happened for actor in actors), Counter[Fault]()), errors)


def _waiting(counts: Mapping[State, int]) -> int:
    return sum(counts.get(state, 0) for state in LIVE)


def _taken(device: Device) -> int:
    return sum(device.counts().values())


async def _watch(
    actors: list[_Actor], run: RunRecord, progress: Callable[[Progress], None]
) -> None:
    while True:
        counts = [actor.counts() for actor in actors]
        progress(
            Progress(
                delivered=sum(each.get(State.DONE, 0) for each in counts),
                waiting=sum(_waiting(each) for each in counts),
                planned=run.planned,
                online=sum(actor.online for actor in actors),
                faults=sum(actor.plan.happened.total() for actor in actors),
            )
        )
        await asyncio.sleep(_PROGRESS_S)
