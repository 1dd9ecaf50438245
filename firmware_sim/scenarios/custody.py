"""The scenario `custody`: devices send each other messages of all QoS levels, with faults.

Links lose and delay data, and reset and half-close connections. Devices restart; some read slowly,
some never connect. The gateway is killed and restarted. `custody_plan` decides the messages,
`faults` the faults, and `custody_verdict` judges the result.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import secrets
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from firmware_sim.device import messages
from firmware_sim.device.device import Device
from firmware_sim.device.errors import DeviceStopped, NotSent, OutboxFull
from firmware_sim.device.limits import OutboxLimits
from firmware_sim.device.receive_options import ReceiveOptions
from firmware_sim.device.sender_loop import DeliveryStep
from firmware_sim.device.sender_rules import State
from firmware_sim.scenarios import custody_verdict
from firmware_sim.scenarios.actor import FULL_WAIT_S, RECONNECT, SEND, Actor, waiting
from firmware_sim.scenarios.actuator import Actuator, command
from firmware_sim.scenarios.count_verdict import Key
from firmware_sim.scenarios.custody_evidence import (
    for_absent,
    gateway_folder,
    gather,
    inbox,
    kept,
    outbox,
)
from firmware_sim.scenarios.custody_plan import Addressing, Plan
from firmware_sim.scenarios.custody_verdict import CustodyVerdict
from firmware_sim.scenarios.faults import Fault, FaultPlan
from firmware_sim.scenarios.gateway_process import DOMAIN, HOST, SHORT_RUN, Account, GatewayProcess
from firmware_sim.scenarios.record import EVENT

_REACHED: Final = 0.6  # of the messages come to the moment at which they meet a fault, by levels
_SLOW_S: Final = (0.5, 3.0)  # for which a slow reader does not read, and reads, in turn
_TRIES: Final = 3  # to send a message of level 0, which nobody keeps
_SESSION_S: Final = 1.0  # that each of those waits for a session
_LOOK_S: Final = 1.0  # between two looks at what waits, and two reports
_LOOKS: Final = 3  # that have to show the same
_VALVE: Final = Actuator()


@dataclass(frozen=True, slots=True)
class CustodySettings:
    """Settings of a run: in `seconds` seconds, `devices` devices send `messages` in total.

    `faults` is the fraction of messages with a fault. The gateway is killed `kills` times.
    `patience` is the maximum number of further seconds for deliveries.
    """

    folder: Path
    devices: int = 100
    messages: int = 20_000
    seconds: float = 180.0
    patience: float = 180.0
    faults: float = 0.05
    kills: int = 10
    seed: int = 1

    @property
    def plan(self) -> Plan:
        """The messages of the run."""
        return Plan(self.seed, DOMAIN, self.devices, self.messages)


@dataclass(frozen=True, slots=True)
class CustodyResult:
    """A finished run: its verdict, and numbers of faults, gateway kills and connection errors."""

    verdict: CustodyVerdict
    faults: Counter[Fault]
    kills: int
    errors: Counter[str]


class _Sender:
    """One device of the run: it sends its messages, and executes the commands that it receives."""

    def __init__(
        self, name: str, settings: CustodySettings, run: str, gateway: GatewayProcess, password: str
    ) -> None:
        self.name = name
        self._settings, self._plan = settings, settings.plan
        self._run, self._gateway, self._password = run, gateway, password
        self._random = random.Random(f"pace/{settings.seed}/{name}")  # noqa: S311 - repeatable
        faults = FaultPlan(settings.seed, name, min(settings.faults / _REACHED, 1.0))
        self.actor = Actor(HOST, gateway.port, faults, self._make)
        self.plain: dict[Key, State] = {}
        """The outcomes of the device's messages of level 0: `DONE` if sent, else `FAILED`."""
        self.offers: Counter[int] = Counter()
        """The number of times that each message of the outbox was offered."""

    def _make(self, host: str, port: int, observe: Callable[[DeliveryStep, int], None]) -> Device:
        folder, jid = self._settings.folder, self._plan.jid(self.name)
        return Device(
            jid,
            self._password,
            outbox_path=outbox(folder, self.name),
            ca_file=self._gateway.ca,
            host=host,
            port=port,
            policy=SEND,
            limits=OutboxLimits(keep_done=self._plan.messages, keep_failed=self._plan.messages),
            reconnect=RECONNECT,
            receive=ReceiveOptions(inbox(folder, self.name), _VALVE.run, schema=_VALVE.SCHEMA),
            observe=self._counting(observe),
        )

    def _counting(
        self, observe: Callable[[DeliveryStep, int], None]
    ) -> Callable[[DeliveryStep, int], None]:
        def counting(moment: DeliveryStep, number: int) -> None:
            self.offers[number] += moment is DeliveryStep.OFFERED
            observe(moment, number)

        return counting

    async def send(self) -> None:
        """Send all messages at their times."""
        loop, count = asyncio.get_running_loop(), self._plan.count(self.name)
        begun, step = loop.time(), self._settings.seconds / max(count, 1)
        for number in range(1, count + 1):
            due = begun + (number - 1 + self._random.random()) * step
            await asyncio.sleep(due - loop.time())
            planned = self._plan.message(self.name, number)
            to = self._plan.address(planned)
            body = self._body(number, planned.way)
            if planned.level == 0:
                await self._send_plain(number, body, to)
            else:
                await self._send_sure(number, body, to, planned.level)

    def _body(self, number: int, way: Addressing) -> str:
        if way is Addressing.GATEWAY:
            return messages.log(EVENT, "Custody.", tags={"n": number, "run": self._run})
        return command(str(number), "open")

    async def _send_plain(self, number: int, body: str, to: str) -> None:
        key = (self._plan.jid(self.name), number)
        self.plain[key] = State.FAILED
        for _ in range(_TRIES):
            with contextlib.suppress(NotSent, DeviceStopped, TimeoutError):
                device = await self.actor.steady()
                if not device.online:
                    async with asyncio.timeout(_SESSION_S):
                        await device.changed()
                await device.send(body, to=to, qos=0)
                self.plain[key] = State.DONE
                return

    async def _send_sure(self, number: int, body: str, to: str, level: int) -> None:
        """Retry until the outbox has the message; after a device's restart, first look for it."""
        unsure = False
        while True:
            device = await self.actor.steady()
            try:
                if unsure and any(int(record.label) == number for record in device.records()):
                    return
                await device.send(body, to=to, qos=level, label=str(number))
            except OutboxFull:
                await asyncio.sleep(FULL_WAIT_S)
            except DeviceStopped:
                unsure = True
                await asyncio.sleep(0)  # it restarts
            else:
                return

    async def read_slowly(self) -> None:
        """Pause and resume reading at random intervals, until cancelled."""
        while True:
            await asyncio.sleep(self._random.uniform(*_SLOW_S))
            device = await self.actor.steady()
            device.pause_reading()
            await asyncio.sleep(self._random.uniform(*_SLOW_S))
            device.resume_reading()


