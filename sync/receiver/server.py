"""The receiver's process: its parts, the listening sockets, signals and a clean stop.

Puts the parts together; what a request means is `sync.receiver.receiver`'s.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple

from aiohttp import web

from sync.common.errors import FleetError
from sync.common.fleet_folder import FleetFolder
from sync.common.json_log import tell
from sync.receiver import systemd
from sync.receiver.authentication import Callers
from sync.receiver.connections import Connections
from sync.receiver.disk_quota import Room
from sync.receiver.gateways import Gateways
from sync.receiver.http_log import HttpLog
from sync.receiver.landing import AsideBound, Landing
from sync.receiver.limits import ReceiverLimits
from sync.receiver.listener import open_door
from sync.receiver.log_throttle import Seldom
from sync.receiver.metrics import Metrics
from sync.receiver.monitor import Monitor, monitored
from sync.receiver.partial_uploads import PartialBound, Partials
from sync.receiver.pki import Authority
from sync.receiver.proxy import Proxy
from sync.receiver.receiver import Receiver
from sync.receiver.repeating import repeated
from sync.receiver.threads import Threads
from sync.receiver.tls import Certificate, Chain, own_chain, own_files
from sync.receiver.uploads import Bodies

KIND = "serve"


@dataclass(frozen=True, slots=True)
class Listen:
    """Where to listen: port 0 takes a free one."""

    host: str
    port: int


@contextlib.asynccontextmanager
async def listening(
    folder: FleetFolder,
    listen: Listen,
    road: Chain | Proxy,
    limits: ReceiverLimits,
    metrics: socket.socket | None = None,
) -> AsyncIterator[tuple[str, int]]:
    """Receive segments while the context lasts; gives the address that is listened on.

    They come over TLS, with the certificate of `road`, or by a proxy. What is counted is told at
    the listening socket `metrics`, if there is one. At the end no request is begun, those in
    progress have `limits.grace_s`, and all is closed. Raises FleetError.
    """
    authority = Authority(folder.pki).ca
    way = road if isinstance(road, Proxy) else Certificate(road, authority).context
    for fault in Gateways(folder).survey().faults:
        tell(logging.ERROR, "damaged", text=fault)
    with ThreadPoolExecutor(limits.threads, "landing") as pool:
        parts = _assemble(folder, road, limits, Threads(pool))
        async with contextlib.AsyncExitStack() as stack:
            for job in parts.jobs:
                await stack.enter_async_context(job)
            if metrics is not None:
                await stack.enter_async_context(monitored(parts.monitor, metrics))
            yield await stack.enter_async_context(_served(parts, listen, way, limits))


class _Parts(NamedTuple):
    """What a running receiver is made of."""

    receiver: Receiver
    bodies: Bodies
    connections: Connections
    seldom: Seldom
    http_log: HttpLog
    monitor: Monitor
    jobs: tuple[contextlib.AbstractAsyncContextManager[None], ...]


def _assemble(
    folder: FleetFolder, road: Chain | Proxy, limits: ReceiverLimits, in_thread: Threads
) -> _Parts:
    landing = Landing(folder, KIND, AsideBound(limits.aside_files, limits.aside_bytes))
    bound = PartialBound(limits.partials_per_gateway, limits.partial_age_s, limits.sums)
    partials = Partials(folder, bound)
    room = Room(folder, limits.reserve_bytes, limits.landing_bytes)
    gateways, metrics = Gateways(folder), Metrics()
    proxy, certificate = (road, None) if isinstance(road, Proxy) else (None, road.certificate)
    connections = Connections(limits, metrics, behind=proxy is not None)
    seldom = Seldom(limits.log_lines_per_s, limits.rate_window_s)
    authority = Authority(folder.pki).ca.read_bytes()
    callers = Callers(gateways, authority, connections, in_thread, proxy)
    bodies = Bodies(landing, partials, metrics, limits, in_thread)
    return _Parts(
        Receiver(folder, callers, landing, bodies, room, metrics, limits, in_thread, seldom),
        bodies,
        connections,
        seldom,
        HttpLog(seldom, metrics),
        Monitor(metrics, bodies, connections, partials, room, gateways, certificate, in_thread),
        (
            repeated(lambda: _clean(landing, partials), limits.clean_every_s, "clean"),
            repeated(room.measure, limits.measure_every_s, "measure"),
        ),
    )


def _clean(landing: Landing, partials: Partials) -> None:
    """Remove what dead receivers left, and beginnings that are too old."""
    left = landing.clean() + partials.clean()
    if left:
        tell(logging.INFO, "cleaned", text="removed bodies that were cut off", count=left)


@contextlib.asynccontextmanager
async def _served(
    parts: _Parts, listen: Listen, way: ssl.SSLContext | Proxy, limits: ReceiverLimits
) -> AsyncIterator[tuple[str, int]]:
    behind = isinstance(way, Proxy)
    line = limits.proxied_line_bytes if behind else limits.head_line_bytes
    runner = web.AppRunner(
        parts.receiver.application(),
        access_log=None,
        auto_decompress=False,
        keepalive_timeout=limits.idle_s,
        lingering_time=limits.linger_s,
        shutdown_timeout=limits.close_s,
        logger=parts.http_log,
        max_headers=limits.head_lines,
        max_line_size=line,
        max_field_size=line,
    )
    await runner.setup()
    try:
        listener = bind(listen)
        address = listener.getsockname()[:2]
        server = runner.server
        assert server is not None  # noqa: S101
        try:
            counted = parts.connections, parts.seldom
            async with open_door(listener, server, way, limits, *counted):
                yield address
        finally:
            await parts.bodies.drain()
    finally:
        await runner.cleanup()


def bind(listen: Listen) -> socket.socket:
    """Open a listening socket. Raises FleetError that says why it cannot be."""
    try:
        found = socket.getaddrinfo(
            listen.host, listen.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        family, _, _, _, address = found[0]
        return socket.create_server(address[:2], family=family, backlog=128)
    except OSError as error:
        msg = f"cannot listen on {listen.host}:{listen.port}: {error.strerror or error}"
        raise FleetError(msg) from error


async def serve(
    folder: FleetFolder,
    listen: Listen,
    road: Chain | Proxy,
    limits: ReceiverLimits,
    ready: Callable[[dict[str, tuple[str, int]]], None],
    metrics: Listen | None = None,
) -> None:
    """Receive segments until SIGTERM or SIGINT, then stop cleanly.

    `ready` is called with the addresses, by name, once they are listened on, and systemd is told.
    The certificate of the centre's own authority is renewed while it runs. Raises FleetError when
    it cannot start, OSError when the socket that systemd named is not there.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with contextlib.AsyncExitStack() as stack:
        if road == own_files(folder):
            renewal = repeated(lambda: own_chain(folder), limits.renew_every_s, "certificate")
            await stack.enter_async_context(renewal)
        told = None if metrics is None else stack.enter_context(bind(metrics))
        receiving = listening(folder, listen, road, limits, told)
        name = "http" if isinstance(road, Proxy) else "https"
        addresses = {name: await stack.enter_async_context(receiving)}
        if told is not None:
            addresses["metrics"] = told.getsockname()[:2]
        ready(addresses)
        systemd.notify("READY=1")
        await stop.wait()
        systemd.notify("STOPPING=1")
