"""The scenario `attack`: measure honest devices before, during and after attacks on a gateway.

The scenario creates its own gateway. Honest devices send assured events continuously, and their
response times are measured. The attackers run in a separate process. The gateway's memory is read
from `/proc`. `attack_verdict` judges the result.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

from firmware_sim.attackers.__main__ import ALL, Order
from firmware_sim.attackers.accounts import AWAY, VICTIM
from firmware_sim.attackers.attack import Attack
from firmware_sim.device import messages
from firmware_sim.device.limits import SendPolicy
from firmware_sim.device.sender_loop import DeliveryStep
from firmware_sim.errors import SimulationFailed
from firmware_sim.scenarios import count_verdict, gateway_command
from firmware_sim.scenarios.actor import Actor, BackgroundTasks
from firmware_sim.scenarios.attack_verdict import (
    AttackEvidence,
    AttackResult,
    ResponseTimes,
    ceiling,
    count_refusals,
    judge,
)
from firmware_sim.scenarios.gateway_process import DOMAIN, HOST, GatewayProcess
from firmware_sim.scenarios.play import Result, ShowProgress, playing
from firmware_sim.scenarios.record import EVENT, RunRecord

_MEMORY: Final = Path("/dev/shm")  # noqa: S108 - a folder of its own is made there
_WATCH_S: Final = 0.1  # between two looks at the memory
_PATIENCE_S: Final = 60.0  # until what was sent in the attack is delivered
_REFUSED_S: Final = 60.0  # that the attack may go on until each was refused
_END_S: Final = 15.0  # for the attackers to end when their time is over


@dataclass(frozen=True, slots=True)
class AttackSettings:
    """Settings of an attack: `devices` honest devices each send `pace` messages per second.

    `quiet` is the duration in seconds of each of two phases without attack, one before, one after.
    The attack lasts `attacked` seconds, and up to `_REFUSED_S` more until the gateway has refused
    each attacker. `rate` is the maximum number of stanzas per second of each attacker. `ceiling` is
    the memory limit in bytes; 0 computes it from the configuration. `times` is the allowed ratio of
    the 99th percentile of response times during the attack to that of the calmer quiet phase.

    With `judge_times`, the attackers use only idle processor time, as if they ran on other
    machines; on a busy machine, this can be little. Otherwise they run with normal priority, and
    response times are not judged.
    """

    folder: Path
    devices: int = 10
    pace: float = 5.0
    quiet: float = 10.0
    attacked: float = 40.0
    rate: float = 500.0
    ceiling: int = 0
    times: float = 3.0
    seed: int = 1
    attacks: tuple[Attack, ...] = ALL
    judge_times: bool = True

    @property
    def settle(self) -> float:
        """Seconds before each quiet phase that are not judged: answers are slow at first."""
        return 2.0 if self.judge_times else 0.0


@dataclass(slots=True)
class _Measurements:
    """The times of the phases, the attackers' counts, and the gateway's peak memory in bytes."""

    quiet: float = 0.0
    begun: float = 0.0
    after: float = 0.0
    ended: float = 0.0
    counts: dict[str, dict[str, int]] = field(default_factory=dict)
    peak: int = 0
    phase: str = "connecting"


class _Honest(Actor):
    """A device whose response times are measured.

    `took` has (time of the first offer, seconds until the end) of each ended message.
    """

    def __init__(self, name: str, run: RunRecord, gateway: GatewayProcess, outboxes: Path) -> None:
        policy, limits = SendPolicy(), run.limits
        super().__init__(outboxes, run.jid(name), gateway.login, policy=policy, limits=limits)
        self._run = run
        self._offered: dict[int, float] = {}
        self.took: list[tuple[float, float]] = []

    def observe(self, moment: DeliveryStep, number: int) -> None:
        """Measure the response time of a message."""
        now = asyncio.get_running_loop().time()
        if moment is DeliveryStep.OFFERED:
            self._offered.setdefault(number, now)
        elif moment is DeliveryStep.ENDED and number in self._offered:
            begun = self._offered.pop(number)
            self.took.append((begun, now - begun))

    async def start(self) -> None:
        """Start the device, and wait until it has a session."""
        await super().start()
        device = await self.steady()
        while not device.online:
            await device.changed()

    async def send_all(self, seed: int, pace: float) -> None:
        """Send all messages of this device, `pace` per second, and wait until all have ended."""
        run = self._run
        async for number in self.numbers(seed, run.messages, run.messages / pace):
            event = messages.log(EVENT, "Honest.", tags={"n": number, "run": run.run})
            await self.send(event, to="", label=str(number))
        await self.flush()


async def attack(settings: AttackSettings, show: ShowProgress = lambda _line: None) -> Result:
    """Create a gateway, measure it before, during and after an attack, and judge it.

    Raises FirmwareError if a `fieldpost` command or the attackers failed, or devices could not
    connect.
    """
    attacks = settings.attacks
    seconds = 2 * (settings.settle + settings.quiet) + settings.attacked
    names = tuple(f"honest{n}" for n in range(1, settings.devices + 1))
    run = RunRecord.begin(settings.folder, DOMAIN, names, round(settings.pace * seconds))
    show(f"creating a gateway with {len(names)} honest devices and {len(attacks)} attacks")
    accounts = [*names, VICTIM, AWAY, *(each.account for each in attacks if each.account)]
    untrusted = [each.account for each in attacks if not each.trusted]
    folder = settings.folder / "gateway"
    async with GatewayProcess.running(folder, accounts, {}, untrusted) as gateway:
        # Real devices have their own storage: their writes must not load the gateway's disk.
        memory = _MEMORY if os.access(_MEMORY, os.W_OK) else None
        with tempfile.TemporaryDirectory(prefix="fieldpost-sim-", dir=memory) as outboxes:
            evidence = await _attack(settings, run, gateway, Path(outboxes), show)
    return Result(judge(evidence), {})


async def _attack(
    settings: AttackSettings,
    run: RunRecord,
    gateway: GatewayProcess,
    outboxes: Path,
    show: ShowProgress,
) -> AttackEvidence:
    idle = gateway.memory("VmRSS")
    devices = [_Honest(name, run, gateway, outboxes) for name in run.devices]
    found = await _measured(settings, gateway, devices, show)
    survived = gateway.is_running and await gateway.stop() == 0  # a stop tells all refusals
    survived = survived and "Traceback" not in gateway.complaints()
    took = [row for device in devices for row in device.took]

    def times(begin: float, end: float) -> ResponseTimes:
        return ResponseTimes.of(t for at, t in took if begin <= at < end)

    events = await asyncio.to_thread(gateway_command.read, gateway.folder, "events")
    refusals = count_refusals(events)
    logged = gateway_command.of_run(events, run.run)
    return AttackEvidence(
        idle=idle,
        peak=found.peak,
        ceiling=settings.ceiling
        or ceiling(gateway.limits, idle, len(run.devices) + len(settings.attacks)),
        quiet=(times(found.quiet, found.begun), times(found.after, found.ended)),
        busy=times(found.begun, found.after - settings.settle),
        times=settings.times if settings.judge_times else math.inf,
        honest=count_verdict.judge(run.planned, run.believed(outboxes), logged),
        attacks=tuple(
            _attacked(each, found.counts[each.name], refusals) for each in settings.attacks
        ),
        survived=survived,
    )


async def _measured(
    settings: AttackSettings, gateway: GatewayProcess, devices: list[_Honest], show: ShowProgress
) -> _Measurements:
    found, loop = _Measurements(), asyncio.get_running_loop()
    async with BackgroundTasks() as watching, playing(devices, show, lambda: found.phase):
        watching.begin(_watch(gateway, found))
        async with asyncio.timeout(None) as limit, asyncio.TaskGroup() as group:
            for each in devices:
                group.create_task(each.send_all(settings.seed, settings.pace))
            await asyncio.sleep(settings.settle)
            found.phase, found.quiet = f"quiet phase: {settings.quiet:g} s", loop.time()
            await asyncio.sleep(settings.quiet)
            found.phase, found.begun = f"attack: at least {settings.attacked:g} s", loop.time()
            found.counts = await _attackers(settings, gateway)
            await asyncio.sleep(settings.settle)
            found.phase, found.after = f"quiet phase: {settings.quiet:g} s", loop.time()
            await asyncio.sleep(settings.quiet)
            found.phase, found.ended = "waiting for undelivered messages", loop.time()
            limit.reschedule(found.ended + _PATIENCE_S)
    found.peak = max(found.peak, gateway.memory("VmHWM"))
    return found


def _attacked(
    each: Attack, counts: Mapping[str, int], refusals: Mapping[str, Counter[str]]
) -> AttackResult:
    """Combine an attack's own counts with the refusals that the gateway logged for its source."""
    found = refusals.get(each.source(DOMAIN), Counter())
    logged = {rule: found[rule] for rule in each.rules if found[rule]}
    return AttackResult(each.name, **counts, logged=logged, total=found.total())


