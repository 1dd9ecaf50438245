"""A simulated device that is restarted, and disconnected by a faulty link, while it sends.

The scenario decides the messages and their times; a `FaultPlan` decides the faults.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import AsyncIterator, Coroutine, Iterable, Mapping
from pathlib import Path
from typing import Any, Final, Self

from firmware_sim.device.device import Device
from firmware_sim.device.errors import DeviceStopped, FirmwareError, OutboxFull
from firmware_sim.device.limits import ReconnectPolicy, SendPolicy
from firmware_sim.device.sender_loop import DeliveryStep
from firmware_sim.device.sender_rules import LIVE, State
from firmware_sim.scenarios.faults import Fault, FaultPlan
from firmware_sim.scenarios.link import FaultyLink
from firmware_sim.scenarios.record import outbox

RECONNECT: Final = ReconnectPolicy(base=0.25, cap=2.0, stable=0.5, timeout=10.0)
"""Delays between the attempts of a scenario's devices to connect: short, because a run is short."""

_SEND: Final = SendPolicy(retry_base=2.0, retry_cap=10.0, silence=10.0, max_attempts=50)
"""Retries of devices whose gateway is killed and restarted often."""

_FULL_WAIT_S: Final = 0.25  # until a device whose outbox was full tries to send again
_LOST_FOR: Final = (0.02, 0.2)  # seconds that a mute link stays before it is cut