async def custody(
    settings: CustodySettings, progress: Callable[[str], None] = lambda _line: None
) -> CustodyResult:
    """Run the scenario and judge it.

    Args:
        settings: the settings; `folder` is created, and its files are kept for inspection.
        progress: called each second with a line about the progress.

    Raises:
        FirmwareError: a `fieldpost` command failed, or a device's file could not be used.
    """
    plan, password, run = settings.plan, secrets.token_urlsafe(12), secrets.token_hex(8)
    settings.folder.mkdir(parents=True, exist_ok=True)
    progress(f"creating a gateway with {len(plan.names)} devices")
    accounts = [Account(name, password) for name in plan.names]
    gateway = await GatewayProcess.make(gateway_folder(settings.folder), accounts, SHORT_RUN)
    senders = [_Sender(name, settings, run, gateway, password) for name in plan.present]
    try:
        await gateway.start()
        await _go(settings, gateway, senders, progress)
        errors = Counter(each.actor.error for each in senders if each.actor.error)
    finally:
        await asyncio.gather(*(each.actor.stop() for each in senders))
        await gateway.stop()
    believed = dict(row for each in senders for row in each.plain.items())
    offers = {each.name: each.offers for each in senders}
    evidence = await asyncio.to_thread(gather, settings.folder, plan, run, believed, offers)
    faults = sum((each.actor.plan.happened for each in senders), Counter[Fault]())
    verdict = custody_verdict.judge(plan.all(), evidence)
    return CustodyResult(verdict, faults, gateway.starts - 1, errors)


async def _go(
    settings: CustodySettings,
    gateway: GatewayProcess,
    senders: list[_Sender],
    progress: Callable[[str], None],
) -> None:
    slow = [each for each in senders if each.name in settings.plan.slow]
    for each in senders:
        await each.actor.start()
    asides = [asyncio.create_task(each.read_slowly()) for each in slow]
    asides += [asyncio.create_task(_report(settings, gateway, senders, progress))]
    killing = gateway.kill_often(settings.kills, settings.seconds, settings.seed)
    asides += [asyncio.create_task(killing)]
    try:
        async with asyncio.timeout(settings.seconds + settings.patience):
            async with asyncio.TaskGroup() as group:
                for each in senders:
                    group.create_task(each.send())
            await asides[-1]
            for aside in asides[: len(slow)]:
                aside.cancel()
            for each in slow:
                (await each.actor.steady()).resume_reading()
            await asyncio.gather(*(each.actor.flush() for each in senders))
            await _drained(settings, gateway, senders)
    except TimeoutError:
        pass  # what has not arrived is reported by the verdict
    finally:
        for aside in asides:
            aside.cancel()
        await asyncio.gather(*asides, return_exceptions=True)


async def _drained(
    settings: CustodySettings, gateway: GatewayProcess, senders: list[_Sender]
) -> None:
    """Wait until the gateway keeps only messages for devices that never connect.

    The exact number is unknown, because the gateway can keep a message of level 1 twice if it was
    sent twice. So the wait ends when the number is low enough and the same three times.
    """
    seen = [-1]
    while len(seen) < _LOOKS or len(set(seen[-_LOOKS:])) > 1:
        await asyncio.sleep(_LOOK_S)
        most = 0
        for each in senders:
            delivered = (await each.actor.steady()).delivered()
            most += sum(for_absent(settings.plan, delivered, each.offers))
        found = await asyncio.to_thread(kept, gateway.folder)
        seen.append(found if found <= most else -len(seen) - 1)


async def _report(
    settings: CustodySettings,
    gateway: GatewayProcess,
    senders: list[_Sender],
    progress: Callable[[str], None],
) -> None:
    while True:
        counts = [each.actor.counts() for each in senders]
        done = sum(sum(each.values()) - waiting(each) for each in counts)
        live, online = sum(map(waiting, counts)), sum(each.actor.online for each in senders)
        plain = sum(len(each.plain) for each in senders)
        faults = sum(each.actor.plan.happened.total() for each in senders)
        progress(
            f"{done + live + plain}/{settings.messages} sent, {live} under way,"
            f" {online} devices online, {faults} faults, {gateway.starts - 1} kills"
        )
        await asyncio.sleep(_LOOK_S)
