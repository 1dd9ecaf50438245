"""The participants of a `workers` run: workers with faults, members of shares, and publishers.

Each participant keeps a durable record of its items in a file.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import sqlite3
import xml.etree.ElementTree as ET
from collections import Counter
from typing import Any, Final

from firmware_sim.device.errors import CannotDo, DeviceStopped, FirmwareError, NoAnswer
from firmware_sim.device.inbox import Inbox
from firmware_sim.device.jobs import Job, JobCounter
from firmware_sim.device.limits import WorkLimits
from firmware_sim.device.publisher import Publisher
from firmware_sim.device.pubsub import PUBSUB, Pubsub
from firmware_sim.device.receive_options import ReceivedMessage, ReceiveOptions
from firmware_sim.device.sender_rules import Level, State
from firmware_sim.device.worker import Worker
from firmware_sim.scenarios.actor import RECONNECT, Actor, BackgroundTasks
from firmware_sim.scenarios.gateway_process import DOMAIN, GatewayProcess
from firmware_sim.scenarios.record import inbox, remember, sent
from firmware_sim.scenarios.workers_plan import QUEUE, Fault, Publication, Route, WorkersPlan

LOCK_S: Final = 3.0
"""Lock timeout of the queue in seconds: short, because a run is short."""

JOB: Final = "urn:x-fieldpost:job"
"""The XML namespace of the items' payloads."""

_REQUESTS: Final = 5  # items that a worker, or a member, has at a time
_AWAY_S: Final = (0.2, 1.5)  # seconds for which who left stays away
_WORK_S: Final = 0.005  # that an item takes
_AGAIN_S: Final = 0.5  # until a request that was not answered is repeated
_TAKEN: Final = """
CREATE TABLE taken (item TEXT PRIMARY KEY, times INTEGER NOT NULL DEFAULT 1) STRICT
"""
_TAKE: Final = (
    "INSERT INTO taken (item) VALUES (?) ON CONFLICT (item) DO UPDATE SET times = times + 1"
)


class QueueWorker:
    """A worker of the queue, with the faults of the plan."""

    def __init__(self, name: str, plan: WorkersPlan, gateway: GatewayProcess) -> None:
        self.name, self._plan, self._gateway = name, plan, gateway
        self._chance = random.Random(f"away/{plan.seed}/{name}")  # noqa: S311 - repeatable
        self._worker = self._make()
        self._away = False
        self._tasks = BackgroundTasks()
        self.faults: Counter[Fault] = Counter()

    def _make(self) -> Worker:
        plan = self._plan
        return Worker(
            plan.jid(self.name),
            node=QUEUE,
            path=plan.file(self.name),
            work=self._work,
            by_account=plan.names.index(self.name) % 2 == 1,
            limits=WorkLimits(_REQUESTS, keep=2 * plan.items),
            reconnect=RECONNECT,
            **self._gateway.login,
        )

    async def start(self) -> None:
        """Start the worker, and wait until it is subscribed."""
        await self._worker.start()
        await self._worker.subscribed()

    async def stop(self) -> None:
        """Stop the worker, and the tasks that cause its faults."""
        await self._tasks.stop()
        await self._worker.close()

    def happened(self) -> Counter[str]:
        """Count the worker's faults by kind."""
        return Counter({fault.value: count for fault, count in self.faults.items()})

    def done(self) -> int:
        """Return the number of items whose deletion was confirmed."""
        with contextlib.suppress(DeviceStopped):
            return self._worker.jobs.counts()[JobCounter.DONE]
        return 0

    def unsure(self) -> int:
        """Return the work left: unconfirmed deletions, plus 1 while a fault keeps it away."""
        with contextlib.suppress(DeviceStopped):
            return len(self._worker.jobs.unconfirmed()) + self._away
        return 1

    @property
    def failure(self) -> Exception | None:
        """Return the exception that stopped the worker, or None."""
        return self._worker.failure

    async def _work(self, job: Job) -> None:
        if self._plan.poison(job.item):
            raise CannotDo(job.item)
        fault = self._plan.fault(self.name, job.item, job.times)
        if fault is not None and not self._away:
            await self._apply_fault(fault)
        await asyncio.sleep(_WORK_S)

    async def _apply_fault(self, fault: Fault) -> None:
        self.faults[fault] += 1
        if fault is Fault.UNLOCK:
            raise CannotDo(fault.value)
        if fault is Fault.SLOW:
            await asyncio.sleep(self._chance.uniform(0.1, 0.6) * LOCK_S)
        elif fault is Fault.CUT:
            self._worker.cut()
        else:
            if fault is not Fault.HANG:
                self._away = True
                self._tasks.begin(self._leave(fault))
            await asyncio.Event().wait()  # for ever, or until the item is no longer its own

    async def _leave(self, fault: Fault) -> None:
        """Crash, disconnect, become unavailable or unsubscribe, as `fault` says; then rejoin."""
        worker, away = self._worker, self._chance.uniform(*_AWAY_S)
        if fault in (Fault.CRASH, Fault.GONE):
            await worker.kill()
            await asyncio.sleep(0.0 if fault is Fault.CRASH else away)
            self._worker = self._make()
            await self._worker.start()
        else:
            if fault is Fault.HIDE:
                worker.hide()
            else:
                with contextlib.suppress(FirmwareError):
                    await worker.leave()
            await asyncio.sleep(away)
            with contextlib.suppress(FirmwareError):
                await worker.rejoin()
        self._away = False


