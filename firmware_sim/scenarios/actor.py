"""A simulated device that is restarted, and disconnected by a faulty link, while it sends.

The scenario decides the messages and their times; a `FaultPlan` decides the faults.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, Final

from firmware_sim.device.errors import DeviceStopped, FirmwareError
from firmware_sim.device.limits import ReconnectPolicy, SendPolicy
from firmware_sim.device.sender_loop import DeliveryStep
from firmware_sim.device.sender_rules import LIVE, State
from firmware_sim.scenarios.faults import Fault, FaultPlan
from firmware_sim.scenarios.link import FaultyLink

if TYPE_CHECKING:
    from firmware_sim.device.device import Device

    Make = Callable[[str, int, Callable[[DeliveryStep, int], None]], Device]

RECONNECT: Final = ReconnectPolicy(base=0.25, cap=2.0, stable=0.5, timeout=10.0)
"""Delays between the attempts of a scenario's devices to connect: short, because a run is short."""

SEND: Final = SendPolicy(retry_base=2.0, retry_cap=10.0, silence=10.0, max_attempts=50)
"""Retries of devices whose gateway is killed and restarted often."""

FULL_WAIT_S: Final = 0.25
"""Seconds after which a device whose outbox was full tries to send again."""

_LOST_FOR: Final = (0.02, 0.2)  # seconds that a mute link stays before it is cut


class BackgroundTasks:
    """A set of tasks that can be stopped together."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

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

    Args:
        host, port: the gateway's address.
        plan: the device's faults; if their rate is 0, the device connects without a `FaultyLink`.
        make: creates the device, given the host, the port, and the device's argument `observe`.
    """

    def __init__(self, host: str, port: int, plan: FaultPlan, make: Make) -> None:
        self.plan = plan
        self._where = (host, port)
        self._make = make
        self._link: FaultyLink | None = None
        self._device: Device | None = None
        self._tasks = BackgroundTasks()
        self._running = asyncio.Event()
        self._error: FirmwareError | None = None

    async def start(self) -> None:
        """Start the link, if there is one, and the device.

        Raises:
            OutboxError, InboxError: the outbox or the inbox cannot be opened.
        """
        if self.plan.rate > 0.0:
            self._link = FaultyLink(*self._where, self.plan.delay)
            await self._link.start()
            self._where = ("127.0.0.1", self._link.port)
        await self._begin_life()
        self._running.set()

    async def stop(self) -> None:
        """Stop the device and its link; undelivered messages stay in the outbox."""
        await self._tasks.stop()
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

    async def flush(self) -> None:
        """Wait until each message in the outbox is done, failed or in doubt, across restarts."""
        while waiting((await self.steady()).counts()):
            with contextlib.suppress(DeviceStopped):
                await (await self.steady()).flush()

    def counts(self) -> Mapping[State, int]:
        """Return the number of the device's messages by state; empty while it restarts."""
        with contextlib.suppress(DeviceStopped):
            return {} if self._device is None else self._device.counts()
        return {}

    @property
    def online(self) -> bool:
        """Return whether the device has a session."""
        return self._device is not None and self._device.online

    @property
    def error(self) -> str:
        """Return why the device has no session; empty if it has one or has no pending messages."""
        if self._device is None or self.online or not waiting(self.counts()):
            return ""
        return self._device.last_error

    async def _begin_life(self) -> None:
        self._device = self._make(*self._where, self._observe)
        await self._device.start()

    def _observe(self, moment: DeliveryStep, number: int) -> None:
        fault = self.plan.at(moment, number)
        if fault is None or self._link is None:
            return
        if fault is Fault.RESTART:
            self._tasks.begin(self._restart())
        elif fault in (Fault.CUT, Fault.RESET):
            self._link.cut(reset=fault is Fault.RESET)
        elif fault in (Fault.END_REQUESTS, Fault.END_ANSWERS):
            ends_requests = fault is Fault.END_REQUESTS
            self._link.half_close(requests=ends_requests, answers=not ends_requests)
        else:
            self._tasks.begin(self._lose(self._link, fault))

    async def _restart(self) -> None:
        if not self._running.is_set() or self._device is None:
            return
        self._running.clear()
        try:
            await self._device.kill()
            await self._begin_life()
        except FirmwareError as error:
            self._error = error
        self._running.set()

    async def _lose(self, link: FaultyLink, fault: Fault) -> None:
        link.lose(requests=fault is Fault.LOSE_REQUEST, answers=fault is Fault.LOSE_ANSWER)
        await asyncio.sleep(random.uniform(*_LOST_FOR))  # noqa: S311 - the network's own chance
        link.cut()


def waiting(counts: Mapping[State, int]) -> int:
    """Return the number of messages that are queued, offered or released."""
    return sum(counts.get(state, 0) for state in LIVE)


def taken(device: Device) -> int:
    """Return the number of messages that a device's outbox has accepted since its creation."""
    return sum(device.counts().values())
