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
import random
import secrets
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

from firmware_sim.attackers.__main__ import named
from firmware_sim.attackers.accounts import AWAY, VICTIM
from firmware_sim.attackers.attack import Attack
from firmware_sim.device.device import Device
from firmware_sim.device.errors import FirmwareError
from firmware_sim.device.sender_loop import DeliveryStep
from firmware_sim.errors import SimulationFailed
from firmware_sim.scenarios import count_verdict, gateway_log
from firmware_sim.scenarios.actor import RECONNECT
from firmware_sim.scenarios.attack_verdict import (
    AttackResult,
    AttackVerdict,
    Refusals,
    ResponseTimes,
    ceiling,
)
from firmware_sim.scenarios.gateway_process import DOMAIN, HOST, Account, GatewayProcess
from firmware_sim.scenarios.record import EVENT, RunRecord

_MEMORY: Final = Path("/dev/shm")  # noqa: S108 - a folder of its own is made there
_WATCH_S: Final = 0.1  # between two looks at the memory
_JOIN_S: Final = 30.0  # for all devices to have a session
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
    the 99th percentile of response times during the attack to that of the calmer quiet phase. If
    `attacks` is empty, all attacks run.

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
    attacks: tuple[str, ...] = ()
    judge_times: bool = True

    @property
    def settle(self) -> float:
        """Seconds before each quiet phase that are not judged: answers are slow at first."""
        return 2.0 if self.judge_times else 0.0


@dataclass(slots=True)
class _Clock:
    """Response times of a device: `took` has (time of first offer, seconds) of each ended message.

    `offered` has the time of the first offer of each message that has not ended.
    """

    offered: dict[int, float] = field(default_factory=dict)
    took: list[tuple[float, float]] = field(default_factory=list)

    def observe(self, moment: DeliveryStep, number: int) -> None:
        now = asyncio.get_running_loop().time()
        if moment is DeliveryStep.OFFERED:
            self.offered.setdefault(number, now)
        elif moment is DeliveryStep.ENDED and number in self.offered:
            begun = self.offered.pop(number)
            self.took.append((begun, now - begun))


class _Measurements(NamedTuple):
    """The times of the phases, the attackers' counts, and the gateway's peak memory in bytes."""

    quiet: float
    begun: float
    after: float
    ended: float
    counts: dict[str, dict[str, int]]
    peak: int


class _Honest:
    def __init__(
        self,
        name: str,
        run: RunRecord,
        gateway: GatewayProcess,
        password: str,
        seed: int,
        outboxes: Path,
    ) -> None:
        self.clock = _Clock()
        self._run = run
        self._random = random.Random(f"honest/{seed}/{name}")  # noqa: S311 - repeatable
        self.device = Device(
            run.jid(name),
            password,
            outbox_path=run.outbox(outboxes, name),
            ca_file=gateway.ca,
            host=HOST,
            port=gateway.port,
            limits=run.limits,
            reconnect=RECONNECT,
            observe=self.clock.observe,
        )

    async def send(self, pace: float) -> None:
        """Send all messages of this device, `pace` per second."""
        begun = asyncio.get_running_loop().time()
        for number in range(1, self._run.messages + 1):
            due = begun + (number - 1 + self._random.random()) / pace
            await asyncio.sleep(due - asyncio.get_running_loop().time())
            tags: dict[str, str | int | float] = {"n": number, "run": self._run.run}
            await self.device.send_log(EVENT, "Honest.", tags=tags, label=str(number))


async def attack(
    settings: AttackSettings, progress: Callable[[str], None] = lambda _line: None
) -> AttackVerdict:
    """Create a gateway, measure it before, during and after an attack, and return the verdict.

    Args:
        settings: the settings of the attack.
        progress: called with a progress message at the start of each phase.

    Raises:
        FirmwareError: a `fieldpost` command or the attackers failed, or devices could not connect.
        ValueError: an attack is unknown.
    """
    attacks = named(settings.attacks)
    password = secrets.token_urlsafe(12)
    seconds = 2 * (settings.settle + settings.quiet) + settings.attacked
    names = tuple(f"honest{n}" for n in range(1, settings.devices + 1))
    run = RunRecord.begin(settings.folder, DOMAIN, names, round(settings.pace * seconds))
    progress(f"creating a gateway with {len(names)} honest devices and {len(attacks)} attacks")
    accounts = _accounts(names, attacks, password)
    gateway = await GatewayProcess.make(settings.folder / "gateway", accounts, {})
    try:
        with _outbox_folder() as outboxes:
            return await _attack(settings, attacks, run, gateway, password, outboxes, progress)
    finally:
        await gateway.kill()


