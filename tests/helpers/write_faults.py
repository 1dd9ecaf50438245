"""Assured exchanges of several senders, in a process in which a write or a sync can fail.

`FaultyProcess` runs them under `write_log.c`, which can kill the process at any call. `exchange`
continues after such a process ended, and `check` examines its database. Groups are pipelined: a
COMMIT waits until the senders outside its group have sent their requests.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import traceback
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

from edge.config.limits import Limits
from edge.engine import database, events
from edge.engine.database import Transaction
from edge.engine.events import LANES
from edge.engine.group_commit import Store
from edge.engine.router import Router, guarded
from edge.engine.session_lifecycle import SessionLifecycle
from edge.errors import StoreBroken, StoreError, StoreFull
from edge.features.custody import store as custody
from edge.features.custody.store import was_released
from tests.helpers import custody_image, outbox_image, power_cut
from tests.helpers.power_cut import Disk
from tests.helpers.store import (
    BOUNDS,
    DOMAIN,
    QOS,
    Clock,
    Gateway,
    assured,
    deliver,
    new_database,
    read_reply,
    stanza,
    unsealed_events,
)

SENDERS: Final = ("a0", "a1", "a2", "b0", "b1", "b2")
FIRST: Final = 3
"""Number of senders that begin; the others send while the first group is committed."""

EACH: Final = 6
"""Messages of each sender; every third stays in custody."""

SMALL: Final = {"RELEASED_ROWS": 8, "PAGE_KEYS": 2}
"""Values of constants in `custody.store` with which released keys are written often."""

ABSENT: Final = f"absent@{DOMAIN}"
"""A device that never connects, so that messages for it stay in its outbox."""

PADDING: Final = "x" * 700
CHECKPOINT_PAGES: Final = 20
WAIT_S: Final = 60.0
BROKEN_STATUS: Final = 3


class Request(NamedTuple):
    """A request of a sender: `deliver`, or else an offer."""

    sender: str
    number: int
    deliver: bool

    @property
    def key(self) -> tuple[str, str]:
        """The full JID and the msgId."""
        return f"{self.sender}@{DOMAIN}/fw", f"m{self.number}"

    @property
    def is_last(self) -> bool:
        """Whether no other request follows for this message."""
        return self.deliver or self.number % 3 == 2

    @property
    def to(self) -> str:
        """The recipient: the event log or a device."""
        return ABSENT if self.number in {1, 4, 5} else DOMAIN

    def xml(self) -> str:
        """Return the stanza."""
        msg_id = self.key[1]
        if self.deliver:
            return deliver(msg_id, self.to)
        if self.to == ABSENT:
            content = f"<body>{PADDING}</body>"
        else:
            content = (
                f"<log xmlns='urn:xmpp:eventlog'><message>{PADDING}</message>"
                f"<tag name='n' value='{msg_id}'/></log>"
            )
        return assured(msg_id, f"<message xmlns='jabber:client'>{content}</message>", self.to)


def requests(sender: str) -> list[Request]:
    """Return all requests of a sender, in order."""
    both = [Request(sender, number, step) for number in range(EACH) for step in (False, True)]
    return [request for request in both if not request.deliver or request.number % 3 != 2]


ALL: Final = frozenset(request for sender in SENDERS for request in requests(sender))


class Figures(NamedTuple):
    """Counts of refusals for lack of room, and of groups during whose COMMIT another one ran."""

    refused: int
    behind: int


class _Exchange:
    """The senders, each with one request at a time."""

    def __init__(
        self, store: Store, done: Collection[Request], note: Callable[[Request], None]
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._store = store
        self._router = Router(DOMAIN, Limits())
        self._lifecycle = SessionLifecycle(self._router.context)
        self._note = note
        self._left = {sender: self._to_send(sender, done) for sender in SENDERS}
        self._ready: list[Request] = []
        self.end: asyncio.Future[None] = self._loop.create_future()
        self.refused = 0
        self.behind = 0

    def _to_send(self, sender: str, done: Collection[Request]) -> Iterator[Request]:
        """Yield the last answered request of a sender, if it may be repeated, then the others."""
        row = requests(sender)
        first = next((at for at, request in enumerate(row) if request not in done), len(row))
        if first and row[first - 1].is_last:
            yield row[first - 1]
        yield from row[first:]

    def _bind(self, tx: Transaction) -> None:
        for generation, sender in enumerate(SENDERS):
            bare = f"{sender}@{DOMAIN}"
            self._lifecycle.bind(tx, generation, sender, bare, f"{bare}/fw")

    async def run(self) -> None:
        await self._store.run(self._bind)
        for sender in SENDERS:
            self._continue(sender)
        first, self._ready = self._ready[:FIRST], self._ready[FIRST:]
        self._store._writer.raw.set_trace_callback(self._on_statement)
        self._store.on_flush = self._on_flush
        for request in first:
            self._submit(request)
        await asyncio.wait_for(self.end, WAIT_S)

    def _on_statement(self, sql: str) -> None:
        """Hold a COMMIT on the database's thread until the next group has units."""
        if sql == "COMMIT" and threading.current_thread() is not threading.main_thread():
            submitted = threading.Event()
            self._loop.call_soon_threadsafe(self._submit_ready, submitted)
            submitted.wait(WAIT_S)

    def _on_flush(self) -> None:
        if not self._store.waiting.units:
            self._submit_ready()

    def _submit_ready(self, submitted: threading.Event | None = None) -> None:
        ready, self._ready = self._ready, []
        for request in ready:
            self._submit(request)
        if submitted is not None:
            behind = self._store._behind
            self.behind += behind is not None and bool(behind.units)
            submitted.set()

    def _submit(self, request: Request) -> None:
        work = self._router.route(stanza(request.xml()), request.key[0])
        assert callable(work)
        unit = guarded(work, SENDERS.index(request.sender))
        heavy = request.number == 3 and request.sender in {"a0", "b0"}
        self._store.submit(unit, lambda outcome: self._answer(request, outcome), heavy=heavy)

    def _answer(self, request: Request, outcome: Any) -> None:
        if isinstance(outcome, StoreFull):
            self.refused += 1
            self._ready.append(request)
        elif isinstance(outcome, StoreError):
            self._fail(outcome)
        else:
            reply = read_reply(outcome)
            assert reply is not None
            payload = None if reply.payload is None else reply.payload.tag
            if (reply.type, payload) != (
                "result",
                None if request.deliver else f"{{{QOS}}}received",
            ):
                self._fail(AssertionError(f"{request}: {reply}"))
            self._note(request)
            self._continue(request.sender)

    def _fail(self, error: Exception) -> None:
        self._ready.clear()
        if not self.end.done():
            self.end.set_exception(error)

    def _continue(self, sender: str) -> None:
        if self.end.done():
            return
        request = next(self._left[sender], None)
        if request is not None:
            self._ready.append(request)
            return
        del self._left[sender]
        if not self._left:
            self.end.set_result(None)


