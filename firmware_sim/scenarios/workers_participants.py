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
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from firmware_sim.device import pubsub
from firmware_sim.device.device import Device
from firmware_sim.device.errors import CannotDo, DeviceStopped, FirmwareError, NoAnswer, OutboxFull
from firmware_sim.device.jobs import Job, JobCounter
from firmware_sim.device.limits import OutboxLimits, WorkLimits
from firmware_sim.device.publisher import Publisher
from firmware_sim.device.pubsub import PUBSUB, Pubsub
from firmware_sim.device.receive_options import ReceivedMessage, ReceiveOptions
from firmware_sim.device.sender_loop import DeliveryStep
from firmware_sim.device.worker import Worker
from firmware_sim.scenarios.actor import FULL_WAIT_S, RECONNECT, SEND, BackgroundTasks
from firmware_sim.scenarios.gateway_process import DOMAIN, HOST, GatewayProcess
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


@dataclass(frozen=True, slots=True)
class Setting:
    """The plan, the gateway, the accounts' password and the folder of the participants' files."""

    plan: WorkersPlan
    gateway: GatewayProcess
    password: str
    folder: Path

    def file(self, name: str) -> Path:
        """Return the path of a participant's file."""
        return self.folder / f"{name}.db"

    @property
    def where(self) -> dict[str, Any]:
        """The arguments for connecting to the gateway, the same for all participants."""
        return {"ca_file": self.gateway.ca, "host": HOST, "port": self.gateway.port}


def jid(name: str) -> str:
    """Return the full JID of a participant."""
    return f"{name}@{DOMAIN}/w"


class QueueWorker:
    """A worker of the queue, with the faults of the plan."""

    def __init__(self, name: str, stage: Setting) -> None:
        self.name, self._stage = name, stage
        self._chance = random.Random(f"away/{stage.plan.seed}/{name}")  # noqa: S311 - repeatable
        self._worker = self._make()
        self._away = False
        self._tasks = BackgroundTasks()
        self.happened: Counter[Fault] = Counter()

    def _make(self) -> Worker:
        number = self._stage.plan.names.index(self.name)
        return Worker(
            jid(self.name),
            self._stage.password,
            node=QUEUE,
            path=self._stage.file(self.name),
            work=self._work,
            by_account=number % 2 == 1,
            limits=WorkLimits(_REQUESTS, keep=2 * self._stage.plan.items),
            reconnect=RECONNECT,
            **self._stage.where,
        )

    async def start(self) -> None:
        """Start the worker, and wait until it is subscribed."""
        await self._worker.start()
        await self._worker.subscribed()

    async def stop(self) -> None:
        """Stop the worker, and the tasks that cause its faults."""
        await self._tasks.stop()
        await self._worker.close()

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
        if self._stage.plan.poison(job.item):
            raise CannotDo(job.item)
        fault = self._stage.plan.fault(self.name, job.item, job.times)
        if fault is not None and not self._away:
            await self._apply_fault(fault)
        await asyncio.sleep(_WORK_S)

    async def _apply_fault(self, fault: Fault) -> None:
        self.happened[fault] += 1
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