async def _attack(
    settings: AttackSettings,
    attacks: tuple[Attack, ...],
    run: RunRecord,
    gateway: GatewayProcess,
    password: str,
    outboxes: Path,
    progress: Callable[[str], None],
) -> AttackVerdict:
    await gateway.start()
    idle = gateway.resident()
    devices = [
        _Honest(name, run, gateway, password, settings.seed, outboxes) for name in run.devices
    ]
    found = await _measured(settings, gateway, password, devices, progress)
    survived = gateway.running and await gateway.stop() == 0  # a stop tells all refusals
    survived = survived and "Traceback" not in gateway.complaints
    took = [row for device in devices for row in device.clock.took]

    def times(begin: float, end: float) -> ResponseTimes:
        return ResponseTimes.of(t for at, t in took if begin <= at < end)

    lines = await asyncio.to_thread(gateway_log.from_gateway, gateway.folder)
    refusals = Refusals.of(gateway_log.events(lines))
    rows = tuple(_attacked(each, found.counts[each.name], refusals) for each in attacks)
    return AttackVerdict(
        idle=idle,
        peak=found.peak,
        ceiling=settings.ceiling or ceiling(gateway.limits, idle, len(run.devices) + len(attacks)),
        quiet=(times(found.quiet, found.begun), times(found.after, found.ended)),
        busy=times(found.begun, found.after - settings.settle),
        times=settings.times if settings.judge_times else math.inf,
        honest=count_verdict.judge(
            run.planned, run.believed(outboxes), gateway_log.of_run(lines, run.run)
        ),
        attacks=rows,
        survived=survived,
    )


async def _measured(
    settings: AttackSettings,
    gateway: GatewayProcess,
    password: str,
    devices: list[_Honest],
    progress: Callable[[str], None],
) -> _Measurements:
    peaks: list[int] = []
    watch = asyncio.create_task(_watch(gateway, peaks))
    try:
        await _join(devices)
        loop = asyncio.get_running_loop()
        sending = asyncio.gather(*(device.send(settings.pace) for device in devices))
        await asyncio.sleep(settings.settle)
        progress(f"quiet phase: {settings.quiet:g} s")
        quiet = loop.time()
        await asyncio.sleep(settings.quiet)
        progress(f"attack: at least {settings.attacked:g} s")
        begun = loop.time()
        counts = await _attackers(settings, gateway, password)
        await asyncio.sleep(settings.settle)
        progress(f"attack ended; quiet phase: {settings.quiet:g} s")
        after = loop.time()
        await asyncio.sleep(settings.quiet)
        ended = loop.time()
        progress("waiting for undelivered messages")
        await sending
        await asyncio.gather(*(device.device.flush(_PATIENCE_S) for device in devices))
    finally:
        watch.cancel()
        await asyncio.gather(*(device.device.close() for device in devices))
    return _Measurements(quiet, begun, after, ended, counts, max(gateway.peak(), *peaks))


def _accounts(names: tuple[str, ...], attacks: tuple[Attack, ...], password: str) -> list[Account]:
    honest = [Account(name, password) for name in (*names, VICTIM, AWAY)]
    return honest + [Account(a.account, password, a.trusted) for a in attacks if a.account]


def _attacked(each: Attack, counts: Mapping[str, int], refusals: Refusals) -> AttackResult:
    """Combine an attack's own counts with the refusals that the gateway logged for its source."""
    source = each.source(DOMAIN)
    own = (counts["sent"], counts["refused"], counts["closed"])
    return AttackResult(each.name, *own, refusals.by(source, each.rules), refusals.total(source))


@contextlib.contextmanager
def _outbox_folder() -> Iterator[Path]:
    """Create a temporary folder for the devices' outboxes, in memory if possible.

    Real devices have their own storage, so their writes must not load the gateway's disk.
    """
    memory = str(_MEMORY) if os.access(_MEMORY, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="fieldpost-sim-", dir=memory) as folder:
        yield Path(folder)


async def _join(devices: list[_Honest]) -> None:
    for each in devices:
        await each.device.start()
    for each in devices:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_JOIN_S):
                while not each.device.online:
                    await each.device.changed()
        if not each.device.online:
            raise FirmwareError(f"{each.device.jid} could not connect: {each.device.last_error}")


async def _attackers(
    settings: AttackSettings, gateway: GatewayProcess, password: str
) -> dict[str, dict[str, int]]:
    """Run the attackers in a separate process, and return their counts by attack."""
    order: dict[str, Any] = {
        "host": HOST,
        "port": gateway.port,
        "domain": DOMAIN,
        "ca": str(gateway.ca),
        "password": password,
        "seconds": settings.attacked,
        "patience": _REFUSED_S,
        "rate": settings.rate,
        "attacks": settings.attacks,
        "idle_only": settings.judge_times,
    }
    pipe = asyncio.subprocess.PIPE
    argv = (sys.executable, "-m", "firmware_sim.attackers")
    process = await asyncio.create_subprocess_exec(*argv, stdin=pipe, stdout=pipe, stderr=pipe)
    try:
        async with asyncio.timeout(settings.attacked + _REFUSED_S + _END_S):
            output, errors = await process.communicate(json.dumps(order).encode())
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


async def _watch(gateway: GatewayProcess, peaks: list[int]) -> None:
    """Measure the gateway's resident memory repeatedly; put the maximum into `peaks[0]`."""
    peaks.append(gateway.resident())
    while True:
        peaks[0] = max(peaks[0], gateway.resident())
        await asyncio.sleep(_WATCH_S)
