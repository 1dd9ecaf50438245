"""The scenario `custody`: devices send each other messages of all QoS levels, with faults.

Links lose and delay data, and reset and half-close connections. Devices restart; some read slowly,
some never connect. The gateway is killed and restarted. `custody_plan` decides the messages,
`faults` the faults, and `custody_verdict` judges the result.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import re
import secrets
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from firmware_sim.device import messages
from firmware_sim.device.errors import DeviceStopped, NotSent
from firmware_sim.device.inbox import Inbox
from firmware_sim.device.outbox import OutboxRecord
from firmware_sim.device.receive_options import ReceiveOptions
from firmware_sim.device.sender_rules import Level, State
from firmware_sim.scenarios import custody_verdict, gateway_command
from firmware_sim.scenarios.actor import Actor, BackgroundTasks, progress
from firmware_sim.scenarios.actuator import Actuator, command
from firmware_sim.scenarios.custody_plan import Addressing, CustodyPlan
from firmware_sim.scenarios.custody_verdict import GATEWAY, CustodyEvidence, Execution
from firmware_sim.scenarios.faults import FaultPlan
from firmware_sim.scenarios.gateway_process import SHORT_RUN, GatewayProcess
from firmware_sim.scenarios.play import Result, ShowProgress, playing
from firmware_sim.scenarios.record import EVENT, Key, believed, inbox, remember, sent

_REACHED: Final = 0.6  # of the messages come to the moment at which they meet a fault, by levels
_SLOW_S: Final = (0.5, 3.0)  # for which a slow reader does not read, and reads, in turn
_TRIES: Final = 3  # to send a message of level 0, which nobody keeps
_SESSION_S: Final = 1.0  # that each of those waits for a session
_LOOK_S: Final = 1.0  # between two looks at what waits
_LOOKS: Final = 3  # that have to show the same
_VALVE: Final = Actuator()
_IN_DOUBT: Final = "in doubt"
_NUMBER: Final = re.compile("name=[\"'](?:command|n)[\"'] value=[\"']([0-9]+)[\"']")
"""Matches a message's number in its body: a command's id, or an event's tag `n`."""


class _Sender(Actor):
    """One device of the run: it sends its messages, and executes the commands that it receives."""

    def __init__(self, name: str, plan: CustodyPlan, run: str, gateway: GatewayProcess) -> None:
        self._plan, self._run, jid = plan, run, plan.jid(name)
        self._random = random.Random(f"slow/{plan.seed}/{name}")  # noqa: S311 - repeatable
        super().__init__(
            plan.folder,
            jid,
            gateway.login,
            FaultPlan(plan.seed, name, min(plan.faults / _REACHED, 1.0)),
            limits=remember(plan.messages),
            receive=ReceiveOptions(inbox(plan.folder, jid), _VALVE.run, schema=_VALVE.SCHEMA),
        )
        self.plain: dict[Key, State] = {}
        """The outcomes of the device's messages of level 0: `DONE` if sent, else `FAILED`."""

    async def send_all(self) -> None:
        """Send all messages at their times."""
        plan = self._plan
        async for number in self.numbers(plan.seed, plan.count(self.name), plan.seconds):
            planned = plan.message(self.name, number)
            body = command(str(number), "open")
            if planned.way is Addressing.GATEWAY:
                body = messages.log(EVENT, "Custody.", tags={"n": number, "run": self._run})
            if planned.level == 0:
                await self._send_plain(number, body, plan.address(planned))
            else:
                to = plan.address(planned)
                await self.send(body, to=to, qos=planned.level, label=str(number))

    async def _send_plain(self, number: int, body: str, to: str) -> None:
        self.plain[self.jid, number] = State.FAILED
        for _ in range(_TRIES):
            with contextlib.suppress(NotSent, DeviceStopped, TimeoutError):
                device = await self.steady()
                if not device.online:
                    async with asyncio.timeout(_SESSION_S):
                        await device.changed()
                await device.send(body, to=to, qos=0)
                self.plain[self.jid, number] = State.DONE
                return

    async def read_slowly(self) -> None:
        """Pause and resume reading at random intervals, until cancelled."""
        while True:
            await asyncio.sleep(self._random.uniform(*_SLOW_S))
            device = await self.steady()
            device.pause_reading()
            await asyncio.sleep(self._random.uniform(*_SLOW_S))
            device.resume_reading()

    def for_absent(self, delivered: Iterable[OutboxRecord]) -> tuple[int, int]:
        """Count messages to devices that never connect, and repeated offers of those at level 1.

        `delivered` are the messages that are delivered according to this device.
        """
        plan = self._plan
        found = [each for each in delivered if each.recipient.partition("@")[0] in plan.absent]
        once = [each.number for each in found if each.level is Level.ACKNOWLEDGED]
        return len(found), sum(self.offers[number] - 1 for number in once)


