"""The scenario `workers`: workers of a queue and members of shares process items, with faults.

The scenario creates its own gateway. The first half of the items is processed without faults, to
measure whether all workers get equally many. Then workers crash, hang, return items, leave and
rejoin, members of shares crash, and the gateway is killed and restarted. `workers_plan` decides the
items and the faults; `workers_verdict` judges the result.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from firmware_sim.device.jobs import JobStore
from firmware_sim.device.publisher import Publisher
from firmware_sim.errors import SimulationFailed
from firmware_sim.scenarios import gateway_command, workers_verdict
from firmware_sim.scenarios.gateway_process import SHORT_RUN, GatewayProcess
from firmware_sim.scenarios.play import LOOK_S, Participant, Result, ShowProgress, playing, prepare
from firmware_sim.scenarios.workers_participants import (
    LOCK_S,
    ItemPublisher,
    QueueWorker,
    ShareMember,
)
from firmware_sim.scenarios.workers_plan import (
    LEVELS,
    QUEUE,
    SHARED_NODES,
    Publication,
    WorkersPlan,
)
from firmware_sim.scenarios.workers_verdict import (
    DeadItem,
    WorkerRecord,
    WorkersEvidence,
)

_OWNER: Final = "owner"
_DELIVERIES: Final = 5  # after which the queue gives an item up
_AT_ONCE: Final = 8  # items that a publisher has under way
_DEAD: Final = "dead"
_DEAD_EVENT: Final = "queue_dead"  # the event of a dead item
_STATES: Final = ("ready", "delayed", "locked")


async def workers(plan: WorkersPlan, show: ShowProgress = lambda _line: None) -> Result:
    """Run the scenario and judge it.

    Raises FirmwareError if a `fieldpost` command failed, a file could not be used, or a participant
    could not connect.
    """
    crews = {name: level for level in LEVELS for name in plan.members_of(level)}
    names = [_OWNER, *plan.publishers, *plan.names, *crews]
    show(f"creating a gateway with {len(names)} accounts")
    async with GatewayProcess.running(plan.folder / "gateway", names, SHORT_RUN) as gateway:
        run = _Run(plan, gateway, crews)
        await prepare(_create_nodes(plan, gateway))
        everyone: list[Participant] = [*run.workers, *run.members, *run.publishers.values()]
        async with playing(everyone, show, run.progress) as happened:
            await run.behave()
            await run.fail()
        failed = [worker for worker in run.workers if worker.failure is not None]
    if failed:
        raise SimulationFailed(f"{failed[0].name} stopped: {failed[0].failure}")
    evidence = await asyncio.to_thread(_gather, run)
    return Result(workers_verdict.judge(plan, evidence), {"kills": gateway.kills, **happened})


class _Run:
    def __init__(self, plan: WorkersPlan, gateway: GatewayProcess, crews: dict[str, int]) -> None:
        self.plan, self.gateway = plan, gateway
        self.workers = [QueueWorker(name, plan, gateway) for name in plan.names]
        self.members = [ShareMember(name, level, plan, gateway) for name, level in crews.items()]
        self.publishers = {name: ItemPublisher(name, plan, gateway) for name in plan.publishers}
        self.fair: dict[str, int] = {}
        self._published = 0

    async def behave(self) -> None:
        """Process the first half of the items, without faults.

        Each round has one item for each worker. If all came at once, workers that a busy machine
        serves sooner would get more of them.
        """
        items, seconds = list(self.plan.fair()), self.plan.seconds / 2
        step = len(self.workers)
        async with asyncio.timeout(seconds + self.plan.patience):
            for first in range(0, len(items), step):
                one_each = items[first : first + step]
                await self._publish(one_each, seconds * len(one_each) / len(items))
                while self._done() < first + len(one_each):  # noqa: ASYNC110
                    await asyncio.sleep(LOOK_S / 10)
        self.fair = {worker.name: worker.done() for worker in self.workers}

    async def fail(self) -> None:
        """Publish the remaining items while faults occur; wait until all are deleted or dead."""
        plan, gateway = self.plan, self.gateway
        async with (
            asyncio.timeout(plan.seconds + plan.patience),
            asyncio.TaskGroup() as group,
        ):
            group.create_task(gateway.kill_often(plan.kills, plan.seconds, plan.seed))
            group.create_task(self._publish(list(plan.rough()), plan.seconds))
        async with asyncio.timeout(plan.patience):
            while await self._unfinished():  # noqa: ASYNC110 - only the gateway knows
                await asyncio.sleep(LOOK_S)

    def progress(self) -> str:
        """Describe the progress of the run."""
        faults = sum(worker.faults.total() for worker in self.workers)
        return (
            f"{self._published} published, {self._done()}/{self.plan.items} done, {faults} faults,"
            f" {self.gateway.kills} kills"
        )

    def _done(self) -> int:
        return sum(worker.done() for worker in self.workers)

    async def _unfinished(self) -> int:
        left = await asyncio.to_thread(_waiting, self.gateway.folder)
        return left + sum(worker.unsure() for worker in self.workers)

    async def _publish(self, items: list[Publication], seconds: float) -> None:
        """Publish items evenly over `seconds` seconds, and wait until all are accepted."""
        step = seconds / max(len(items), 1)
        begun = asyncio.get_running_loop().time()
        slots = {name: asyncio.Semaphore(_AT_ONCE) for name in self.publishers}

        async def one(place: int, item: Publication) -> None:
            await asyncio.sleep(begun + place * step - asyncio.get_running_loop().time())
            async with slots[item.publisher]:
                await self.publishers[item.publisher].publish(item)
            self._published += 1

        async with asyncio.TaskGroup() as group:
            for place, item in enumerate(items):
                group.create_task(one(place, item))
        await asyncio.gather(*(publisher.flush() for publisher in self.publishers.values()))


async def _create_nodes(plan: WorkersPlan, gateway: GatewayProcess) -> None:
    async with Publisher(plan.jid(_OWNER), **gateway.login) as owner:
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


def _gather(run: _Run) -> WorkersEvidence:
    """Collect all evidence of a run, whose participants are stopped, from files and the gateway.

    The files of workers and members contain the items that they processed, the publishers' outboxes
    the items that they published. `fieldpost queue show` gives the items that the gateway keeps,
    its event log the dead items.
    """
    plan, gateway = run.plan, run.gateway.folder
    (queue,) = gateway_command.read(gateway, "queue", "show", QUEUE, "--limit", str(2 * plan.items))
    items = queue["items_shown"]
    events = gateway_command.read(gateway, "events")
    logged = {str(row["tags"]["item"]) for row in events if row["name"] == _DEAD_EVENT}
    shares = {row["name"]: row for row in gateway_command.read(gateway, "queue", "list")}
    return WorkersEvidence(
        published=sum((each.published() for each in run.publishers.values()), Counter[str]()),
        worked=[row for name in plan.names for row in _worked(plan, name)],
        taken=sum((each.taken() for each in run.members), Counter[tuple[int, str]]()),
        dead={
            row["item"]: DeadItem(row["deliveries"], row["reason"], row["item"] in logged)
            for row in items
            if row["state"] == _DEAD
        },
        left={row["item"]: row["sentence"] for row in items if row["state"] != _DEAD},
        fair=run.fair,
        shares={
            level: sum(shares.get(plan.share(level), {}).get(s, 0) for s in (*_STATES, _DEAD))
            for level in LEVELS
        },
        most_deliveries=_DELIVERIES,
    )


def _worked(plan: WorkersPlan, name: str) -> Iterable[WorkerRecord]:
    path, keep = plan.file(name), 2 * plan.items
    with JobStore.open(path, plan.jid(name), QUEUE, keep=keep) as jobs:
        for record in jobs.records():
            yield WorkerRecord(name, record.item, record.state, record.runs, record.commits)


def _waiting(gateway: Path) -> int:
    """Return the number of items in all queues that are ready, delayed or locked."""
    rows: list[dict[str, Any]] = gateway_command.read(gateway, "queue", "list")
    return sum(row[state] for row in rows for state in _STATES)
