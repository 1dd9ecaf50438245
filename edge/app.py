"""The composition root: what starts, in which order, and how it stops.

Start: store, event log, uplink, front, `ready`. Stop, on SIGTERM or SIGINT: no new sessions, the
old ones end, what waits is committed, the closing event is sealed. SIGHUP changes nothing. What the
parts do is theirs.
"""

from __future__ import annotations

import asyncio
import fcntl
import gc
import hashlib
import platform
import resource
import signal
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AsyncExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from edge import __version__, background_tasks, timekeeping
from edge.background_tasks import HeartbeatSources
from edge.config import load
from edge.config.load import Address, Config
from edge.engine import clock_store, database, events, flash_meter, status_events, timers
from edge.engine.clock import Clock, MachineClocks
from edge.engine.database import Transaction
from edge.engine.group_commit import Store, UnitLimits
from edge.engine.router import Router
from edge.engine.service_time import Run, Start
from edge.engine.timers import Timer
from edge.errors import ConfigError, SetupError, StoreBroken, StoreError
from edge.features.eventlog import service as eventlog
from edge.features.eventlog.rules import levels
from edge.ops.control import ProcessStatus
from edge.server import control_server
from edge.server.listener import Listener
from edge.server.refusal_counters import RefusalCounters
from edge.uplink import epoch_check, setup
from edge.uplink.backlog import Facts, StoreBacklog
from sync.common import sd_notify
from sync.uplink import BacklogUnavailable, BatchLimits, Sealer

if TYPE_CHECKING:
    from edge.server.component.component import Component

STOP_TIME: Final = 5.0
"""Seconds that sessions have to take their last bytes."""

FAREWELL: Final = 5.0
"""Seconds that the uplink has at the stop; what was not shipped by then is shipped next time."""

GARBAGE: Final = 20_000
"""New objects until the collector looks for cycles among them; Python's 700 are made by a dozen
stanzas, and looking costs a tenth of an exchange."""

TURN: Final = 0.0005
"""Seconds until a thread that wants to run Python gets its turn, where Python's 5 ms are as long as
a whole exchange: the loop and the database's thread wait for each other at each of its steps."""

SPARE_DESCRIPTORS: Final = 64
"""Files and sockets beside the sessions': database, uplink, listener, and what waits to be refused;
a gateway without sessions has some twenty."""

TIMER_RETRY: Final = 60.0
"""Seconds until the timer hooks are tried again after the store failed."""


def run(folder: Path, ready: Callable[[str], None], warn: Callable[[str], None]) -> None:
    """Run the gateway of `folder` until it is told to stop; raises `FieldpostError`.

    `ready` is called with the line that names every listening address, `warn` with a line for the
    operator.
    """
    settings = load.load(folder)
    _raise_descriptors(settings.limits.sessions, settings.limits.unauthenticated)
    with _alone(folder):
        asyncio.run(App(folder, settings, warn).serve(ready))