async def custody(plan: CustodyPlan, show: ShowProgress = lambda _line: None) -> Result:
    """Run the scenario and judge it.

    Raises FirmwareError if a `fieldpost` command failed, or a device's file could not be used.
    """
    run = secrets.token_hex(8)
    show(f"creating a gateway with {len(plan.names)} devices")
    async with GatewayProcess.running(plan.folder / "gateway", plan.names, SHORT_RUN) as gateway:
        senders = [_Sender(name, plan, run, gateway) for name in plan.present]

        def line() -> str:
            return f"{progress(senders, plan.messages)}, {gateway.kills} kills"

        async with playing(senders, show, line) as happened:
            async with asyncio.timeout(plan.seconds + plan.patience):
                await _play(plan, gateway, senders)
    evidence = await asyncio.to_thread(_gather, plan, run, gateway.folder, senders)
    verdict = custody_verdict.judge(plan.all(), evidence)
    return Result(verdict, {"kills": gateway.kills, **happened})


async def _play(plan: CustodyPlan, gateway: GatewayProcess, senders: list[_Sender]) -> None:
    slow = [each for each in senders if each.name in plan.slow]
    async with BackgroundTasks() as reading, asyncio.TaskGroup() as group:
        for each in slow:
            reading.begin(each.read_slowly())
        group.create_task(gateway.kill_often(plan.kills, plan.seconds, plan.seed))
        for each in senders:
            group.create_task(each.send_all())
    for each in slow:
        (await each.steady()).resume_reading()
    await asyncio.gather(*(each.flush() for each in senders))
    await _drained(gateway, senders)


async def _drained(gateway: GatewayProcess, senders: list[_Sender]) -> None:
    """Wait until the gateway keeps only messages for devices that never connect.

    The exact number is unknown, because the gateway can keep a message of level 1 twice if it was
    sent twice. So the wait ends when the number is low enough and the same three times.
    """
    seen = [-1]
    while len(seen) < _LOOKS or len(set(seen[-_LOOKS:])) > 1:
        await asyncio.sleep(_LOOK_S)
        most = 0
        for each in senders:
            most += sum(each.for_absent((await each.steady()).delivered()))
        found = await asyncio.to_thread(_kept, gateway.folder)
        seen.append(found if found <= most else -len(seen) - 1)


def _gather(plan: CustodyPlan, run: str, gateway: Path, senders: list[_Sender]) -> CustodyEvidence:
    """Collect all evidence of a run, whose devices are stopped, from files and the gateway.

    Outboxes contain the states of messages according to their senders, inboxes the executed
    commands. The gateway's event log contains the messages to the gateway; its dead letters and
    its status show the messages that it still keeps.
    """
    states, executions, repeated = believed(plan.folder, map(plan.jid, plan.present)), [], 0
    for each in senders:
        states |= each.plain
        delivered = (row for row in sent(plan.folder, each.jid) if row.state is State.DONE)
        repeated += each.for_absent(delivered)[1]
        with Inbox.open(inbox(plan.folder, each.jid), each.jid) as received:
            executions += [
                Execution((row.sender, int(row.command)), each.name, row.times)
                for row in Actuator.ran(received.database)
            ]
    logged = gateway_command.of_run(gateway_command.read(gateway, "events"), run)
    executions += [Execution(key, GATEWAY) for key in logged]
    dead, absent = dict(_dead_letters(gateway)), frozenset(plan.absent)
    return CustodyEvidence(states, executions, dead, _kept(gateway), absent, repeated)


def _kept(gateway: Path) -> int:
    """Return the number of messages of levels 1 and 2 in a gateway's outboxes, from its status."""
    (status,) = gateway_command.read(gateway, "status")
    return int(status["waiting"]["outbox"])


def _dead_letters(gateway: Path) -> Iterator[tuple[Key, bool]]:
    """Return a gateway's dead letters, and whether each was certainly not delivered."""
    for listed in gateway_command.read(gateway, "dead", "list", "--all"):
        (found,) = gateway_command.read(gateway, "dead", "show", str(listed["id"]))
        number = _NUMBER.search(found["body"])
        if number is not None:
            yield (found["sender"], int(number[1])), found["state"] != _IN_DOUBT
