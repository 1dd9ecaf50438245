"""The composition root of the gateway: start all parts in order, and stop them.

The order of the start: store, event log, uplink, web page, control socket, endpoints, `ready` line.
The order of the stop, on SIGTERM or SIGINT: accept no new sessions, end the sessions, commit the
waiting units, seal the closing event. SIGHUP reloads the configuration (`edge.reload`).
"""

from __future__ import annotations

import asyncio
import ctypes
import faulthandler
import fcntl
import gc
import hashlib
import os
import resource
import signal
import sys
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from edge import __version__, background_tasks, timekeeping
from edge.background_tasks import HeartbeatSources
from edge.command_errors import CommandError, report_as_line
from edge.config import load
from edge.config.limits import Limits
from edge.config.load import Address, Config
from edge.config.options import Uplink
from edge.engine.dispatch.hooks import Context, TimeOffHook, new_context
from edge.engine.limits.flash_meter import WriteMeter
from edge.engine.log import status_events
from edge.engine.rules import space_rules
from edge.engine.rules.service_time import Run, Start
from edge.engine.sessions import durable_sessions
from edge.engine.store import database, events, meta, space
from edge.engine.store.database import Transaction
from edge.engine.store.events import NewEvent
from edge.engine.store.group_commit import SHORT_GROUPS, Store, UnitLimits
from edge.engine.time import clock_store, timers
from edge.engine.time.clock import Clock, MachineClocks
from edge.engine.time.timers import Timer
from edge.errors import ConfigError, SetupError, StoreBroken, StoreError, StoreFull
from edge.event_counts import EventCounts
from edge.features.accounts.store import last_seen
from edge.features.eventlog import service as eventlog
from edge.features.eventlog.rules import levels
from edge.health_monitor import HealthMonitor, status_line
from edge.journal import Journal
from edge.ops.checks import folder as folder_checks
from edge.ops.checks.finding import WRONG
from edge.ops.gateway import control
from edge.ops.gateway.control import DeviceConnections, ProcessStatus, ReloadReport
from edge.reload import Change, Reloader
from edge.routing.xmpp.router import Router
from edge.server.control_server import ControlServer, present_members, state_reader
from edge.server.endpoints import Endpoint, Endpoints
from edge.server.front_processes import FrontProcesses, process_count
from edge.server.operator_channel import OperatorRequests
from edge.server.refusal_counters import RefusalCounters
from edge.server.server_context import ServerContext
from edge.server.xmpp.listener import XmppListener
from edge.status_page import StatusPage
from edge.uplink import setup
from edge.uplink.backlog import GatewayFacts, StoreBacklog
from edge.uplink.connection import UplinkConnection
from sync.common import sd_notify
from sync.common.text import size
from sync.uplink.batcher import BatchLimits
from sync.uplink.interfaces import BacklogUnavailable
from sync.uplink.sealer import Sealer

if TYPE_CHECKING:  # without MQTT and a status page these take no memory
    from edge.server.mqtt.traffic import Traffic
    from edge.web.status_snapshot import Sources

STOP_TIME: Final = 5.0
"""Seconds that sessions have to receive their last bytes when the gateway stops."""

LAST_UPLOAD_TIME: Final = 5.0
"""Seconds that the uplink has to ship the last segments when the gateway stops. The next run ships
the rest."""

GC_THRESHOLD: Final = 20_000
"""New objects until a garbage collection. Python's default is 700, which a dozen stanzas create;
collections at that rate take a tenth of the processor time."""

SWITCH_INTERVAL: Final = 0.0005
"""Seconds until a waiting thread gets the interpreter lock. Python's default of 5 ms is as long as
the handling of a message, in which the event loop and the database's thread wait for each other
several times."""

M_ARENA_MAX: Final = -8
"""The parameter of mallopt(3) for the number of arenas; Python has no name for it."""

