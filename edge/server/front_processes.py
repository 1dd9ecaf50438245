"""The front processes of the gateway: the core's side of their links, and their starts and ends.

A front that ends, or breaks the rules of its link, ends its connections alone: their sessions are
lost or wait to be resumed, and the front is started again, after a delay that grows while it fails.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

import msgspec

import edge
from edge.config.limits import Limits
from edge.engine.store import events
from edge.engine.store.database import Transaction
from edge.engine.store.events import NewEvent
from edge.engine.store.group_commit import Store
from edge.errors import SetupError, StoreError
from edge.ops.gateway.control import FrontStatus
from edge.server.link.front_link import FrontLink, LinkedListener
from edge.server.link.messages import (
    VERSION,
    Begin,
    CertificateFiles,
    Figures,
    Limit,
    Listening,
    StopAccepting,
)
from edge.server.refusal_counters import RefusalCounters
from edge.server.tls import TlsContexts

_NO_CERTIFICATES: Final = CertificateFiles(b"", b"", b"", None)

CHECK_TIME: Final = 1.0
"""Seconds between two checks of whether certificate files have changed."""

START_TIME: Final = 30.0
"""Seconds that a front has to be ready."""

SILENT_TIME: Final = 60.0
"""Seconds after which a front that sends nothing, not even its figures, counts as hung, and is
ended: as long as systemd waits for the core (`WatchdogSec`)."""

SILENT_CHECKS: Final = 6
"""Checks in that time. If the core itself hangs, only one of them is missed."""

END_TIME: Final = 2.0
"""Seconds that a front has to end; then it is killed."""

DELAYS: Final = (0.1, 30.0)
"""Seconds after which a front that has ended is started again: the first time, doubling to the
longest."""

MIN_MEMORY: Final = 1_000_000_000
"""Bytes of memory from which on `processes = "auto"` starts front processes; each adds 19 MB."""

MOST: Final = 4
"""Most front processes that `processes = "auto"` starts."""

STEADY_TIME: Final = 60.0
"""Seconds after which the delay begins anew."""


class _Port(NamedTuple):
    listener: LinkedListener
    listening: Listening


class FrontProcesses:
    """All front processes.

    Args:
        count: how many there are, at least 1.
    """

    def __init__(self, count: int, limits: Limits, store: Store, refusals: RefusalCounters) -> None:
        self._store = store
        self._begin = Begin(VERSION, _NO_CERTIFICATES, _share(limits, count), [])
        self._count = count
        self._contexts: TlsContexts | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.refusals = refusals
        self._ports: list[_Port] = []
        self._fronts = [FrontProcess(self, number + 1) for number in range(count)]

    def watch(self, contexts: TlsContexts) -> None:
        """Let the fronts use the certificates of these contexts, also when their files change.

        Raises `SetupError` if the files cannot be read.
        """
        self._contexts = contexts
        try:
            self._begin.certificates = CertificateFiles(*contexts.read())
        except OSError as error:
            raise SetupError(f"a certificate cannot be read: {error}") from error
        contexts.on_used = self._send_certificates
        self._check_files()

    def _check_files(self) -> None:
        if self._contexts is not None:
            self._contexts.refresh()
        self._timer = asyncio.get_running_loop().call_later(CHECK_TIME, self._check_files)

    def _send_certificates(self) -> None:
        with suppress(OSError):  # they change again
            if self._contexts is not None:
                self._begin.certificates = CertificateFiles(*self._contexts.read())
                for front in self._fronts:
                    front.send(self._begin.certificates)

    def listen(self, listener: LinkedListener, sockets: tuple[int, ...], *, only_tls: bool) -> None:
        """Let the fronts accept connections of a listener from bound sockets, after `start`."""
        listening = Listening(listener.sockets, only_tls, sockets)
        self._ports.append(_Port(listener, listening))
        self._begin.listening.append(listening)

    async def start(self) -> None:
        """Start the fronts, and wait until they accept; raises `SetupError` if one does not."""
        if self._ports:
            for front in self._fronts:
                front.start()
            await asyncio.gather(*(front.wait_ready() for front in self._fronts))

    @property
    def up(self) -> bool:
        """Return whether a front accepts connections."""
        return any(front.is_ready for front in self._fronts)

    @property
    def handshakes(self) -> int:
        """Return the number of TLS handshakes now."""
        return sum(front.handshakes for front in self._fronts)

    def status(self) -> list[FrontStatus]:
        """Return what is known of each front; none is started if there is nothing to listen on."""
        return [front.status() for front in self._fronts if self._ports]

    def ids(self) -> frozenset[int]:
        """Return the process ids of the fronts, and of those that they have replaced."""
        return frozenset(number for front in self._fronts for number in front.ids)

    def set_limits(self, limits: Limits) -> None:
        """Use these limits from now on."""
        self._begin.limits = _share(limits, self._count)
        for front in self._fronts:
            front.send(Limit(self._begin.limits))

    def flush(self) -> None:
        """Send what waits for the fronts."""
        for front in self._fronts:
            front.flush()

    def stop_accepting(self) -> None:
        """Accept no more connections, and start no front again."""
        if self._timer is not None:
            self._timer.cancel()
        for front in self._fronts:
            front.stop_accepting()

    async def close(self) -> None:
        """End the fronts."""
        await asyncio.gather(*(front.close() for front in self._fronts))

    # Called by the fronts

    @property
    def begin(self) -> Begin:
        """Return what a front needs to begin."""
        return self._begin

    def port(self, place: int) -> LinkedListener:
        """Return a listener by its place; raises `IndexError`."""
        return self._ports[place].listener

    def log_end(self, number: int, reason: str, restarts: int) -> None:
        """Log that a front has ended by itself."""
        event = NewEvent(
            "system",
            name="front_ended",
            value=float(number),
            level="Error",
            text=reason,
            tags={"restarts": str(restarts)},
        )

        def unit(tx: Transaction) -> None:
            events.append(tx, events.SYSTEM, event)

        def answer(outcome: StoreError | None) -> None:
            if isinstance(outcome, StoreError):
                self.refusals.add_store_error(outcome)

        self._store.submit(unit, answer)


class FrontProcess:
    """One front process, with the core's side of its link; a new process may take its place.

    Attributes:
        ids: the ids of the process and of the one before it.
    """

    def __init__(self, fronts: FrontProcesses, number: int) -> None:
        self._fronts = fronts
        self._number = number
        self._loop = asyncio.get_running_loop()
        self._link: FrontLink | None = None
        self._process: asyncio.subprocess.Process | None = None
        self.ids: deque[int] = deque(maxlen=2)
        self._running: asyncio.Task[None] | None = None
        self._silence: asyncio.TimerHandle | None = None
        self._restarts = 0
        self._stopping = asyncio.Event()
        self._lost = asyncio.Event()  # the link has ended
        self._fault = ""
        self._begun = asyncio.Event()  # it was ready once, or has failed

    @property
    def is_ready(self) -> bool:
        """Whether it accepts connections."""
        return self._link is not None and self._link.is_ready

    @property
    def handshakes(self) -> int:
        """Its number of TLS handshakes now."""
        return 0 if self._link is None else self._link.handshakes

    def start(self) -> None:
        """Start the process, again and again until `stop_accepting`."""
        self._running = self._loop.create_task(self._run(), name=f"front {self._number}")

    async def wait_ready(self) -> None:
        """Wait until the process accepts connections; raises `SetupError` if it does not."""
        await self._begun.wait()
        if not self.is_ready:
            raise SetupError(f"front process {self._number} does not start: {self._fault}")

    async def _run(self) -> None:
        delay = DELAYS[0]
        while True:
            started = self._loop.time()
            await self._run_once()
            if self._stopping.is_set():
                return
            if not self._begun.is_set():
                self._begun.set()
                return
            self._restarts += 1
            self._fronts.log_end(self._number, self._fault, self._restarts)
            if self._loop.time() - started > STEADY_TIME:
                delay = DELAYS[0]
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), delay)
            if self._stopping.is_set():
                return
            delay = min(2 * delay, DELAYS[1])

    async def _run_once(self) -> None:
        environment = {**os.environ, "PYTHONPATH": str(Path(edge.__file__).parents[1])}
        numbers = [n for listening in self._fronts.begin.listening for n in listening.sockets]
        self._lost.clear()
        self._fault = "it has ended"
        try:
            ours, theirs = socket.socketpair()
        except OSError as error:
            self._fault = f"it cannot be started: {error}"
            return
        try:
            with theirs:
                self._process = process = await asyncio.create_subprocess_exec(
                    sys.executable,
                    "-m",
                    "edge.server.front_process",
                    stdin=theirs.fileno(),
                    stdout=asyncio.subprocess.DEVNULL,
                    pass_fds=numbers,
                    env=environment,
                )
                self.ids.append(process.pid)
        except BaseException as error:
            ours.close()
            if not isinstance(error, OSError):
                raise
            self._fault = f"it cannot be started: {error}"
            return
        link = self._link = FrontLink(self)
        link.batches.send(self._fronts.begin)
        if self._stopping.is_set():
            link.batches.send(StopAccepting())
        await self._loop.connect_accepted_socket(lambda: link.batches, ours)
        timer = self._loop.call_later(START_TIME, self._end_unless_ready, link)
        self._check_silence(link, 0, 0)
        await self._lost.wait()
        timer.cancel()
        if self._silence is not None:
            self._silence.cancel()
        self._fault = link.fault
        with suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), END_TIME)
        if process.returncode is None:
            process.kill()
            await process.wait()
        if process.returncode:
            self._fault += f", with status {process.returncode}"
        self._process = self._link = None

    def _end_unless_ready(self, link: FrontLink) -> None:
        if not link.is_ready:
            link.fault = f"it is not ready after {START_TIME:g} s"
            link.batches.abort()

    def _check_silence(self, link: FrontLink, silent: int, before: int) -> None:
        """End a front that hangs: since it was ready, for so many checks nothing has come, and it
        has not read what was unsent `before`."""
        unsent = link.batches.unsent
        silent = silent + 1 if link.is_ready and link.is_silent and unsent >= before else 0
        if silent == SILENT_CHECKS:
            link.fault = f"it hung: it sent nothing for {SILENT_TIME:g} s"
            link.batches.abort()
            return
        link.is_silent = True
        seconds = SILENT_TIME / SILENT_CHECKS
        self._silence = self._loop.call_later(seconds, self._check_silence, link, silent, unsent)

    def send(self, message: Any) -> None:
        """Send a message, if the process runs."""
        if self._link is not None:
            self._link.batches.send(message)

    def flush(self) -> None:
        """Send what waits for the process."""
        if self._link is not None:
            self._link.batches.flush()

    def status(self) -> FrontStatus:
        """Return what is known of the front."""
        link = self._link
        return FrontStatus(
            number=self._number,
            pid=None if self._process is None else self._process.pid,
            restarts=self._restarts,
            connections=0 if link is None else len(link.wires),
            confined=link is not None and link.is_confined,
        )

    def stop_accepting(self) -> None:
        """Accept no more connections, and start no process again."""
        self._stopping.set()
        self.send(StopAccepting())

    async def close(self) -> None:
        """End the process."""
        self._stopping.set()
        if self._running is None:
            return
        if self._link is None:  # it starts, or waits to be started again
            self._running.cancel()
        else:
            self._link.batches.close()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._lost.wait(), END_TIME)
            if self._link is not None:
                self._link.batches.abort()
        with suppress(asyncio.CancelledError):
            await self._running

    # Called by the link

    def port(self, place: int) -> LinkedListener:
        """Return a listener by its place."""
        return self._fronts.port(place)

    def begin_serving(self) -> None:
        """Note that the process accepts connections."""
        self._begun.set()

    def count_refusals(self, figures: Figures) -> None:
        """Count what the process could not use, or had no room for."""
        refusals = self._fronts.refusals
        if figures.bad_certificates:
            refusals.add("certificate_files")
        if figures.refused:
            refusals.add("connections", figures.refused)

    def lose(self) -> None:
        """Note that the link has ended."""
        self._lost.set()


def _share(limits: Limits, count: int) -> dict[str, int | float]:
    """Return the limits of each of several fronts."""
    found: dict[str, int | float] = msgspec.to_builtins(limits)
    return found | {"handshakes": max(1, limits.handshakes // count)}


def process_count(wanted: int | Literal["auto"]) -> int:
    """Return how many fronts `gateway.processes` asks for, on this machine."""
    if wanted != "auto":
        return wanted
    cores = len(os.sched_getaffinity(0))
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min(cores - 1, MOST) if memory >= MIN_MEMORY else 0
