"""A worker of a queue node (XEP-0254): it receives items, works on each, and deletes it when done.

    async def work(job: Job) -> None:
        ...  # may wait; raise CannotDo to give the item to another worker

    def commit(job: Job, db: sqlite3.Connection) -> None:
        db.execute("INSERT INTO done (item) VALUES (?)", (job.item,))

    async with Worker("w1@gw.example/w", password, node="jobs", work=work, commit=commit, ...): ...

`work` is called at least once for each item, in one of the workers. When `work` returns, the worker
records the finished work in its file, and then requests the item's deletion. When the service
confirms the deletion, the worker calls `commit` in the transaction that records the confirmation:
once for each item that this worker deleted, across lost connections, restarts and `kill -9` of the
worker or the gateway. If the service unlocks an item during the work, for example because of a lock
timeout, the worker drops this item, because another worker gets it.

The worker subscribes in each session, because a lost session ends the subscription. It repeats
requests for deletion that were not answered; the answer shows whether the item is still assigned to
this worker.

Specification: XEP-0254, "Deleting an Item from the Queue", "Unlocking an Item", "Implementation
Notes". Stream management (XEP-0198) is used, so that no confirmation is lost with a connection.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any, Final, Self

from slixmpp.jid import JID

from firmware_sim.device import messages
from firmware_sim.device.connection import endpoint
from firmware_sim.device.errors import CannotDo, DeviceStopped, NoAnswer, RequestRefused
from firmware_sim.device.jobs import Job, JobCounter, JobStore
from firmware_sim.device.limits import ReconnectPolicy, WorkLimits
from firmware_sim.device.pubsub import ItemEvent, ItemEventKind, Pubsub
from firmware_sim.device.sessions import PubsubClient

_log = logging.getLogger(__name__)

_LIMITS: Final = WorkLimits()
_RECONNECT: Final = ReconnectPolicy()
_NOT_OWNED: Final = ("item-not-found", "conflict", "forbidden", "unexpected-request")
_SESSIONS: Final = 2  # items left by a lost session, and those of the next one
_STREAM: Final = {"allow_resume": False}  # a new session gets the missed confirmations


def commit_nothing(_job: Job, _db: sqlite3.Connection) -> None:
    """Write nothing; the default of `commit`."""


class Worker(PubsubClient):
    """A worker of a queue node, for an `async with` block; or call `start` and `close`.

    The arguments for the connection are those of `Device`.

    Args:
        node: the queue node's name.
        path: the worker's file, created if missing; only one worker in one process may use it.
        work: coroutine function that works on an item; several calls run concurrently. If it raises
            `CannotDo` or another exception, the item returns to the queue.
        commit: called with an item and the database connection, in the transaction that records the
            confirmed deletion; it must neither commit nor block.
        service: the service's address; `pubsub.` before the JID's domain if empty.
        by_account: subscribe the account (bare JID) instead of this session (full JID), so that the
            service may assign items to any of the account's sessions.
        schema: SQL that creates the application's tables, run when the file is created.
        limits: limits of concurrent items and of remembered items.

    Raises ValueError as `Device` does.
    """

    def __init__(
        self,
        jid: str,
        password: str = "",
        *,
        certificate: Path | str | None = None,
        key: Path | str | None = None,
        node: str,
        path: Path | str,
        ca_file: Path | str,
        work: Callable[[Job], Awaitable[None]],
        commit: Callable[[Job, sqlite3.Connection], None] = commit_nothing,
        host: str = "",
        port: int = 5222,
        direct_tls: bool = False,
        service: str = "",
        by_account: bool = False,
        schema: str = "",
        limits: WorkLimits = _LIMITS,
        reconnect: ReconnectPolicy = _RECONNECT,
    ) -> None:
        parsed = JID(jid)
        if not parsed.user or not parsed.resource:
            raise ValueError(f"{jid!r} is not a full JID, such as worker1@gw.example/w")
        place = endpoint(parsed, password, certificate, key, host, port, ca_file, direct_tls)
        super().__init__(parsed, place, service, reconnect)
        self.jid, self._node = str(parsed), node
        self._subscriber = str(parsed.bare) if by_account else self.jid
        self._file = (Path(path), schema)
        self._work, self._commit, self._limits = work, commit, limits
        self._client: Any = None
        self._jobs: JobStore | None = None
        self._active: dict[str, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._subscribed = asyncio.Event()
        self._subscribing = True
        self.failure: Exception | None = None
        """The exception, from `commit` or the worker's file, that stopped the worker; or None."""

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def start(self) -> None:
        """Open the file and begin to connect, without waiting for a session.

        Raises JobsError if the file cannot be opened.
        """
        path, schema = self._file
        keep = self._limits.keep
        self._jobs = JobStore.open(path, self.jid, self._node, keep=keep, schema=schema)
        self._begin_to_connect()

    async def close(self) -> None:
        """Close the stream and the file. The service assigns unfinished items to other workers."""
        await self._end(orderly=True)

    async def kill(self) -> None:
        """Stop abruptly, as in a power cut, and forget unfinished items."""
        await self._end(orderly=False)

    async def subscribed(self) -> None:
        """Wait until the worker is subscribed to the queue."""
        await self._subscribed.wait()

    async def leave(self) -> None:
        """Unsubscribe, and so return unfinished items (XEP-0254, "Implementation Notes").

        Raises RequestRefused if the service refused to unsubscribe, and NoAnswer if it is unknown
        whether it has carried out the request.
        """
        self._subscribing = False
        self._subscribed.clear()
        pubsub = self._connected()
        await pubsub.unsubscribe(self._node, self._subscriber)
        for item in list(self._active):
            self._drop(item)
            self.jobs.count(JobCounter.UNLOCKED)

    def hide(self) -> None:
        """Send unavailable presence; the service then ends the subscription and unlocks items."""
        self._subscribing = False
        self._subscribed.clear()
        for item in list(self._active):
            self._drop(item)
        if self.online:
            self._client.send_presence(ptype="unavailable")

    async def rejoin(self) -> None:
        """Subscribe again after `leave` or `hide`; raises the same exceptions as `leave`."""
        self._subscribing = True
        await self._subscribe(self._connected())

    @property
    def active_items(self) -> int:
        """Return the number of items being worked on."""
        return len(self._active)

    @property
    def jobs(self) -> JobStore:
        """Return the worker's file.

        Raises DeviceStopped if the worker is not running.
        """
        if self._jobs is None:
            raise DeviceStopped("the worker is not running")
        return self._jobs

    def _prepare(self, client: Any) -> None:
        client.register_plugin("xep_0198", _STREAM)
        self._client = client
        self._pubsub = Pubsub(client, self._service, self._on_item_event)

    async def _run_session(self, pubsub: Pubsub) -> None:
        """Subscribe, repeat unanswered deletions, and wait for the end of the session."""
        try:
            if self._subscribing:
                await self._subscribe(pubsub)
            await asyncio.Event().wait()  # until it is cancelled
        finally:
            self._subscribed.clear()

    async def _subscribe(self, pubsub: Pubsub) -> None:
        self._client.send_presence()
        options = {"pubsub#queue_requests": str(self._limits.requests)}
        await pubsub.subscribe(self._node, self._subscriber, options)
        self._subscribed.set()
        for item in self.jobs.unconfirmed():
            self._start_task(self._request_deletion(item))

    def _connected(self) -> Pubsub:
        if self._pubsub is None or not self.online:
            raise NoAnswer("the worker has no session")
        return self._pubsub

    def _on_item_event(self, event: ItemEvent) -> None:
        """Process an event; the changes of the worker's file are durable when this returns."""
        if event.node != self._node or self._jobs is None:
            return
        if event.kind is ItemEventKind.PUBLISHED:
            self._begin(event)
        elif event.kind is ItemEventKind.DELETED:
            self._drop(event.item)
            self._change_file(lambda: self.jobs.commit(event.item, self._commit))
        else:
            self._drop(event.item)
            self._change_file(lambda: self.jobs.mark_undone(event.item))

    def _begin(self, event: ItemEvent) -> None:
        """Start or restart work on an item, or return the item if too many items are active."""
        self._drop(event.item)
        if len(self._active) >= _SESSIONS * self._limits.requests:
            self._start_task(self._give_back(event.item))
            return
        payload = "" if event.payload is None else messages.write(event.payload)
        job = Job(event.item, payload, event.redeliveries, event.publisher)
        self._active[event.item] = asyncio.create_task(self._work_on(job))

    async def _work_on(self, job: Job) -> None:
        try:
            await self._work(job)
        except Exception as error:
            if not isinstance(error, CannotDo):
                _log.exception("work on item %s failed; the item returns to the queue", job.item)
            self._detach(job.item)
            await self._give_back(job.item)
        else:
            self._detach(job.item)
            if self._change_file(lambda: self.jobs.record_work(job)):
                await self._request_deletion(job.item)

    async def _request_deletion(self, item: str) -> None:
        """Request an item's deletion; the service's deletion event, not the answer, commits the
        work.

        The event of an earlier deletion arrives before the answer to this request. Therefore, if
        the answer is an error for an unknown item, and no event arrived, the item belongs to
        another worker. If the event arrives later, the work is committed nevertheless.
        """
        try:
            await self._connected().delete(self._node, item)
        except RequestRefused as refused:
            if refused.condition in _NOT_OWNED:
                self._change_file(lambda: self.jobs.mark_undone(item))
        except NoAnswer:
            pass  # the next session repeats it

    async def _give_back(self, item: str) -> None:
        try:
            await self._connected().unlock(self._node, item)
            self._change_file(lambda: self.jobs.count(JobCounter.UNLOCKED))
        except (RequestRefused, NoAnswer):
            pass  # another worker has it, or will after the lock timeout

    def _change_file(self, change: Callable[[], object]) -> bool:
        """Change the worker's file; if that fails, stop the worker and return False."""
        try:
            change()
        except Exception as error:
            self.failure = self.failure or error
            self._start_task(self._end(orderly=False))
            return False
        return True

    def _drop(self, item: str) -> None:
        task = self._active.pop(item, None)
        if task is not None:
            task.cancel()

    def _detach(self, item: str) -> None:
        """Remove an item from the active items without cancelling its task."""
        task = self._active.pop(item, None)
        if task is not None:
            self._track(task)

    def _start_task(self, work: Coroutine[Any, Any, None]) -> None:
        self._track(asyncio.create_task(work))

    def _track(self, task: asyncio.Task[None]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _end(self, *, orderly: bool) -> None:
        for item in list(self._active):
            self._drop(item)
        await self._disconnect(orderly=orderly)
        current = asyncio.current_task()
        tasks = [task for task in self._tasks if task is not current]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        jobs, self._jobs = self._jobs, None
        if jobs is not None:
            jobs.close()