async def _attackers(
    settings: AttackSettings, gateway: GatewayProcess
) -> dict[str, dict[str, int]]:
    """Run the attackers in a separate process, and return their counts by attack."""
    login, names = gateway.login, [each.name for each in settings.attacks]
    place = (HOST, gateway.port, DOMAIN, str(login["ca_file"]), login["password"])
    times = (settings.attacked, _REFUSED_S, settings.rate)
    order = Order(*place, *times, names, settings.judge_times)
    pipe = asyncio.subprocess.PIPE
    argv = (sys.executable, "-m", "firmware_sim.attackers")
    process = await asyncio.create_subprocess_exec(*argv, stdin=pipe, stdout=pipe, stderr=pipe)
    try:
        async with asyncio.timeout(settings.attacked + _REFUSED_S + _END_S):
            output, errors = await process.communicate(json.dumps(asdict(order)).encode())
    except TimeoutError as error:
        raise SimulationFailed("the attackers did not end in time") from error
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
    if process.returncode != 0:
        raise SimulationFailed(f"the attackers failed: {errors.decode()[-500:]}")
    found: dict[str, dict[str, int]] = json.loads(output)
    return found


async def _watch(gateway: GatewayProcess, found: _Measurements) -> None:
    """Measure the gateway's resident memory repeatedly; keep the maximum."""
    while True:
        found.peak = max(found.peak, gateway.memory("VmRSS"))
        await asyncio.sleep(_WATCH_S)