async def exchange(
    path: Path, done: Collection[Request], note: Callable[[Request], None]
) -> Figures:
    """Send all requests that are not `done`, and call `note` with each that is answered."""
    store = await Store.open(path, Clock(), BOUNDS)
    try:
        await store.run(lambda tx: tx.run(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}"))
        senders = _Exchange(store, done, note)
        await senders.run()
        await store.run(check_images)
        return Figures(senders.refused, senders.behind)
    finally:
        await store.close()


def check_images(tx: Transaction) -> None:
    """Check that the images of custody, of the outbox and of the log equal the rows."""
    custody_image.image_equals_rows(tx)
    outbox_image.images_equal_rows(tx)
    fresh = Transaction(tx.run("SELECT 1").connection, tx.now)
    assert _lanes(tx) == _lanes(fresh)


def _lanes(tx: Transaction) -> list[tuple[object, ...]]:
    names = events._Lane.__slots__
    return [tuple(getattr(lane, name) for name in names) for lane in events._lanes(tx).values()]


class _Found(NamedTuple):
    """The copies of each message by place; its key is the full JID and the msgId."""

    held: Counter[tuple[str, str]]
    outbox: Counter[tuple[str, str]]
    logged: Counter[tuple[str, str]]


def _find(connection: sqlite3.Connection) -> _Found:
    return _Found(
        Counter(connection.execute("SELECT sender, msg_id FROM held").fetchall()),
        Counter(connection.execute("SELECT sender, msg_id FROM outbox").fetchall()),
        Counter((str(e.source), e.tags["n"]) for e in unsealed_events(connection, "logs")),
    )


def check(path: Path, done: Iterable[Request]) -> None:
    """Check that each answered request has its effect, once, and that lanes have no gaps."""
    with closing(database.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        held, outbox, logged = _find(connection)
        delivered = outbox + logged
        assert set((held + delivered).values()) <= {1}
        tx = Transaction(connection, Clock()())
        for request in done:
            sender, msg_id = request.key
            if request.deliver:
                assert delivered[request.key] == 1, request
                assert was_released(tx, sender.partition("/")[0], sender, msg_id), request
            else:
                assert held[request.key] + delivered[request.key] == 1, request
        for lane in LANES:
            numbers = [event.seq for event in unsealed_events(connection, lane)]
            assert numbers == list(range(1, len(numbers) + 1)), lane


def check_complete(path: Path) -> None:
    """Check that all requests have their effect, and that there are no other messages."""
    check(path, ALL)
    with closing(database.connect(path)) as connection:
        found = _find(connection)
    delivered = {request.key: request for request in ALL if request.deliver}
    assert set(found.held) == {request.key for request in ALL} - delivered.keys()
    assert set(found.outbox) == {key for key, request in delivered.items() if request.to == ABSENT}
    assert set(found.logged) == delivered.keys() - found.outbox.keys()


class Run(NamedTuple):
    """The result of a process.

    Attributes:
        status: the exit status; negative for a signal.
        done: the requests that were answered.
        figures: the result of `exchange`; zeros if it did not end.
        records: the recorded calls.
        disk: the content of the disk, on which the power can be cut.
    """

    status: int
    done: list[Request]
    figures: Figures
    records: list[power_cut.Record]
    disk: Disk

    def count(self, kinds: str) -> int:
        """Return the number of calls of some kinds, which are values of `power_cut.Record.what`."""
        return sum(record.what in kinds for record in self.records)


class FaultyProcess:
    """A process that runs `exchange` again and again, each time from the same database."""

    def __init__(self, folder: Path) -> None:
        self._template = folder / "template"
        self._template.mkdir()
        made = Gateway(new_database(self._template))
        for name in (*SENDERS, "absent"):
            made.add(name)
        made.close()
        self.path = folder / "run" / database.FILE_NAME
        self.path.parent.mkdir()
        self._answers = folder / "answers"
        self._log, env = power_cut.recording(folder, self.path)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.helpers.write_faults"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **env},
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._process.communicate(timeout=WAIT_S)

    def run(self, fault: str = "") -> Run:
        """Run with a fault, which is a value of $WRITE_FAULT (see `write_log.c`)."""
        shutil.rmtree(self.path.parent)
        shutil.copytree(self._template, self.path.parent)
        (template,) = self._template.iterdir()
        disk = Disk({self.path.stat().st_ino: template})
        os.truncate(self._log, 0)
        self._answers.write_bytes(b"")
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([str(self.path), str(self._answers), fault]) + "\n")
        self._process.stdin.flush()
        status = int(self._process.stdout.readline())
        lines = [json.loads(line) for line in self._answers.read_text().split("\n")[:-1]]
        done = [Request(*line) for line in lines if len(line) == len(Request._fields)]
        figures = Figures(*lines[-1]) if status == 0 else Figures(0, 0)
        records = list(power_cut.records(self._log.read_bytes()))
        for record in records:
            disk.play(record)
        return Run(status, done, figures, records, disk)


def _run_child(path: Path, answers: Path) -> int:
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
    Router(DOMAIN, Limits())  # imports the features once for all children
    for line in sys.stdin:
        path, answers, fault = json.loads(line)
        pid = os.fork()
        if pid == 0:
            os.environ["WRITE_FAULT"] = fault
            signal.alarm(round(2 * WAIT_S))
            status = 1
            try:
                status = _run_child(Path(path), Path(answers))
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(status)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