class ShareMember(Actor):
    """A member of a share: a device that receives items, and crashes on receiving some of them."""

    def __init__(self, name: str, level: int, plan: WorkersPlan, gateway: GatewayProcess) -> None:
        self._plan, self._level, jid = plan, level, plan.jid(name)
        self._pubsub: Pubsub | None = None
        self._crashed: set[str] = set()
        file = inbox(plan.folder, jid)
        receive = ReceiveOptions(file, self._take, afterwards=self._taken, schema=_TAKEN)
        prepare = self._prepare
        super().__init__(plan.folder, jid, gateway.login, receive=receive, prepare=prepare)

    async def start(self) -> None:
        """Start the member, and subscribe it once; the gateway keeps the subscription."""
        await super().start()
        plan = self._plan
        share = plan.subscribed(self._level, plan.members_of(self._level).index(self.name))
        options = {"pubsub#qos": str(self._level), "pubsub#queue_requests": str(_REQUESTS)}
        while True:
            device = await self.steady()
            if not device.online or self._pubsub is None:
                await device.changed()
                continue
            try:
                await self._pubsub.subscribe(share, self.jid.partition("/")[0], options)
            except NoAnswer:
                await asyncio.sleep(_AGAIN_S)
            else:
                return

    def happened(self) -> Counter[str]:
        """Count the crashes."""
        return Counter({"members crashed": len(self._crashed)})

    def taken(self) -> Counter[tuple[int, str]]:
        """Return how often the stopped member received each (level, item)."""
        with Inbox.open(inbox(self._plan.folder, self.jid), self.jid) as opened:
            rows = opened.database.execute("SELECT item, times FROM taken")
            return Counter({(self._level, item): times for item, times in rows})

    def _prepare(self, client: Any) -> None:
        self._pubsub = Pubsub(client, f"pubsub.{DOMAIN}")

    def _take(self, message: ReceivedMessage, db: sqlite3.Connection) -> None:
        for reported in message.items():
            db.execute(_TAKE, (reported.item,))

    def _taken(self, message: ReceivedMessage) -> None:
        for reported in message.items():
            item = reported.item
            if item not in self._crashed and self._plan.crash(self.name, item):
                self._crashed.add(item)
                self.cut()  # before it can answer
                self.tasks.begin(self.restart())


class ItemPublisher(Actor):
    """A publisher of items, by iq or by messages, that repeats each item until it is accepted."""

    def __init__(self, name: str, plan: WorkersPlan, gateway: GatewayProcess) -> None:
        login, limits = gateway.login, remember(2 * plan.items)
        super().__init__(plan.folder, plan.jid(name), login, limits=limits)
        self._folder = plan.folder
        self._publisher = Publisher(f"{name}@{DOMAIN}/iq", reconnect=RECONNECT, **login)
        self._tries: Counter[str] = Counter()

    async def start(self) -> None:
        """Begin to connect, without waiting for sessions."""
        self._publisher.start()
        await super().start()

    async def stop(self) -> None:
        """Stop the publisher and its device."""
        await self._publisher.close()
        await super().stop()

    async def publish(self, publication: Publication) -> None:
        """Publish an item; return when the service has accepted it, or the outbox has stored it."""
        item, node = publication.item, publication.node
        if publication.way is Route.IQ:
            payload = ET.Element(f"{{{JOB}}}job", {"item": item})
            self._tries[item] = await self._publisher.publish(node, item, payload)
            return
        body = (
            f"<message><item xmlns='{PUBSUB}' id='{item}'>"
            f"<job xmlns='{JOB}' item='{item}'/></item></message>"
        )
        qos = 2 if publication.way is Route.ASSURED else 1
        await self.send(body, to=f"pubsub.{DOMAIN}/{node}", qos=qos, label=item)

    def published(self) -> Counter[str]:
        """Return how often each item may have been published; omit failed items."""
        found = self._tries.copy()
        for record in sent(self._folder, self.jid):
            if record.state in (State.DONE, State.IN_DOUBT):
                once = record.level is not Level.ACKNOWLEDGED
                found[record.label] += 1 if once else self.offers[record.number]
        return found