SPARE_DESCRIPTORS: Final = 64
"""File descriptors for all but connections of devices: database, uplink, listener, and connections
that are refused. A gateway without sessions has about twenty."""

TIMER_RETRY: Final = 60.0
"""Seconds until the timer hooks are tried again after the store failed."""


def run(folder: Path, journal: Journal) -> None:
    """Run the gateway of `folder` until it is stopped.

    Prints the `ready` line, which names every listening address. Exits with status 1 after an
    error, whose reason is in the journal.
    """
    _share_arena()
    try:
        with report_as_line(folder):
            settings = load.load(folder)
            _raise_descriptors(settings.limits.sessions, settings.limits.unauthenticated)
            _check_disk(folder, settings.limits)
            with _lock_folder(folder):
                asyncio.run(App(folder, settings, journal).serve(partial(print, flush=True)))
    except CommandError as error:
        journal.fail(str(error))
    except KeyboardInterrupt:  # before the gateway handles the signal
        journal.fail("interrupted")
    except Exception as error:
        journal.log_fault({"message": "the gateway has failed", "exception": error})
    else:
        return
    sys.exit(1)


def _raise_descriptors(sessions: int, unauthenticated: int) -> None:
    """Raise this process's limit of open files to its hard limit; raises `ConfigError` if that is
    too low for so many connections."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = sessions + unauthenticated + SPARE_DESCRIPTORS
    if hard != resource.RLIM_INFINITY and needed > hard:
        raise ConfigError(
            f"limits.sessions: {sessions} sessions need {needed} file descriptors, but this process"
            f" can open only {hard}; lower limits.sessions, or raise LimitNOFILE of the service"
            " (`ulimit -Hn` without systemd)"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _check_disk(folder: Path, limits: Limits) -> None:
    """Raise `ConfigError` if no message could ever be accepted on the folder's disk."""
    system = os.statvfs(folder)
    disk = system.f_blocks * system.f_frsize
    if not space_rules.can_ever_accept(disk, space.space_limits(limits)):
        raise ConfigError(
            f"limits.database_reserve: {size(limits.database_reserve)} must stay free, but the disk"
            f" of {folder} has only {size(disk)}, so that no message could ever be accepted; lower"
            " limits.database_reserve, or use a larger disk"
        )


@contextmanager
def _lock_folder(folder: Path) -> Iterator[None]:
    with (folder / "run.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SetupError(
                f"a gateway is already running in {folder}{_waiting(folder)}"
            ) from None
        yield


def _waiting(folder: Path) -> str:
    """Return what the running gateway of a folder waits for, as the end of a sentence."""
    with suppress(SetupError):
        status = control.process_status(folder)
        if status is not None and status.link_error is not None:
            return f", and waits for its XMPP server: {status.link_error}"
    return ""


class _ReloadedParts(NamedTuple):
    server: ServerContext
    endpoints: Endpoints
    web: StatusPage
    centre: UplinkConnection
    sealer: Sealer
    facts: GatewayFacts


