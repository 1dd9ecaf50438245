"""Assured exchanges of several senders, in a process in which a write or a sync can fail.

The messages go to the event log, to a device that is away, to a node with subscribers, and to a
queue node, whose workers delete items, unlock them, or let their locks time out. Meanwhile events
are sealed. `FaultyProcess` runs this under `write_log.c`, which can kill the process at any call.
`exchange` continues after such a process ended, and `check` examines its database. Groups are
pipelined: a COMMIT waits until the senders outside its group have sent their requests.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import random
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import traceback
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple, Self, TypeAlias

from edge.config import annotated_file, load
from edge.config.limits import Limits
from edge.engine.dispatch.encoding import encode
from edge.engine.dispatch.hooks import new_context
from edge.engine.rules import commit_window
from edge.engine.sessions.session_lifecycle import SessionLifecycle
from edge.engine.sessions.sessions import guarded
from edge.engine.store import database, events
from edge.engine.store.database import Send, Transaction
from edge.engine.store.events import LANES
from edge.engine.store.group_commit import Store
from edge.engine.time import timers
from edge.errors import StoreBroken, StoreError, StoreFull
from edge.features.custody import store as custody
from edge.features.custody.store import was_released
from edge.features.queues.store import queue_members
from edge.ops.data.events import LoggedEvent
from edge.ops.data.events import read as read_log
from edge.routing.xmpp.router import Router
from edge.uplink.backlog import StoreBacklog
from edge.xmpp import PROTOCOL
from sync.segment import read_header
from sync.uplink.batcher import BatchLimits
from sync.uplink.interfaces import BacklogUnavailable
from sync.uplink.sealer import Sealer
from tests.helpers import custody_image, outbox_image, pubsub, pubsub_image
from tests.helpers.backlog import FixedState
from tests.helpers.power_cut import Disk, Record, Recorder
from tests.helpers.pubsub import EVENT, SERVICE
from tests.helpers.queue_nodes import QUEUEING
from tests.helpers.store import (
    BOUNDS,
    DOMAIN,
    QOS,
    Clock,
    Gateway,
    assured,
    deliver,
    new_database,
    read_element,
    read_reply,
    stanza,
)

SENDERS: Final = ("a0", "a1", "a2", "b0", "b1", "b2")
FIRST: Final = 3
"""Number of senders that begin; the others send while the first group is committed."""

EACH: Final = 10
"""Messages of each sender; every third stays in custody."""

WORKERS: Final = ("w0", "w1")
SUBSCRIBER: Final = "s0"
SESSIONS: Final = (*SENDERS, *WORKERS, SUBSCRIBER)
"""The accounts with a session; its generation is their index."""

NEWS: Final = "news"
"""A node with two subscribers: one has a session, and the other gets notifications at QoS 2."""

WORK: Final = "work"
"""A queue node."""

SMALL: Final = {"RELEASED_ROWS": 8, "PAGE_KEYS": 2}
"""Values of constants in `custody.store` with which released keys are written often."""

ABSENT: Final = f"absent@{DOMAIN}"
"""A device that never connects, so that messages for it stay in its outbox."""

PADDING: Final = "x" * 200
LIMITS: Final = Limits(held_ttl=500.0, held_grace=50.0, outbox_ttl=500.0)
CHECKPOINT_PAGES: Final = 20
SEAL_EACH: Final = 16
"""Answers after which events are sealed."""

CALLS: Final = "WTSDU"
WRITES: Final = "W"
SYNCS: Final = "SD"
"""Kinds of calls, as in `write_log.c`."""

LOCK_TIMEOUT: Final = 61.0
WAIT_S: Final = 60.0
BROKEN_STATUS: Final = 3
CONFIG: Final = load.parse(annotated_file.render(DOMAIN).encode())

OFFER, DELIVER = "offer", "deliver"
NOTIFIED, TAKING, TAKEN = "notified", "taking", "taken"


class Request(NamedTuple):
    """A step of a message.

    `OFFER` or `DELIVER` is an answered request of the sender, `NOTIFIED` a notification of the
    subscriber with a session, `TAKING` a worker's request to delete the item, and `TAKEN` the
    answer to that.
    """

    sender: str
    number: int
    step: str

    @property
    def key(self) -> tuple[str, str]:
        return f"{self.sender}@{DOMAIN}/fw", f"m{self.number}"

    @property
    def is_last(self) -> bool:
        """Return whether no other request follows for this message."""
        return self.step == DELIVER or self.number % 3 == 2

    @property
    def to(self) -> str:
        """The recipient: the event log, a device, or a node."""
        nodes = {3: NEWS, 4: WORK, 6: WORK, 7: NEWS, 8: NEWS}
        if self.number in nodes:
            return f"{SERVICE}/{nodes[self.number]}"
        return ABSENT if self.number in {1, 5} else DOMAIN

    def xml(self) -> str:
        msg_id = self.key[1]
        if self.step == DELIVER:
            return deliver(msg_id, self.to)
        if self.to == ABSENT:
            content = f"<body>{PADDING}</body>"
        elif self.to != DOMAIN:
            content = _payload(self.sender, self.number)
        else:
            content = (
                f"<log xmlns='urn:xmpp:eventlog'><message>{PADDING}</message>"
                f"<tag name='n' value='{msg_id}'/></log>"
            )
        return assured(msg_id, f"<message xmlns='jabber:client'>{content}</message>", self.to)


def _payload(sender: str, number: int) -> str:
    return f"<p xmlns='urn:example:p' sender='{sender}' number='{number}'>{PADDING}</p>"


_PAYLOAD: Final = re.compile(rb"urn:example:p['\"] sender=['\"](.*?)['\"] number=['\"](\d+)")


def _published_request(body: bytes, step: str) -> Request:
    """Return the message whose payload is in an item or a notification."""
    found = _PAYLOAD.search(body)
    assert found is not None, body
    return Request(found[1].decode(), int(found[2]), step)


def requests(sender: str) -> list[Request]:
    both = [Request(sender, number, step) for number in range(EACH) for step in (OFFER, DELIVER)]
    return [request for request in both if request.step == OFFER or request.number % 3 != 2]


ALL: Final = frozenset(request for sender in SENDERS for request in requests(sender))


class Figures(NamedTuple):
    """Counts of refusals because the disk was full, and of groups that ran during a COMMIT."""

    refused: int
    behind: int


class Exchange:
    """The senders, each with one request at a time, and the workers and the subscriber."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        done: Collection[Request],
        note: Callable[[Request], None],
        interfere: Interference | None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._store = store
        self.clock = clock
        self.router = Router(new_context(DOMAIN, LIMITS))
        self._lifecycle = SessionLifecycle(self.router.context)
        self._note = note
        self._interfere = interfere
        self._noted = {request for request in done if request.step in {NOTIFIED, TAKEN}}
        self._left = {sender: self._to_send(sender, done) for sender in SENDERS}
        self._ready: list[Callable[[], None]] = []
        self._answered = 0
        self._seal = asyncio.Event()
        self.end: asyncio.Future[None] = self._loop.create_future()
        self.refused = 0
        self.behind = 0

    def _to_send(self, sender: str, done: Collection[Request]) -> Iterator[Request]:
        """Yield the last answered request of a sender, if it may be repeated, then the others."""
        own = requests(sender)
        first = next((at for at, request in enumerate(own) if request not in done), len(own))
        if first and own[first - 1].is_last:
            yield own[first - 1]
        yield from own[first:]

    def _bind(self, tx: Transaction) -> None:
        for generation, account in enumerate(SESSIONS):
            bare = f"{account}@{DOMAIN}"
            self._lifecycle.bind(tx, generation, account, bare, f"{bare}/fw")

    async def run(self) -> None:
        self._store.on_sends = self._receive
        self._store.on_due = self._on_due
        self._store.on_changed.append(self._on_changed)
        await self._store.run(self._bind)
        for worker in WORKERS:
            full = f"{worker}@{DOMAIN}/fw"
            options = pubsub.options(queue_requests="3")
            join = pubsub.request_xml(pubsub.element("subscribe", node=WORK, jid=full) + options)
            self._check(join, await self._ask(worker, join))
        await self._ask(SUBSCRIBER, "<presence/>")
        sealing = asyncio.create_task(self._seal_events())
        for sender in SENDERS:
            self._continue(sender)
        ready, self._ready = self._ready, []
        self._store._writer.raw.set_trace_callback(self._on_statement)
        self._store.on_answered.append(self._on_answered)
        for submit in ready[:FIRST]:
            submit()
        self._ready += ready[FIRST:]
        try:
            await asyncio.wait_for(self.end, WAIT_S)
        finally:
            sealing.cancel()
            await asyncio.wait({sealing})

    async def _ask(self, account: str, xml: str) -> bytes:
        while True:
            try:
                return await self._store.run(self._work(account, xml))
            except StoreFull:
                self.refused += 1

    def _on_statement(self, sql: str) -> None:
        """Hold a COMMIT on the database's thread until the next group has units."""
        if sql == "COMMIT" and threading.current_thread() is not threading.main_thread():
            submitted = threading.Event()
            self._loop.call_soon_threadsafe(self._submit_ready, submitted)
            submitted.wait(WAIT_S)

    def _on_changed(self) -> None:
        """Check images, and submit the gateway's work after another process's change."""

        def unit(tx: Transaction) -> None:
            check_images(self.router, tx)
            self.router.context.run_external_change(tx)

        def answer(outcome: StoreError | None) -> None:
            if outcome is not None and not isinstance(outcome, StoreFull):
                self._fail(outcome)

        self._store.submit(unit, answer, heavy=True)

    def _on_answered(self) -> None:
        if self._interfere is not None and not self.end.done():
            self._interfere(self)
        if self._store.waiting.units or self.end.done():
            return
        if not self._ready and not self._left:
            self.run_timers(LOCK_TIMEOUT)
        self._submit_ready()

    def _on_due(self, due: float) -> None:
        if due <= self.clock.service:
            self.run_timers(0.0)

    def run_timers(
        self, seconds: float, before: Callable[[Transaction], None] | None = None
    ) -> None:
        """Run the timers after some seconds, and end if there is nothing left to do."""
        self.clock.service += seconds
        self._store.submit(partial(self._timers, before=before), self._on_timers, heavy=True)

    def _timers(self, tx: Transaction, before: Callable[[Transaction], None] | None) -> int:
        """Run the timers, and return the number of items in queues."""
        if before is not None:
            before(tx)
        timers.run(self.router.context, tx)
        return int(tx.row("SELECT count(*) FROM queue_items")[0])

    def _on_timers(self, outcome: int | StoreError) -> None:
        if isinstance(outcome, StoreError) and not isinstance(outcome, StoreFull):
            self._fail(outcome)
        elif outcome == 0 and not self._left and not self.end.done():
            self.end.set_result(None)

    def _submit_ready(self, submitted: threading.Event | None = None) -> None:
        ready, self._ready = self._ready, []
        for submit in ready:
            submit()
        if submitted is not None:
            self.behind += self.is_group_behind
            submitted.set()

    @property
    def is_group_behind(self) -> bool:
        """Return whether units of the next group have run in memory."""
        behind = self._store._behind
        return behind is not None and bool(behind.units)

    def _work(self, account: str, xml: str) -> Callable[[Transaction], bytes]:
        work = self.router.route(stanza(xml), f"{account}@{DOMAIN}/fw")
        assert callable(work)
        return guarded(work, SESSIONS.index(account))

    def _submit(
        self,
        account: str,
        xml: str,
        on_answered: Callable[[], None],
        child: str | None = None,
        *,
        heavy: bool = False,
    ) -> None:
        """Submit a request, again if the disk is full, and check the answer's payload."""

        def answer(outcome: bytes | StoreError) -> None:
            if isinstance(outcome, StoreFull):
                self.refused += 1
                self._ready.append(submit)
            elif isinstance(outcome, StoreError):
                self._fail(outcome)
            elif self._check(xml, outcome, child):
                self._answered += 1
                if self._answered % SEAL_EACH == 0:
                    self._seal.set()
                on_answered()

        def submit() -> None:
            self._store.submit(self._work(account, xml), answer, heavy=heavy)

        submit()

    def _check(self, xml: str, answer: bytes, child: str | None = None) -> bool:
        reply = read_reply(answer)
        assert reply is not None
        found = None if reply.payload is None else reply.payload.tag
        if reply.type == "result" and (child is None or found == child):
            return True
        if self._interfere is not None and reply.error is not None:
            return True
        self._fail(AssertionError(f"{xml}: {reply}"))
        return False

    def _fail(self, error: Exception) -> None:
        self._ready.clear()
        if not self.end.done():
            self.end.set_exception(error)

    def _continue(self, sender: str) -> None:
        if self.end.done():
            return
        request = next(self._left[sender], None)
        if request is None:
            del self._left[sender]
            return

        def on_answered() -> None:
            self._note(request)
            self._continue(sender)

        child = f"{{{QOS}}}received" if request.step == OFFER else None
        heavy = request.number == 3 and sender in {"a0", "b0"}
        xml = request.xml()
        self._ready.append(lambda: self._submit(sender, xml, on_answered, child, heavy=heavy))

    # The workers and the subscriber

    def _receive(self, sends: Sequence[Send]) -> None:
        for send in sends:
            account = SESSIONS[send.generation]
            if send.receipt is not None and send.receipt.kind:
                work = partial(
                    self._lifecycle.acknowledge, generation=send.generation, receipts=[send.receipt]
                )
                self._store.submit(work, lambda _outcome: None)
            stanza = encode(self.router.context, PROTOCOL, send.message)
            message = read_element(stanza)
            item = message.find(f"{{{EVENT}}}event/{{{EVENT}}}items/{{{EVENT}}}item")
            if item is None:
                continue
            request = _published_request(stanza, NOTIFIED)
            if account == SUBSCRIBER:
                self._note_once(request)
            else:
                redelivered = message.find("{urn:x-fieldpost:queue}redelivered") is not None
                self._take(account, item.attrib["id"], request, redelivered=redelivered)

    def _note_once(self, request: Request) -> None:
        if request in self._noted and self._interfere is None:
            self._fail(AssertionError(f"{request}: again"))
        self._noted.add(request)
        self._note(request)

    def _take(self, worker: str, id: str, item: Request, *, redelivered: bool) -> None:
        """Delete an item, but unlock some items, or let their locks time out, the first time."""
        taken = item._replace(step=TAKEN)
        if taken in self._noted and self._interfere is None:
            self._fail(AssertionError(f"{taken}: again"))
        content = pubsub.item(id)
        if item.number == 6 and not redelivered:
            if item.sender.startswith("a"):
                unlock = pubsub.element("unlock", content, node=WORK, xmlns=QUEUEING)
                xml = pubsub.request_xml(unlock)
                self._ready.append(lambda: self._submit(worker, xml, lambda: None))
            return
        xml = pubsub.request_xml(pubsub.element("retract", content, node=WORK))

        def submit() -> None:
            self._note(item._replace(step=TAKING))
            self._submit(worker, xml, lambda: self._note_once(taken))

        self._ready.append(submit)

    # Sealing

    async def _seal_events(self) -> None:
        """Seal the events and acknowledge some segments, again and again; check images."""
        backlog = StoreBacklog(self._store, CONFIG, FixedState())
        sealer = Sealer(
            DOMAIN,
            backlog,
            backlog.facts,
            BatchLimits(events=5),
            clock=lambda: 0.0,
            on_sealed=lambda: None,
            send_notice=backlog.log_notice,
        )
        while True:
            await self._seal.wait()
            self._seal.clear()
            try:
                await sealer.flush()
                segment = await backlog.next_waiting()
                if segment is not None:
                    await backlog.acknowledge(segment.digest)
                await self._store.run(partial(check_images, self.router))
            except (BacklogUnavailable, StoreFull):
                self._seal.set()
            except Exception as error:
                self._fail(error)
                return


