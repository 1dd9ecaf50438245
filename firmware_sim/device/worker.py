"""A worker of a queue node (XEP-0254): takes items, works on them, and deletes what is done.

    async def work(job: Job) -> None:
        ...  # it may wait; CannotDo gives the item to another worker

    def commit(job: Job, db: sqlite3.Connection) -> None:
        db.execute("INSERT INTO done (item) VALUES (?)", (job.item,))

    async with Worker("w1@gw.example/w", password, node="jobs", work=work, commit=commit, ...): ...

`work` is called at least once for each item, somewhere. When it returns, that is written to the
worker's file, and only then is the deletion asked for. `commit` is called in the transaction that
takes note of the service's confirmation: once for each item that this worker has deleted, across
lost connections, restarts and `kill -9` of either side. An item that is unlocked meanwhile, by a
time-out for instance, is dropped: another worker has it.

It subscribes anew in each session, since a lost one ends the subscription. What was asked and never
answered is asked again: the answer tells whether the item is still this worker's.

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
from firmware_sim.device.connection import Connection, Endpoint
from firmware_sim.device.errors import CannotDo, DeviceStopped, RequestRefused, Unanswered
from firmware_sim.device.jobs import Job, Jobs, Tally
from firmware_sim.device.limits import Reconnect, WorkLimits
from firmware_sim.device.pubsub import Kind, Pubsub, Told
from firmware_sim.device.sessions import Sessions

_log = logging.getLogger(__name__)

_LIMITS: Final = WorkLimits()
_RECONNECT: Final = Reconnect()
_NOT_ITS_OWN: Final = ("item-not-found", "conflict", "forbidden", "unexpected-request")
_SESSIONS: Final = 2  # what a lost session left in hand, and what the next was given
_STREAM: Final = {"allow_resume": False}  # a new session is told what the old one was not


def nothing(_job: Job, _db: sqlite3.Connection) -> None:
    """Commit nothing."""


class Worker:
    """A worker, from `start` to `close`, or in a `with`.

    Args:
        jid: its full JID; the resource must be given.
        password: of its account.
        node: the queue.
        path: its file; made when missing. One file, one worker, one process.
        ca_file: PEM certificate of the CA that vouches for the gateway.
        work: does an item; it may wait, and be called at the same time for others. `CannotDo` gives
            the item back; any other error, too.
        commit: given an item whose deletion is confirmed, in the transaction that says so; it must
            neither commit nor wait.
        host: address to dial; the JID's domain if empty.
        port: TCP port.
        service: address of the service; `pubsub.` before the JID's domain if empty.
        by_account: subscribe the account (bare JID), of which the service may choose any session,
            in place of this session.
        schema: SQL of the application's own tables.
        limits: how much it has in hand.
        reconnect: how it comes back.

    Raises:
        ValueError: the JID has no resource or no account.
    """

    def __init__(
        self,
        jid: str,
        password: str,
        *,
        node: str,
        path: Path | str,
        ca_file: Path | str,
        work: Callable[[Job], Awaitable[None]],
        commit: Callable[[Job, sqlite3.Connection], None] = nothing,
        host: str = "",
        port: int = 5222,
        service: str = "",
        by_account: bool = False,
        schema: str = "",
        limits: WorkLimits = _LIMITS,
        reconnect: Reconnect = _RECONNECT,
    ) -> None:
        parsed = JID(jid)
        if not parsed.user or not parsed.resource:
            raise ValueError(f"a full JID is wanted, as in worker1@gw.example/w, not {jid!r}")
        self.jid, self._node = str(parsed), node
        self._subscriber = str(parsed.bare) if by_account else self.jid
        self._service = service or f"pubsub.{parsed.domain}"
        self._file = (Path(path), schema)
        self._work, self._commit, self._limits = work, commit, limits
        endpoint = Endpoint(self.jid, password, host or str(parsed.domain), port, Path(ca_file))
        self._sessions = Sessions(endpoint, self._prepare, self._hold, reconnect)
        self._client: Any = None
        self._pubsub: Pubsub | None = None
        self._jobs: Jobs | None = None
        self._at: dict[str, asyncio.Task[None]] = {}
        self._asides: set[asyncio.Task[None]] = set()
        self._subscribed = asyncio.Event()
        self._wanted = True
        self.failure: Exception | None = None
        """Why it stopped by itself: its file failed."""

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def start(self) -> None:
        """Open its file and begin to connect; it does not wait for a session.

        Raises:
            JobsError: the file cannot be opened.
        """
        path, schema = self._file
        keep = self._limits.keep
        self._jobs = Jobs.open(path, self.jid, self._node, keep=keep, schema=schema)
        self._sessions.start()

    async def close(self) -> None:
        """Stop in order. What it has in hand is another's, once the service sees it gone."""
        await self._end(orderly=True)

    async def kill(self) -> None:
        """Stop at once, as if the power had failed: what is in hand is forgotten."""
        await self._end(orderly=False)

    def cut(self) -> None:
        """Drop the session without a word; it comes back by itself, and goes on with its items."""
        self._sessions.cut()

    async def subscribed(self) -> None:
        """Wait until it is subscribed."""
        await self._subscribed.wait()

    async def leave(self) -> None:
        """Take no more items, and give back what is in hand (XEP-0254, "Implementation Notes").

        Raises:
            RequestRefused, Unanswered: the service did not unsubscribe it, or nobody knows.
        """
        self._wanted = False
        self._subscribed.clear()
        pubsub = self._connected()
        await pubsub.unsubscribe(self._node, self._subscriber)
        for item in list(self._at):
            self._drop(item)
            self.jobs.count(Tally.UNLOCKED)

    def hide(self) -> None:
        """Say that it is unavailable: the service unsubscribes it, and unlocks what it has."""
        self._wanted = False
        self._subscribed.clear()
        for item in list(self._at):
            self._drop(item)
        if self.online:
            self._client.send_presence(ptype="unavailable")

    async def rejoin(self) -> None:
        """Take items again, after `leave` or `hide`; raises as `leave` does."""
        self._wanted = True
        await self._join(self._connected())

    @property
    def online(self) -> bool:
        """Whether it has a session now."""
        return self._sessions.online

    @property
    def last_error(self) -> str:
        """Why it last failed to connect, or lost its session."""
        return self._sessions.last_error

    @property
    def in_hand(self) -> int:
        """How many items it works on."""
        return len(self._at)

    @property
    def jobs(self) -> Jobs:
        """Its file; `DeviceStopped` if it is not running."""
        if self._jobs is None:
            raise DeviceStopped("the worker is not running")
        return self._jobs

    def _prepare(self, client: Any) -> None:
        client.register_plugin("xep_0198", _STREAM)
        self._client = client
        self._pubsub = Pubsub(client, self._service, self._told)

    async def _hold(self, connection: Connection) -> None:
        """Be there, ask again what was never answered, and wait for the end."""
        pubsub = self._pubsub
        assert pubsub is not None  # noqa: S101 - `_prepare` made it
        try:
            if self._wanted:
                await self._join(pubsub)
            await asyncio.shield(connection.lost)
        finally:
            self._subscribed.clear()
            pubsub.end()

    async def _join(self, pubsub: Pubsub) -> None:
        self._client.send_presence()
        options = {"pubsub#queue_requests": str(self._limits.requests)}
        await pubsub.subscribe(self._node, self._subscriber, options)
        self._subscribed.set()
        for item in self.jobs.asked():
            self._aside(self._ask(item))

    def _connected(self) -> Pubsub:
        if self._pubsub is None or not self.online:
            raise Unanswered("the worker has no session")
        return self._pubsub

    def _told(self, told: Told) -> None:
        """Take an event; what it demands of the file is on disk when this returns."""
        if told.node != self._node or self._jobs is None:
            return
        if told.kind is Kind.PUBLISHED:
            self._begin(told)
        elif told.kind is Kind.DELETED:
            self._drop(told.item)
            self._guarded(lambda: self.jobs.commit(told.item, self._commit))
        else:
            self._drop(told.item)
            self._guarded(lambda: self.jobs.undo(told.item))

    def _begin(self, told: Told) -> None:
        """Begin an item, if need be anew; of more than was asked for, each is given back."""
        self._drop(told.item)
        if len(self._at) >= _SESSIONS * self._limits.requests:
            self._aside(self._give_back(told.item))
            return
        payload = "" if told.payload is None else messages.write(told.payload)
        task = asyncio.create_task(self._do(Job(told.item, payload, told.times)))
        self._at[told.item] = task

    async def _do(self, job: Job) -> None:
        """Work on an item, then ask for its deletion, or give it back."""
        try:
            await self._work(job)
        except Exception as error:
            if not isinstance(error, CannotDo):
                _log.exception("the work on item %s failed", job.item)
            self._over(job.item)
            await self._give_back(job.item)
        else:
            self._over(job.item)
            if self._guarded(lambda: self.jobs.worked(job)):
                await self._ask(job.item)

    async def _ask(self, item: str) -> None:
        """Ask for the deletion of an item; the service's confirmation commits it, not the answer.

        A confirmation comes before the answer to what is asked later; so an item that is not there
        and was not confirmed is another's. Should one come after all, it is committed all the same.
        """
        try:
            await self._connected().delete(self._node, item)
        except RequestRefused as refused:
            if refused.condition in _NOT_ITS_OWN:
                self._guarded(lambda: self.jobs.undo(item))
        except Unanswered:
            pass  # the next session asks again

    async def _give_back(self, item: str) -> None:
        try:
            await self._connected().unlock(self._node, item)
            self._guarded(lambda: self.jobs.count(Tally.UNLOCKED))
        except (RequestRefused, Unanswered):
            pass  # it is another's already, or will be, after its time

    def _guarded(self, change: Callable[[], object]) -> bool:
        """Change the file; if that fails, stop: what is not written must not be said."""
        try:
            change()
        except Exception as error:
            self.failure = self.failure or error
            self._aside(self._end(orderly=False))
            return False
        return True

    def _drop(self, item: str) -> None:
        task = self._at.pop(item, None)
        if task is not None:
            task.cancel()

    def _over(self, item: str) -> None:
        """Have an item in hand no more; its task goes on without being dropped by what comes."""
        task = self._at.pop(item, None)
        if task is not None:
            self._keep(task)

    def _aside(self, work: Coroutine[Any, Any, None]) -> None:
        self._keep(asyncio.create_task(work))

    def _keep(self, task: asyncio.Task[None]) -> None:
        self._asides.add(task)
        task.add_done_callback(self._asides.discard)

    async def _end(self, *, orderly: bool) -> None:
        for item in list(self._at):
            self._drop(item)
        await self._sessions.close(orderly=orderly)
        current = asyncio.current_task()
        tasks = [task for task in self._asides if task is not current]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        jobs, self._jobs = self._jobs, None
        if jobs is not None:
            jobs.close()