class App:
    """The gateway's parts and tasks; `machine` provides the machine's clocks."""

    def __init__(
        self,
        folder: Path,
        settings: Config,
        journal: Journal,
        machine: MachineClocks | None = None,
    ) -> None:
        self._folder = folder
        self._machine = machine or MachineClocks()
        self._journal = journal
        self._counts = EventCounts()
        self._mqtt_traffic: Traffic | None = None  # there is one if MQTT is served
        self._warn = journal.warn
        self._settings = settings
        self._stop = asyncio.Event()
        self._failure: BaseException | None = None
        self._reloader: Reloader | None = None  # there is one as long as the gateway is ready
        self._reloads: set[asyncio.Task[ReloadReport]] = set()

    async def serve(self, ready: Callable[[str], None]) -> None:
        """Start, wait for a signal or a failure, stop; raises the failure.

        `ready` is called with the `ready` line when all parts have started.
        """
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)
        loop.add_signal_handler(signal.SIGHUP, self._on_hangup)
        loop.set_exception_handler(lambda _loop, context: self._journal.log_fault(context))
        async with AsyncExitStack() as stack:
            await self._start(stack, ready)
            await self._stop.wait()
            sd_notify.notify("STOPPING=1")
        if self._failure is not None:
            raise self._failure

    def _on_logged(self, logged: Sequence[NewEvent]) -> None:
        self._journal.log_events(logged)
        self._counts.add(logged)

    def _on_hangup(self) -> None:
        if self._reloader is None:
            self._warn("SIGHUP is ignored while the gateway starts or stops")
        else:
            self._start_reload(self._reloader).add_done_callback(self._report_reload)

    def _report_reload(self, task: asyncio.Task[ReloadReport]) -> None:
        if task.cancelled() or task.exception() is not None:
            return
        report = task.result()
        if report.faults:
            self._warn(f"the configuration was not reloaded: {'; '.join(report.faults)}")
        elif report.restart:
            self._warn(f"reloaded, but a restart is needed to change {', '.join(report.restart)}")

    def _start_reload(self, reloader: Reloader) -> asyncio.Task[ReloadReport]:
        """Begin a reload, which continues even if the connection of its requester is lost."""
        task = asyncio.get_running_loop().create_task(reloader.reload(), name="reload")
        task.add_done_callback(self._on_task_done)
        task.add_done_callback(self._reloads.discard)
        self._reloads.add(task)
        return task

    async def _reload(self) -> ReloadReport:
        if self._reloader is None:
            return ReloadReport(faults=["the gateway is starting or stopping"])
        return await asyncio.shield(self._start_reload(self._reloader))

    async def _end_reloads(self) -> None:
        self._reloader = None
        if self._reloads:
            await asyncio.wait(self._reloads)

    async def _start(self, stack: AsyncExitStack, ready: Callable[[str], None]) -> None:
        settings, limits = self._settings, self._settings.limits
        path = self._folder / database.FILE_NAME
        start = timekeeping.resume_time(path, self._machine.read())
        clock = Clock(start.saved.service, self._machine)
        store = await self._open_store(stack, path, clock)
        router = Router(
            new_context(
                settings.gateway.domain,
                limits,
                settings.xmpp,
                settings.pubsub,
                accounts=settings.component is None,
                uplink=settings.uplink,
                access=settings.access,
                without=() if settings.has_mqtt else ("mqtt",),
                readings=settings.readings,
            )
        )
        store.load_images = router.context.load_images
        if settings.log.notify:
            store.before_commit = eventlog.notifier(router.context, settings.log)
        facts = self._facts(clock)
        await setup.begin_epoch_if_needed(self._folder, store, settings, facts)
        backlog = StoreBacklog(store, settings, facts)
        centre, sealer = self._start_uplink(stack, backlog, clock)
        timer = _start_timer(store, clock, router)
        stack.callback(timer.cancel)
        await store.run(lambda tx: _begin(tx, settings, start, clock.run, router))
        refusals = RefusalCounters()
        server = ServerContext(self._folder, settings, store, router.context, refusals)
        server.front_processes = self._create_front_processes(store, refusals)
        endpoints = Endpoints(server, self.create_endpoints(server, router))
        store.on_answered.append(sealer.wake)
        beats = HeartbeatSources(
            store, refusals, clock.run, limits, WriteMeter(store, settings.flash)
        )
        stack.push_async_callback(self._write_closing_event, beats, sealer, backlog)
        stack.push_async_callback(endpoints.stop, STOP_TIME)
        self._start_time_tasks(stack, beats, clock, start, router.context.hooks.on_time_off)
        monitor, state = self._create_monitor(store, endpoints, clock)

        connections = partial(_device_connections, endpoints, store, clock)
        web = self._create_web(beats, router, monitor, state, connections)
        stack.push_async_callback(web.stop)
        pages = await self._start_web(web, store, router.context)
        await self._start_control(stack, state, connections, server)
        addresses = await self._unless_stopped(self._start_endpoints(endpoints, server, clock))
        if addresses is None:
            return
        parts = _ReloadedParts(server, endpoints, web, centre, sealer, facts)
        self._enable_reload(stack, parts, lambda: timer.set(clock().service))
        self._start_maintenance(stack, clock, server, state, monitor)
        _tune_interpreter()
        addresses += (("web", address) for address in pages)
        await self._announce(stack, monitor, addresses, ready)
        self._start_watchdog(stack)

    async def _announce(
        self,
        stack: AsyncExitStack,
        monitor: HealthMonitor,
        addresses: Sequence[tuple[str, Address]],
        ready: Callable[[str], None],
    ) -> None:
        """Print the `ready` line. It says so if no message is accepted, and the journal says why.

        The gateway starts nevertheless, because it can deliver what is stored, which makes room.
        """
        await self._warn_of_readable_secrets()
        found = await monitor.check()
        words = [f"{name}={address}" for name, address in addresses]
        if found.failures:
            words.append(f"health={found.state}")
        ready(" ".join(("ready", *words)))
        sd_notify.notify(f"READY=1\nSTATUS={status_line(found)}")
        self._run_task(stack, monitor.run(), "health")

    async def _warn_of_readable_secrets(self) -> None:
        """Write a warning for each key, secret or database that others can read, as `doctor`
        does."""
        found = await asyncio.to_thread(
            lambda: list(folder_checks.secrets(self._folder, self._settings))
        )
        for each in found:
            if each.verdict == WRONG:
                self._warn(f"{each.name}: {each.text}; {each.remedy}")

    def _enable_reload(
        self, stack: AsyncExitStack, parts: _ReloadedParts, check_timers: Callable[[], None]
    ) -> None:
        settings, limits = self._settings, self._settings.limits
        server, endpoints, web, centre, sealer, facts = parts
        store = server.store

        def on_reloaded(text: bytes) -> None:
            store.set_limits(_unit_limits(limits), limits.database_bytes)
            sealer.set_limits(_batch_limits(settings.uplink))
            facts.config_hash = hashlib.sha256(text).digest()
            self._observe_commits(store, server.engine, web)
            check_timers()  # what is due depends on the limits

        prepared = (
            _prepare_descriptors,
            partial(_prepare_disk, self._folder),
            partial(_prepare_endpoints, endpoints),
            partial(_prepare_access, settings, store),
            centre.prepare_reload,
            web.prepare_reload,
        )
        self._reloader = Reloader(self._folder, settings, store, prepared, on_reloaded)
        stack.push_async_callback(self._end_reloads)

    def _start_watchdog(self, stack: AsyncExitStack) -> None:
        interval = sd_notify.watchdog_interval()
        if interval is not None:
            faulthandler.enable()  # systemd sends SIGABRT to a process that hangs: write where
            self._run_task(stack, background_tasks.feed_watchdog(interval), "watchdog")

    def _start_time_tasks(
        self,
        stack: AsyncExitStack,
        beats: HeartbeatSources,
        clock: Clock,
        start: Start,
        hooks: Sequence[TimeOffHook],
    ) -> None:
        interval = self._settings.uplink.heartbeat
        self._run_task(stack, background_tasks.heartbeats(beats, interval), "heartbeats")
        on_time_off = [durable_sessions.age, *hooks]
        for name, work in timekeeping.tasks(beats.store, clock, start, interval, on_time_off):
            self._run_task(stack, work, name)

    def _start_maintenance(
        self,
        stack: AsyncExitStack,
        clock: Clock,
        server: ServerContext,
        state: Callable[[], ProcessStatus],
        monitor: HealthMonitor,
    ) -> None:
        self._run_task(stack, background_tasks.log_queue_depths(server.store), "depths")
        if server.tls is not None:
            gateway = self._settings.gateway
            work = background_tasks.maintain_certificates(
                self._folder, gateway, clock, server.store, server.refusals
            )
            self._run_task(stack, work, "certificates")
        if self._mqtt_traffic is not None and self._settings.mqtt.sys_interval:
            from edge.server.mqtt.broker_status import BrokerStatus

            status = BrokerStatus(server, self._mqtt_traffic, state, monitor.check)
            self._run_task(stack, status.run(), "broker status")

    def _create_front_processes(
        self, store: Store, refusals: RefusalCounters
    ) -> FrontProcesses | None:
        count = process_count(self._settings.gateway.processes)
        if not count:
            return None
        store.group_limits = SHORT_GROUPS
        return FrontProcesses(count, self._settings.limits, store, refusals)

    def create_endpoints(self, server: ServerContext, router: Router) -> list[Endpoint]:
        """Return the endpoints that the configuration asks for."""
        settings = self._settings
        endpoints: list[Endpoint] = []
        if settings.listen or settings.listen_tls:
            endpoints.append(XmppListener(server, router, settings.listen, settings.listen_tls))
        if settings.has_mqtt:
            endpoints += self._create_mqtt_endpoints(server)
        if settings.component is not None:
            # imported late: slixmpp's streams take memory
            from edge.server.xmpp.component.component import Component

            endpoints.append(Component(server, router, settings.component, self._warn, self._fail))
        return endpoints

    def _create_mqtt_endpoints(self, server: ServerContext) -> Iterator[Endpoint]:
        # imported late: without MQTT they take no memory
        from edge.server.mqtt.listener import MqttListener, WebSocketListener
        from edge.server.mqtt.traffic import Traffic

        settings, traffic = self._settings, Traffic()
        self._mqtt_traffic = traffic
        if settings.listen_mqtt or settings.listen_mqtt_tls:
            yield MqttListener(server, settings.listen_mqtt, settings.listen_mqtt_tls, traffic)
        if settings.listen_mqtt_ws:
            yield WebSocketListener(server, settings.listen_mqtt_ws, (), traffic)

    def _create_monitor(
        self, store: Store, endpoints: Endpoints, clock: Clock
    ) -> tuple[HealthMonitor, Callable[[], ProcessStatus]]:
        """Return the health monitor, and the function that returns the state of the process."""
        monitor = HealthMonitor(self._folder, self._settings, store, lambda: state(), self._warn)
        limits = self._settings.limits
        state = state_reader(limits, clock, endpoints, lambda: monitor.store_error)
        return monitor, state

    def _create_web(
        self,
        beats: HeartbeatSources,
        router: Router,
        monitor: HealthMonitor,
        state: Callable[[], ProcessStatus],
        connections: Callable[[], Awaitable[DeviceConnections]],
    ) -> StatusPage:
        def sources() -> Sources:
            # imported late: without a status page it takes no memory
            from edge.web.status_snapshot import Sources

            def requests() -> dict[str, int]:
                traffic = self._mqtt_traffic
                return {"xmpp": router.stanzas, "mqtt": 0 if traffic is None else traffic.received}

            return Sources(
                self._folder,
                self._settings,
                beats.store,
                state,
                monitor.check,
                requests,
                beats.meter,
                connections,
                self._counts,
            )

        return StatusPage(self._settings, sources, self._on_task_done)

    async def _start_web(self, web: StatusPage, store: Store, engine: Context) -> list[Address]:
        addresses = await web.start()
        self._observe_commits(store, engine, web)
        return addresses

    def _observe_commits(self, store: Store, engine: Context, web: StatusPage) -> None:
        """Set what runs before each commit: keep events for the status page, and notify people."""
        settings = self._settings
        observers: list[Callable[[Transaction], None]] = []
        if settings.web.listen:
            observers.append(web.keep_events)  # first, because notifications remove the events
        if settings.log.notify:
            observers.append(eventlog.notifier(engine, settings.log))

        def observe(tx: Transaction) -> None:
            for observer in observers:
                observer(tx)

        store.before_commit = observe if observers else lambda _tx: None

    async def _start_endpoints(
        self, endpoints: Endpoints, server: ServerContext, clock: Clock
    ) -> list[tuple[str, Address]]:
        """Accept devices and return the addresses; renew a certificate that is due.

        This comes before the health is judged, so that an expired certificate is not a failure.
        """
        addresses = await endpoints.start()  # fails if the present certificate cannot be read
        if server.tls is not None:
            gateway, now = self._settings.gateway, clock().wall
            await background_tasks.check_certificates(
                self._folder, gateway, now, server.store, server.refusals
            )
        return addresses

    async def _start_control(
        self,
        stack: AsyncExitStack,
        state: Callable[[], ProcessStatus],
        connections: Callable[[], Awaitable[DeviceConnections]],
        server: ServerContext,
    ) -> None:
        """Open the control socket; the gateway also works without it."""
        store, processes = server.store, server.front_processes
        control = ControlServer(
            self._folder,
            state,
            connections,
            self._reload,
            lambda queue: store.run(partial(present_members, queue=queue)),
            frozenset if processes is None else processes.ids,
            OperatorRequests(self._folder, server.engine, store, server.outputs),
        )
        stack.callback(control.stop)
        try:
            await control.start()
        except OSError as error:
            self._warn(
                f"the control socket cannot be opened: {error}; commands such as "
                "`fieldpost status` will report that the gateway is not running"
            )

    async def _unless_stopped(
        self, starting: Coroutine[None, None, list[tuple[str, Address]]]
    ) -> list[tuple[str, Address]] | None:
        """Wait for the endpoints to start; return `None` if the gateway is stopped first."""
        started = asyncio.create_task(starting)
        stopped = asyncio.create_task(self._stop.wait())
        await asyncio.wait({started, stopped}, return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        if started.done():
            return started.result()
        started.cancel()
        await asyncio.wait({started})
        return None

    async def _open_store(self, stack: AsyncExitStack, path: Path, clock: Clock) -> Store:
        limits = self._settings.limits
        store = await Store.open(path, clock, _unit_limits(limits), limits.database_bytes)
        stack.push_async_callback(store.close)
        store.on_broken = self._fail
        store.on_logged = self._on_logged
        store.on_counted = self._counts.add_messages
        return store

    def _start_uplink(
        self, stack: AsyncExitStack, backlog: StoreBacklog, clock: Clock
    ) -> tuple[UplinkConnection, Sealer]:
        centre = UplinkConnection(
            self._folder, self._settings, backlog, lambda: clock().wall / 1000, self._on_task_done
        )
        stack.push_async_callback(centre.stop)
        centre.start()
        sealer = Sealer(
            self._settings.gateway.domain,
            backlog,
            backlog.facts,
            _batch_limits(self._settings.uplink),
            clock=lambda: clock().service,
            on_sealed=centre.wake,
            send_notice=backlog.log_notice,
        )
        self._run_task(stack, sealer.run(), "sealer")
        return centre, sealer

    def _facts(self, clock: Clock) -> GatewayFacts:
        system = os.uname()
        return GatewayFacts(
            self._folder,
            clock,
            boot=clock.run.boot,
            firmware=f"{system.sysname} {system.release} {system.machine}",
            software=f"fieldpost {__version__}",
            config_hash=hashlib.sha256(load.read(self._folder)).digest(),
        )

    def _run_task(
        self, stack: AsyncExitStack, work: Coroutine[None, None, None], name: str
    ) -> None:
        """Run a task until the gateway stops; if the task fails, the gateway stops."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        task.add_done_callback(self._on_task_done)

        async def stop() -> None:
            task.cancel()
            with suppress(asyncio.CancelledError, Exception):  # handled by `_on_task_done`
                await task

        stack.push_async_callback(stop)

    def _on_task_done(self, task: asyncio.Task[Any]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        if self._failure is None:
            self._failure = error
        self._stop.set()

    async def _write_closing_event(
        self, beats: HeartbeatSources, sealer: Sealer, backlog: StoreBacklog
    ) -> None:
        if isinstance(self._failure, StoreBroken):
            return
        try:
            await setup.seal_and_stop(beats, sealer, backlog)
            if self._settings.uplink.enrolment or self._settings.uplink.folder:
                with suppress(TimeoutError):
                    await asyncio.wait_for(backlog.empty(), LAST_UPLOAD_TIME)
        except StoreBroken as error:
            self._fail(error)
        except (StoreError, BacklogUnavailable) as error:
            text = f"the closing event was not written: {error}"
            full = error if isinstance(error, StoreFull) else error.__cause__
            if isinstance(full, StoreFull):
                self._fail(StoreFull(text, full.rule))
            else:
                self._fail(StoreError(text))


async def _device_connections(
    endpoints: Endpoints, store: Store, clock: Clock
) -> DeviceConnections:
    seen: dict[str, int] = {}
    with suppress(StoreError):  # then the times in the database are shown
        seen = await store.run(last_seen.unsaved)
    return DeviceConnections(sessions=endpoints.connected_sessions(clock().wall), seen=seen)


def _share_arena() -> None:
    """Let all threads allocate memory from one arena of glibc; call this before threads start.

    By default each thread has its own, which keeps its largest size. Threads seldom allocate at the
    same time, because of the interpreter's lock.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # musl has none, and no arenas
    if mallopt is not None:
        mallopt(M_ARENA_MAX, 1)


def _tune_interpreter() -> None:
    gc.freeze()  # modules and tables of handlers stay for ever
    gc.set_threshold(GC_THRESHOLD)
    sys.setswitchinterval(SWITCH_INTERVAL)


def _unit_limits(limits: Limits) -> UnitLimits:
    return UnitLimits(limits.waiting_units, limits.waiting_bytes)


def _batch_limits(uplink: Uplink) -> BatchLimits:
    return BatchLimits(
        uplink.segment_events, uplink.segment_age, uplink.segment_bytes, uplink.urgent_age
    )


async def _prepare_descriptors(target: Config) -> Change:
    _raise_descriptors(target.limits.sessions, target.limits.unauthenticated)
    return Change()


async def _prepare_disk(folder: Path, target: Config) -> Change:
    _check_disk(folder, target.limits)
    return Change()


async def _prepare_endpoints(endpoints: Endpoints, _target: Config) -> Change:
    use = endpoints.prepare_reload()

    async def apply() -> None:
        use()

    return Change(apply)


async def _prepare_access(settings: Config, store: Store, target: Config) -> Change:
    async def apply() -> None:
        for hook in store.on_changed:  # rights are checked again, as after an operator's command
            hook()

    return Change(apply) if settings.access != target.access else Change()


def _begin(tx: Transaction, settings: Config, start: Start, run: Run, router: Router) -> None:
    meta.epoch(tx)  # without it, no event can be written: the start fails
    events.set_urgent(tx, levels.at_least(settings.uplink.urgent_level))
    events.append(tx, events.SYSTEM, timekeeping.start_event(start, settings.uplink.heartbeat))
    status_events.log_migration(tx)
    clock_store.save(tx, start.saved)
    clock_store.save_progress(tx, run)
    last_seen.settle(tx)
    timers.run(router.context, tx)


def _start_timer(store: Store, clock: Clock, router: Router) -> Timer:
    def unit(tx: Transaction) -> None:
        timers.run(router.context, tx)

    def fire() -> None:
        store.submit(unit, fired, heavy=True)

    def fired(outcome: object) -> None:
        if isinstance(outcome, StoreError):  # such as a full disk: nothing was done
            timer.set(clock().service + TIMER_RETRY)

    timer = Timer(clock, fire)
    store.on_due = timer.set
    return timer