Interference: TypeAlias = Callable[[Exchange], None]
"""Called after each group; may change the database as another process would."""


async def exchange(
    path: Path,
    done: Collection[Request],
    note: Callable[[Request], None],
    interfere: Interference | None = None,
) -> Figures:
    """Send all requests that are not `done`, and call `note` with each that is answered.

    With `interfere`, answers may be errors.
    """
    clock = Clock()
    store = await Store.open(path, clock, BOUNDS)
    try:
        await store.run(lambda tx: tx.run(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}"))
        senders = Exchange(store, clock, done, note, interfere)
        await senders.run()
        await store.run(partial(check_images, senders.router))
        return Figures(senders.refused, senders.behind)
    finally:
        await store.close()


def check_images(router: Router, tx: Transaction) -> None:
    """Check that all images and caches of rows equal the rows."""
    queue_members.write(tx)
    custody_image.image_equals_rows(tx)
    outbox_image.images_equal_rows(tx)
    pubsub_image.caches_equal_rows(router.context, tx)
    fresh = Transaction(tx.run("SELECT 1").connection, tx.now)
    assert _lanes(tx) == _lanes(fresh)


def _lanes(tx: Transaction) -> list[tuple[object, ...]]:
    names = events._Lane.__slots__
    return [tuple(getattr(lane, name) for name in names) for lane in events._lanes(tx).values()]


class _Copies(NamedTuple):
    """The copies of each message by place; its key is the full JID and the msgId.

    `notified` are the notifications that wait for the subscriber without a session.
    """

    held: Counter[tuple[str, str]]
    outbox: Counter[tuple[str, str]]
    logged: Counter[tuple[str, str]]
    stored: Counter[tuple[str, str]]
    notified: Counter[tuple[str, str]]
    queued: Counter[tuple[str, str]]


_BODIES: Final = (
    "SELECT body FROM items",
    "SELECT b.body FROM outbox AS o JOIN outbox_bodies AS b ON b.id = o.id WHERE o.msg_id IS NULL",
    "SELECT body FROM queue_bodies",
)


def _find_copies(connection: sqlite3.Connection, log: Iterable[LoggedEvent]) -> _Copies:
    held, outbox = (
        Counter[tuple[str, str]](connection.execute(sql).fetchall())
        for sql in (
            "SELECT sender, msg_id FROM held",
            "SELECT sender, msg_id FROM outbox WHERE msg_id IS NOT NULL",
        )
    )
    logged = Counter((str(e.event.source), e.event.tags["n"]) for e in log if e.lane == "logs")
    bodies = (
        Counter(_published_request(body, OFFER).key for (body,) in connection.execute(sql))
        for sql in _BODIES
    )
    return _Copies(held, outbox, logged, *bodies)


def check(path: Path, done: Iterable[Request]) -> _Copies:
    """Check that each answered request has its effect, once, and that lanes have no gaps."""
    done = set(done)
    with closing(database.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        log = list(read_log(path.parent))
        found = _find_copies(connection, log)
        held, outbox, logged, stored, notified, queued = found
        assert notified == stored, "one notification for each published item"
        delivered = outbox + logged + stored + queued
        assert set((held + delivered).values()) <= {1}
        tx = Transaction(connection, Clock()())
        for request in done:
            sender, msg_id = key = request.key
            was_taken = request._replace(step=TAKING) in done
            if request.step == OFFER:
                assert held[key] + delivered[key] == 1 or was_taken, request
            elif request.step == DELIVER:
                assert delivered[key] == 1 or was_taken, request
                assert was_released(tx, sender.partition("/")[0], sender, msg_id), request
            elif request.step == NOTIFIED:
                assert stored[key] == 1, request
            elif request.step == TAKEN:
                assert (held + delivered)[key] == 0, request
        _check_lanes(connection, log)
    return found


def check_log(path: Path) -> None:
    """Check the database, and that lanes have no gaps."""
    with closing(database.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        _check_lanes(connection, list(read_log(path.parent)))


def _check_lanes(connection: sqlite3.Connection, log: Collection[LoggedEvent]) -> None:
    for lane in LANES:
        numbers = [entry.event.seq for entry in log if entry.lane == lane]
        assert numbers == list(range(1, len(numbers) + 1)), lane
        _check_chain(connection, lane)


def _check_chain(connection: sqlite3.Connection, lane: str) -> None:
    sealed, digest = 0, bytes(32)
    rows = connection.execute("SELECT data FROM segments WHERE lane = ? ORDER BY id", (lane,))
    for (data,) in rows:
        header = read_header(data)
        assert (header.first_seq, header.previous) == (sealed + 1, digest), lane
        sealed, digest = header.last_seq, data[-32:]
    head = connection.execute("SELECT sealed, previous FROM lanes WHERE lane = ?", (lane,))
    assert head.fetchone() == (sealed, digest), lane


def check_complete(path: Path, done: Iterable[Request] = ()) -> None:
    """Check that all requests have their effect, and that there are no other messages.

    All items of the queue are taken.
    """
    taken = {r._replace(step=TAKING) for r in ALL if r.to == f"{SERVICE}/{WORK}"}
    found = check(path, {*ALL, *taken, *done})
    by_recipient: dict[str, set[tuple[str, str]]] = {}
    for request in ALL:
        if request.step == DELIVER:
            by_recipient.setdefault(request.to, set()).add(request.key)
    assert set(found.held) == {request.key for request in ALL}.difference(*by_recipient.values())
    assert set(found.outbox) == by_recipient[ABSENT]
    assert set(found.logged) == by_recipient[DOMAIN]
    assert set(found.stored) == by_recipient[f"{SERVICE}/{NEWS}"]
    assert not found.queued


class Run(NamedTuple):
    """The result of a process.

    Attributes:
        status: the exit status; negative for a signal.
        done: the requests that were answered.
        figures: the result of `exchange`; zeros if it did not end.
        records: the recorded calls.
        folder: the folder of the database.
        disk: the content of the disk, on which the power can be cut.
    """

    status: int
    done: list[Request]
    figures: Figures
    records: list[Record]
    folder: Path
    disk: Disk

    def count(self, kinds: str) -> int:
        """Return the number of calls of some kinds, which are values of `power_cut.Record.what`."""
        return sum(record.kind in kinds for record in self.records)


class FaultyProcess:
    """A process that runs `exchange` again and again, each time from the same database.

    Attributes:
        slow: whether the disk counts as slow, so that COMMIT runs on the database's thread.
    """

    def __init__(self, folder: Path, *, slow: bool) -> None:
        self.slow = slow
        self._template = folder / "template"
        self._template.mkdir()
        gateway = Gateway(new_database(self._template))
        for name in (*SESSIONS, "absent"):
            gateway.add(name)
        absent, subscriber = f"{ABSENT}/fw", f"{SUBSCRIBER}@{DOMAIN}/fw"
        pubsub.create(gateway, subscriber, NEWS, publish_model="open")
        pubsub.create(gateway, subscriber, WORK, publish_model="open", queueing="1")
        pubsub.subscribe(gateway, subscriber, NEWS)
        pubsub.subscribe(gateway, absent, NEWS, qos="2")
        gateway.close()
        self.path = folder / "run" / database.FILE_NAME
        self.path.parent.mkdir()
        self._answers = folder / "answers"
        self._recorder = Recorder(folder)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.helpers.write_faults"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **self._recorder.environment(self.path.parent)},
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._process.communicate(timeout=WAIT_S)

    def copy(self, folder: Path) -> Path:
        """Copy the database from which each run begins into a new folder, and return its path."""
        shutil.copytree(self._template, folder)
        return folder / database.FILE_NAME

    def run(self, fault: str = "") -> Run:
        """Run with a fault, which is a value of $WRITE_FAULT (see `write_log.c`)."""
        shutil.rmtree(self.path.parent)
        self.copy(self.path.parent)
        disk = Disk(self.path.parent)
        os.truncate(self._recorder.log, 0)
        self._answers.write_bytes(b"")
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        command = json.dumps([str(self.path), str(self._answers), fault, self.slow])
        self._process.stdin.write(f"{command}\n")
        self._process.stdin.flush()
        status = int(self._process.stdout.readline())
        lines = [json.loads(line) for line in self._answers.read_text().split("\n")[:-1]]
        done = [Request(*line) for line in lines if len(line) == len(Request._fields)]
        figures = Figures(*lines[-1]) if status == 0 else Figures(0, 0)
        records = self._recorder.records()
        for record in records:
            disk.replay(record)
        return Run(status, done, figures, records, self.path.parent, disk)


async def recover(path: Path, done: list[Request]) -> None:
    """Check the database, let the senders continue, and check it again."""
    check(path, done)
    answered: list[Request] = []
    await exchange(path, done, answered.append)
    assert {*done, *answered} >= ALL
    check_complete(path, {*done, *answered})


async def recover_both(
    process: FaultyProcess, run: Run, folder: Path, chance: random.Random
) -> None:
    """Recover the process's database, and that which a power cut at this moment would leave."""
    await recover(process.path, run.done)
    cut = folder / "cut"
    run.disk.cut(run.folder, cut, chance)
    await recover(cut / database.FILE_NAME, run.done)
    shutil.rmtree(cut)


def _run_child(path: Path, answers: Path, *, slow: bool) -> int:
    commit_window.SLOW_COMMIT = -1.0 if slow else math.inf  # type: ignore[misc]
    for name, value in SMALL.items():
        setattr(custody, name, value)
    file = os.open(answers, os.O_WRONLY | os.O_APPEND)

    def note(line: Request | Figures) -> None:
        os.write(file, f"{json.dumps(line)}\n".encode())

    try:
        note(asyncio.run(exchange(path, (), note)))
    except StoreBroken:
        return BROKEN_STATUS
    return 0


def main() -> None:
    """Run one child for each line of standard input, and write its exit status."""
    new_context(DOMAIN, Limits())  # imports the features once for all children
    for line in sys.stdin:
        path, answers, fault, slow = json.loads(line)
        pid = os.fork()
        if pid == 0:
            os.environ["WRITE_FAULT"] = fault
            signal.alarm(round(2 * WAIT_S))
            status = 1
            try:
                status = _run_child(Path(path), Path(answers), slow=slow)
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(status)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