class ShareMember:
    """A member of a share: a device that receives items, and crashes on receiving some of them."""

    def __init__(self, name: str, level: int, stage: Setting) -> None:
        self.name, self.level, self._stage = name, level, stage
        self._device = self._make()
        self._pubsub: Pubsub | None = None
        self._subscribed = asyncio.Event()
        self._crashed: set[str] = set()
        self._lock = asyncio.Lock()
        self._tasks = BackgroundTasks()

    @property
    def crashes(self) -> int:
        """The number of times that the member crashed."""
        return len(self._crashed)

    def _make(self) -> Device:
        file = self._stage.file(self.name)
        return Device(
            jid(self.name),
            self._stage.password,
            outbox_path=file.with_suffix(".outbox"),
            policy=SEND,
            reconnect=RECONNECT,
            receive=ReceiveOptions(file, self._take, afterwards=self._taken, schema=_TAKEN),
            prepare=self._prepare,
            **self._stage.where,
        )

    async def start(self) -> None:
        """Start the member, and wait until it is subscribed."""
        await self._device.start()
        self._tasks.begin(self._subscribe())
        await self._subscribed.wait()

    async def stop(self) -> None:
        """Stop the member."""
        await self._tasks.stop()
        await self._device.close()

    def _prepare(self, client: Any) -> None:
        self._pubsub = Pubsub(client, f"pubsub.{DOMAIN}")

    async def _subscribe(self) -> None:
        """Subscribe once; the gateway keeps the subscription across sessions and restarts."""
        options = {"pubsub#qos": str(self.level), "pubsub#queue_requests": str(_REQUESTS)}
        while not self._subscribed.is_set():
            if not self._device.online or self._pubsub is None:
                await self._device.changed()
                continue
            try:
                plan = self._stage.plan
                share = plan.subscribed(self.level, plan.members_of(self.level).index(self.name))
                await self._pubsub.subscribe(share, jid(self.name).partition("/")[0], options)
                self._subscribed.set()
            except NoAnswer:
                await asyncio.sleep(_AGAIN_S)

    def _take(self, message: ReceivedMessage, db: sqlite3.Connection) -> None:
        for reported in pubsub.parse_item_events(message.xml()):
            db.execute(_TAKE, (reported.item,))

    def _taken(self, message: ReceivedMessage) -> None:
        for reported in pubsub.parse_item_events(message.xml()):
            if reported.item not in self._crashed and self._stage.plan.crash(
                self.name, reported.item
            ):
                self._crashed.add(reported.item)
                self._device.cut()  # before it can answer
                self._tasks.begin(self._restart())

    async def _restart(self) -> None:
        async with self._lock:
            await self._device.kill()
            self._device = self._make()
            await self._device.start()


class ItemPublisher:
    """A publisher of items, by iq or by messages, that repeats each item until it is accepted."""

    def __init__(self, name: str, stage: Setting) -> None:
        self.name, self._stage = name, stage
        self._publisher = Publisher(
            f"{name}@{DOMAIN}/iq", stage.password, reconnect=RECONNECT, **stage.where
        )
        many = 2 * stage.plan.items
        self._device = Device(
            jid(name),
            stage.password,
            outbox_path=stage.file(name),
            policy=SEND,
            limits=OutboxLimits(keep_done=many, keep_failed=many),
            reconnect=RECONNECT,
            observe=self._observe,
            **stage.where,
        )
        self.tries: Counter[str] = Counter()
        """The number of times that each item sent by iq may have been published."""
        self.offers: Counter[int] = Counter()
        """The number of times that each message of the outbox was offered."""

    async def start(self) -> None:
        """Begin to connect, without waiting for sessions."""
        self._publisher.start()
        await self._device.start()

    async def stop(self) -> None:
        """Stop the publisher and its device."""
        await self._publisher.close()
        await self._device.close()

    async def publish(self, publication: Publication) -> None:
        """Publish an item; return when the service has accepted it, or the outbox has stored it."""
        payload = ET.Element(f"{{{JOB}}}job", {"item": publication.item})
        if publication.way is Route.IQ:
            node, item = publication.node, publication.item
            self.tries[item] = await self._publisher.publish(node, item, payload)
            return
        item = f"<item xmlns='{PUBSUB}' id='{publication.item}'>"
        body = f"<message>{item}<job xmlns='{JOB}' item='{publication.item}'/></item></message>"
        qos = 2 if publication.way is Route.ASSURED else 1
        to = f"pubsub.{DOMAIN}/{publication.node}"
        while True:
            try:
                await self._device.send(body, to=to, qos=qos, label=publication.item)
            except OutboxFull:
                await asyncio.sleep(FULL_WAIT_S)
            else:
                return

    async def flush(self) -> None:
        """Wait until each message of the outbox is done, failed or in doubt."""
        await self._device.flush()

    def _observe(self, moment: DeliveryStep, number: int) -> None:
        self.offers[number] += moment is DeliveryStep.OFFERED
