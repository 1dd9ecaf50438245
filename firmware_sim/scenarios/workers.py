"""The scenario `workers`: workers of a queue and members of shares process items, with faults.

The scenario creates its own gateway. The first half of the items is processed without faults, to
measure whether all workers get equally many. Then workers crash, hang, return items, leave and
rejoin, members of shares crash, and the gateway is killed and restarted. `workers_plan` decides the
items and the faults; `workers_verdict` judges the result.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from firmware_sim.device.publisher import Publisher
from firmware_sim.errors import SimulationFailed
from firmware_sim.scenarios import workers_verdict
from firmware_sim.scenarios.gateway_process import SHORT_RUN, Account, GatewayProcess
from firmware_sim.scenarios.workers_evidence import gather, waiting
from firmware_sim.scenarios.workers_participants import (
    LOCK_S,
    ItemPublisher,
    QueueWorker,
    Setting,
    ShareMember,
    jid,
)
from firmware_sim.scenarios.workers_plan import (
    LEVELS,
    QUEUE,
    SHARED_NODES,
    Fault,
    Publication,
    WorkersPlan,
)
from firmware_sim.scenarios.workers_verdict import WorkersVerdict

_OWNER: Final = "owner"
_DELIVERIES: Final = 5  # after which the queue gives an item up
_AT_ONCE: Final = 8  # items that a publisher has under way
_START_S: Final = 60.0  # until all are subscribed
_LOOK_S: Final = 0.5  # between two looks at what is left, and two reports


@dataclass(frozen=True, slots=True)
class WorkersSettings:
    """Settings of a run, in which `workers` workers process `items` items of a queue.

    The first half of the items is published in `seconds / 2` without faults, the second half in
    `seconds`, with a fault in the fraction `faults` of deliveries. Each shared subscription of the
    run has `members` members. The gateway is killed `kills` times. To finish each half takes at
    most `patience` further seconds; else the run fails.
    """

    folder: Path
    workers: int = 20
    items: int = 5_000
    members: int = 3
    seconds: float = 60.0
    patience: float = 120.0
    faults: float = 0.05
    kills: int = 3
    seed: int = 1

    @property
    def plan(self) -> WorkersPlan:
        """The plan of the run: the items and the faults."""
        return WorkersPlan(self.seed, self.workers, self.items, self.members, self.faults)


@dataclass(frozen=True, slots=True)
class WorkersResult:
    """A finished run: its verdict, and numbers of faults, member crashes and gateway kills."""

    verdict: WorkersVerdict
    faults: Counter[Fault]
    crashes: int
    kills: int


class _Run:
    def __init__(
        self, settings: WorkersSettings, stage: Setting, progress: Callable[[str], None]
    ) -> None:
        self.stage, self.settings, self._progress = stage, settings, progress
        plan = stage.plan
        self.workers = [QueueWorker(name, stage) for name in plan.names]
        self.members = [
            ShareMember(name, level, stage) for level in LEVELS for name in plan.members_of(level)
        ]
        self.publishers = {name: ItemPublisher(name, stage) for name in plan.publishers}
        self.fair: dict[str, int] = {}
        self.published = 0

    async def prepare(self) -> None:
        """Create the nodes, and start all participants, which connect and subscribe."""
        await _create(self.stage)
        self._progress("waiting until all participants are subscribed")
        await asyncio.gather(*(each.start() for each in self._played()))

    async def behave(self) -> None:
        """Process the first half of the items, without faults."""
        plan = self.stage.plan
        items = list(plan.fair())
        seconds = self.settings.seconds / 2
        async with asyncio.timeout(seconds + self.settings.patience):
            await self._publish(items, seconds)
            while True:
                if sum(worker.done() for worker in self.workers) >= len(items):
                    break
                await asyncio.sleep(_LOOK_S)
        self.fair = {worker.name: worker.done() for worker in self.workers}

    async def fail(self) -> None:
        """Publish the remaining items while faults occur; wait until all are deleted or dead."""
        settings = self.settings
        gateway = self.stage.gateway
        killing = gateway.kill_often(settings.kills, settings.seconds, settings.seed)
        async with (
            asyncio.timeout(settings.seconds + settings.patience),
            asyncio.TaskGroup() as group,
        ):
            group.create_task(killing)
            group.create_task(self._publish(list(self.stage.plan.rough()), settings.seconds))
        await self._drained()

    async def stop(self) -> None:
        """Stop all participants."""
        await asyncio.gather(*(each.stop() for each in self._played()))

    def _played(self) -> list[QueueWorker | ShareMember | ItemPublisher]:
        return [*self.workers, *self.members, *self.publishers.values()]

    async def report(self) -> None:
        """Report progress twice a second, until cancelled."""
        plan = self.stage.plan
        while True:
            done = sum(worker.done() for worker in self.workers)
            faults = sum(worker.happened.total() for worker in self.workers)
            kills = self.stage.gateway.starts - 1
            self._progress(
                f"{self.published} published, {done}/{plan.items} done, {faults} faults,"
                f" {kills} kills"
            )
            await asyncio.sleep(_LOOK_S)

    async def _publish(self, items: Iterable[Publication], seconds: float) -> None:
        """Publish items evenly over `seconds` seconds, and wait until all are accepted."""
        rows = list(items)
        step = seconds / max(len(rows), 1)
        begun = asyncio.get_running_loop().time()
        slots = {name: asyncio.Semaphore(_AT_ONCE) for name in self.publishers}

        async def one(place: int, row: Publication) -> None:
            await asyncio.sleep(begun + place * step - asyncio.get_running_loop().time())
            async with slots[row.publisher]:
                await self.publishers[row.publisher].publish(row)
            self.published += 1

        async with asyncio.TaskGroup() as group:
            for place, row in enumerate(rows):
                group.create_task(one(place, row))
        await asyncio.gather(*(publisher.flush() for publisher in self.publishers.values()))

    async def _drained(self) -> None:
        """Wait until all remaining items are dead, and all deletions are confirmed."""
        gateway = self.stage.gateway
        async with asyncio.timeout(self.settings.patience):
            while True:
                left = await asyncio.to_thread(waiting, gateway.folder)
                left += sum(worker.unsure() for worker in self.workers)
                if not left:
                    return
                await asyncio.sleep(_LOOK_S)


async def workers(
    settings: WorkersSettings, progress: Callable[[str], None] = lambda _line: None
) -> WorkersResult:
    """Run the scenario and judge it.

    Args:
        settings: the settings; `folder` is created, and its files are kept for inspection.
        progress: called twice a second with a line about the progress.

    Raises:
        FirmwareError: a `fieldpost` command failed, a file could not be used, or a participant
            could not connect.
    """
    plan = settings.plan
    folder = settings.folder
    folder.mkdir(parents=True, exist_ok=True)
    password = secrets.token_urlsafe(12)
    crews = [name for level in LEVELS for name in plan.members_of(level)]
    names = [_OWNER, *plan.publishers, *plan.names, *crews]
    progress(f"creating a gateway with {len(names)} accounts")
    accounts = [Account(name, password) for name in names]
    gateway = await GatewayProcess.make(folder / "gateway", accounts, SHORT_RUN)
    run = _Run(settings, Setting(plan, gateway, password, folder), progress)
    try:
        await gateway.start()
        await _play(run)
        failed = [worker for worker in run.workers if worker.failure is not None]
    finally:
        await run.stop()
        await gateway.stop()
    if failed:
        raise SimulationFailed(f"{failed[0].name} stopped: {failed[0].failure}")
    publishers = list(run.publishers.values())
    evidence = await asyncio.to_thread(gather, run.stage, publishers, run.fair, _DELIVERIES)
    faults = sum((worker.happened for worker in run.workers), Counter[Fault]())
    crashes = sum(member.crashes for member in run.members)
    verdict = workers_verdict.judge(plan, evidence)
    return WorkersResult(verdict, faults, crashes, gateway.starts - 1)


async def _play(run: _Run) -> None:
    """Execute the run until it is finished or its time limit has passed."""
    try:
        async with asyncio.timeout(_START_S):
            await run.prepare()
    except TimeoutError as error:
        raise SimulationFailed(
            f"not all participants subscribed within {_START_S:.0f} s"
        ) from error
    reporting = asyncio.create_task(run.report())
    try:
        await run.behave()
        await run.fail()
    except TimeoutError:
        pass
    finally:
        reporting.cancel()
        await asyncio.gather(reporting, return_exceptions=True)


async def _create(stage: Setting) -> None:
    async with Publisher(jid(_OWNER), stage.password, **stage.where) as owner:
        service = await owner.service()
        everyone = {"pubsub#access_model": "open", "pubsub#publish_model": "open"}
        queue = {
            "pubsub#queueing": "1",
            "pubsub#queue_lock_timeout": f"{LOCK_S:.0f}",
            "pubsub#queue_max_deliveries": str(_DELIVERIES),
        }
        await service.create(QUEUE, {**everyone, **queue})
        for node in SHARED_NODES:
            await service.create(node, everyone)