class BackgroundTasks:
    """A set of tasks that are stopped together, at the end of the context at the latest."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    def begin(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine as a task."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def stop(self) -> None:
        """Cancel all tasks, and wait until they have ended."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class Actor:
    """A device of a scenario, with its link and its faults.

    `folder` is that of its outbox. `login` has its password, and the gateway's host, port and CA
    file. If the rate of the faults is 0, as by default, it connects without a `FaultyLink`.
    `options` are further arguments of `Device`.
    """

    def __init__(
        self,
        folder: Path,
        jid: str,
        login: Mapping[str, Any],
        faults: FaultPlan | None = None,
        **options: Any,
    ) -> None:
        self.jid, self.name = jid, jid.partition("@")[0]
        self.faults = faults or FaultPlan(0, self.name, 0.0)
        self.offers: Counter[int] = Counter()
        """The number of times that each message of the outbox was offered, by its number."""
        defaults = {"policy": _SEND, "reconnect": RECONNECT, "observe": self.observe}
        self._options = {"outbox_path": outbox(folder, jid), **defaults, **login, **options}
        self._link: FaultyLink | None = None
        self._device: Device | None = None
        self.tasks = BackgroundTasks()
        self._running = asyncio.Event()
        self._error: FirmwareError | None = None

    async def start(self) -> None:
        """Start the link, if there is one, and the device.

        Raises OutboxError or InboxError if the outbox or the inbox cannot be opened.
        """
        if self.faults.rate > 0.0:
            host, port = self._options["host"], self._options["port"]
            self._link = FaultyLink(host, port, self.faults.delay)
            await self._link.start()
            self._options |= {"host": "127.0.0.1", "port": self._link.port}
        await self._begin_life()

    async def stop(self) -> None:
        """Stop the device and its link; undelivered messages stay in the outbox."""
        await self.tasks.stop()
        if self._device is not None:
            await self._device.close()
        if self._link is not None:
            await self._link.stop()

    async def steady(self) -> Device:
        """Wait for the end of any restart, then return the device, or raise the restart's error."""
        await self._running.wait()
        if self._error is not None:
            raise self._error
        assert self._device is not None  # noqa: S101 - it runs
        return self._device

    async def numbers(
        self, seed: int, count: int, seconds: float, first: int = 1
    ) -> AsyncIterator[int]:
        """Generate the numbers from `first` to `count`, each at a random time of its own.

        The times of all numbers from 1 are spread evenly over `seconds` seconds.
        """
        chance = random.Random(f"pace/{seed}/{self.name}")  # noqa: S311 - repeatable
        loop = asyncio.get_running_loop()
        begun, step = loop.time(), seconds / max(count, 1)
        for number in range(1, count + 1):
            due = begun + (number - 1 + chance.random()) * step
            if number >= first:
                await asyncio.sleep(due - loop.time())
                yield number

    async def send(self, message: str, *, to: str, label: str, qos: int = 2) -> None:
        """Retry until the outbox has the message; after a restart, first look for its label."""
        unsure = False
        while True:
            device = await self.steady()
            try:
                if unsure and any(record.label == label for record in device.records()):
                    return
                await device.send(message, to=to, qos=qos, label=label)
            except OutboxFull:
                await asyncio.sleep(_FULL_WAIT_S)
            except DeviceStopped:
                unsure = True
                await asyncio.sleep(0)  # it restarts
            else:
                return

    async def flush(self) -> None:
        """Wait until each message in the outbox is done, failed or in doubt, across restarts."""
        while _waiting((await self.steady()).counts()):
            with contextlib.suppress(DeviceStopped):
                await (await self.steady()).flush()

    def cut(self) -> None:
        """Abort the connection."""
        if self._device is not None:
            self._device.cut()

    def counts(self) -> Mapping[State, int]:
        """Return the number of the device's messages by state; empty while it restarts."""
        with contextlib.suppress(DeviceStopped):
            return {} if self._device is None else self._device.counts()
        return {}

    @property
    def online(self) -> bool:
        """Return whether the device has a session."""
        return self._device is not None and self._device.online

    def happened(self) -> Counter[str]:
        """Count faults by kind; add why the device has no session, if it has messages to send."""
        found = Counter({fault.value: count for fault, count in self.faults.happened.items()})
        if self._device is not None and not self.online and _waiting(self.counts()):
            found[f"offline: {self._device.last_error}"] += 1
        return found

    def observe(self, moment: DeliveryStep, number: int) -> None:
        """Count an offer, and cause the fault that is planned for this step of a message."""
        self.offers[number] += moment is DeliveryStep.OFFERED
        fault = self.faults.at(moment, number)
        if fault is None or self._link is None:
            return
        if fault is Fault.RESTART:
            self.tasks.begin(self.restart())
        elif fault in (Fault.CUT, Fault.RESET):
            self._link.cut(reset=fault is Fault.RESET)
        elif fault in (Fault.END_REQUESTS, Fault.END_ANSWERS):
            ends_requests = fault is Fault.END_REQUESTS
            self._link.half_close(requests=ends_requests, answers=not ends_requests)
        else:
            self.tasks.begin(self._lose(self._link, fault))

    async def restart(self) -> None:
        """Kill the device and start it again, unless it is being restarted."""
        if not self._running.is_set() or self._device is None:
            return
        self._running.clear()
        try:
            await self._device.kill()
            await self._begin_life()
        except FirmwareError as error:
            self._error = error
            self._running.set()

    async def _begin_life(self) -> None:
        self._device = Device(self.jid, **self._options)
        await self._device.start()
        self._running.set()

    async def _lose(self, link: FaultyLink, fault: Fault) -> None:
        link.lose(requests=fault is Fault.LOSE_REQUEST, answers=fault is Fault.LOSE_ANSWER)
        await asyncio.sleep(random.uniform(*_LOST_FOR))  # noqa: S311 - the network's own chance
        link.cut()


def progress(actors: Iterable[Actor], planned: int) -> str:
    """Describe the progress of a run in which actors send `planned` messages together."""
    counts = [actor.counts() for actor in actors]
    delivered = sum(each.get(State.DONE, 0) for each in counts)
    online = sum(actor.online for actor in actors)
    faults = sum(actor.faults.happened.total() for actor in actors)
    return (
        f"{delivered}/{planned} delivered, {sum(map(_waiting, counts))} waiting,"
        f" {online} devices online, {faults} faults"
    )


def _waiting(counts: Mapping[State, int]) -> int:
    """Return the number of messages that are queued, offered or released."""
    return sum(counts.get(state, 0) for state in LIVE)