def _raise_descriptors(sessions: int, strangers: int) -> None:
    """Allow the process all descriptors that it can have; raises `ConfigError` if too few."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = sessions + strangers + SPARE_DESCRIPTORS
    if hard != resource.RLIM_INFINITY and needed > hard:
        raise ConfigError(
            f"limits.sessions: {sessions} sessions need {needed} descriptors, and this process may"
            f" have {hard} (`ulimit -Hn`, LimitNOFILE)"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Keep a second gateway from this folder: two would each believe to hold the messages."""
    with (folder / "run.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SetupError(f"a gateway is running in {folder} already") from None
        yield


class App:
    """The gateway: its parts, and the tasks that drive them. `machine` has the clocks."""

    def __init__(
        self,
        folder: Path,
        settings: Config,
        warn: Callable[[str], None],
        machine: MachineClocks | None = None,
    ) -> None:
        self._folder = folder
        self._machine = machine or MachineClocks()
        self._warn = warn
        self._settings = settings
        self._stop = asyncio.Event()
        self._failure: BaseException | None = None

    async def serve(self, ready: Callable[[str], None]) -> None:
        """Start, wait for a signal or a fault, stop; raises the fault."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)
        loop.add_signal_handler(signal.SIGHUP, self._hang_up)
        async with AsyncExitStack() as stack:
            await self._start(stack, ready)
            await self._stop.wait()
            sd_notify.notify("STOPPING=1")
        if self._failure is not None:
            raise self._failure

    def _hang_up(self) -> None:
        with suppress(OSError):  # the terminal may be what has gone
            self._warn("SIGHUP is ignored: a changed configuration takes a restart")

    async def _start(self, stack: AsyncExitStack, ready: Callable[[str], None]) -> None:
        settings, limits = self._settings, self._settings.limits
        path = self._folder / database.FILE_NAME
        start = timekeeping.resume_time(path, self._machine.read())
        clock = Clock(start.saved.service, self._machine)
        bounds = UnitLimits(limits.waiting_units, limits.waiting_bytes)
        store = await Store.open(path, clock, bounds, limits.database_bytes)
        stack.push_async_callback(store.close)
        store.on_broken = self._fail

        embedded = settings.component is None
        domain, uplink = settings.gateway.domain, settings.uplink
        router = Router(
            domain, limits, settings.xmpp, settings.pubsub, accounts=embedded, topics=uplink.topics
        )
        if settings.log.notify:
            store.before_commit = eventlog.notifier(router.context, settings.log)
        facts = self._facts(clock)
        await epoch_check.settle(self._folder, store, settings, facts)
        backlog = StoreBacklog(store, settings, facts)
        sealer = await self._start_uplink(stack, backlog, clock)
        timer = _start_timer(store, clock, router)
        stack.callback(timer.cancel)
        await store.run(lambda tx: _begin(tx, settings, start, clock.run, router))
        tally = RefusalCounters()
        front = self._front(store, router, tally)
        store.on_flush = sealer.wake
        meter = await flash_meter.start_meter(store, settings.flash)
        beats = HeartbeatSources(store, tally, clock.run, limits, meter)
        stack.push_async_callback(self._end, beats, sealer, backlog)
        stack.push_async_callback(front.stop, STOP_TIME)
        self._keep_time(stack, beats, clock, start)
        state = control_server.state_reader(limits, clock, front.used)
        shown = await self._show(stack, beats, router, front, state)
        places = await self._unless_stopped(front.start())
        if places is None:
            return
        await self._answer_operators(stack, state, store)
        self._look_after(stack, clock, store, tally)
        gc.freeze()  # what is there now stays: modules, tables of handlers
        gc.set_threshold(GARBAGE)
        sys.setswitchinterval(TURN)
        places += (("web", address) for address in shown)
        ready(" ".join(("ready", *(f"{name}={address}" for name, address in places))))
        sd_notify.notify("READY=1")

    def _keep_time(
        self, stack: AsyncExitStack, beats: HeartbeatSources, clock: Clock, start: Start
    ) -> None:
        interval = self._settings.uplink.heartbeat
        self._drive(stack, background_tasks.heartbeats(beats, interval), "heartbeats")
        for name, work in timekeeping.tasks(beats.store, clock, start, interval):
            self._drive(stack, work, name)

    def _look_after(
        self, stack: AsyncExitStack, clock: Clock, store: Store, tally: RefusalCounters
    ) -> None:
        self._drive(stack, background_tasks.poll_external_changes(store), "changes")
        self._drive(stack, background_tasks.log_queue_depths(store), "depths")
        if self._settings.component is None:
            domain = self._settings.gateway.domain
            work = background_tasks.maintain_certificates(self._folder, domain, clock, store, tally)
            self._drive(stack, work, "certificates")

    def _front(self, store: Store, router: Router, tally: RefusalCounters) -> Listener | Component:
        """Make what the outside sees; it connects itself to the store when it starts."""
        settings = self._settings
        if settings.component is None:
            return Listener(self._folder, settings, store, router, tally)
        # imported late: slixmpp's streams are not small
        from edge.server.component.component import Component

        return Component(self._folder, settings, store, router, tally, self._warn, self._fail)

    async def _show(
        self,
        stack: AsyncExitStack,
        beats: HeartbeatSources,
        router: Router,
        front: Listener | Component,
        state: Callable[[], ProcessStatus],
    ) -> list[Address]:
        """Open the status page, if there is to be one; returns where it listens."""
        settings, store = self._settings, beats.store
        if not settings.web.listen:
            return []
        # imported late: who has no use for it pays nothing
        from edge.web import serving
        from edge.web.status_snapshot import Sources

        known = Sources(settings, store, state, front, router, beats.meter)
        server, looker = serving.made(known)
        stack.callback(server.stop)
        self._drive(stack, looker.watch(), "web")
        return await server.start(load.parse_address(settings.web.listen))

    async def _answer_operators(
        self, stack: AsyncExitStack, state: Callable[[], ProcessStatus], store: Store
    ) -> None:
        """Open the control socket; a gateway that cannot have one does all else."""
        control = control_server.for_store(self._folder, state, store)
        stack.callback(control.stop)
        try:
            await control.start()
        except OSError as error:
            self._warn(f"no control socket, and `fieldpost status` says not running: {error}")

    async def _unless_stopped(
        self, starting: Coroutine[None, None, list[tuple[str, Address]]]
    ) -> list[tuple[str, Address]] | None:
        """Wait for a front to start; `None` if the gateway is stopped meanwhile."""
        front = asyncio.create_task(starting)
        stopped = asyncio.create_task(self._stop.wait())
        await asyncio.wait({front, stopped}, return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        if front.done():
            return front.result()
        front.cancel()
        await asyncio.wait({front})
        return None

    async def _start_uplink(
        self, stack: AsyncExitStack, backlog: StoreBacklog, clock: Clock
    ) -> Sealer:
        settings, uplink = self._settings, self._settings.uplink
        road = setup.road(self._folder, settings, backlog, lambda: clock().wall / 1000)
        uploader = None
        if road is not None:
            stack.push_async_callback(road.transport.close)
            uploader = setup.uploader(settings, backlog, road.transport)
            self._drive(stack, uploader.run(), "uploader")
            if road.renewal is not None:
                self._drive(stack, road.renewal.run(), "renewal")
        sealer = Sealer(
            settings.gateway.domain,
            backlog,
            backlog.facts,
            BatchLimits(
                uplink.segment_events, uplink.segment_age, uplink.segment_bytes, uplink.urgent_age
            ),
            clock=lambda: clock().service,
            on_sealed=uploader.wake if uploader else lambda: None,
            send_notice=backlog.tell,
        )
        self._drive(stack, sealer.run(), "sealer")
        return sealer

    def _facts(self, clock: Clock) -> Facts:
        return Facts(
            self._folder,
            clock,
            boot=clock.run.boot,
            firmware=f"{platform.system()} {platform.release()} {platform.machine()}",
            software=f"fieldpost {__version__}",
            config_hash=hashlib.sha256(load.read(self._folder)).digest(),
        )

    def _drive(self, stack: AsyncExitStack, work: Coroutine[None, None, None], name: str) -> None:
        """Let a task run until the stop; if it fails, the gateway does."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        task.add_done_callback(self._ended)

        async def stop() -> None:
            task.cancel()
            with suppress(asyncio.CancelledError, Exception):  # `_ended` has seen to it
                await task

        stack.push_async_callback(stop)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        if self._failure is None:
            self._failure = error
        self._stop.set()

    async def _end(self, beats: HeartbeatSources, sealer: Sealer, backlog: StoreBacklog) -> None:
        """Write the closing event, seal it, and ship it if the centre is there just now."""
        if isinstance(self._failure, StoreBroken):
            return
        try:
            await setup.close(beats, sealer, backlog)
            if self._settings.uplink.enrolment or self._settings.uplink.folder:
                with suppress(TimeoutError):
                    await asyncio.wait_for(backlog.empty(), FAREWELL)
        except (StoreError, BacklogUnavailable) as error:
            self._fail(error)


def _begin(tx: Transaction, settings: Config, start: Start, run: Run, router: Router) -> None:
    events.set_urgent(tx, levels.at_least(settings.uplink.urgent_level))
    events.append(tx, events.SYSTEM, timekeeping.start_event(start, settings.uplink.heartbeat))
    status_events.log_migration(tx)
    clock_store.save(tx, start.saved)
    clock_store.save_progress(tx, run)
    timers.run(router.context, tx)


def _start_timer(store: Store, clock: Clock, router: Router) -> Timer:
    def unit(tx: Transaction) -> None:
        timers.run(router.context, tx)

    def fire() -> None:
        store.submit(unit, fired)

    def fired(outcome: object) -> None:
        if isinstance(outcome, StoreError):  # such as a full disk: nothing was done
            timer.set(clock().service + TIMER_RETRY)

    timer = Timer(clock, fire)
    store.on_due = timer.set
    return timer
