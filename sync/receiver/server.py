"""The receiver's process: its parts, the listening sockets, signals and a clean stop.

Puts the parts together; what a request means is `sync.receiver.http_api`'s.
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

from sync.common import sd_notify
from sync.common.errors import FleetError
from sync.common.fleet_folder import FleetFolder
from sync.common.json_log import log_event
from sync.receiver.authentication import Authenticator
from sync.receiver.disk_quota import DiskQuota
from sync.receiver.gateways import GatewayRegistry
from sync.receiver.http_api import HttpApi
from sync.receiver.http_log import HttpErrorLog
from sync.receiver.landing import AsideLimits, Landing
from sync.receiver.limits import ReceiverLimits
from sync.receiver.listener import ConnectionRegistry, open_listener
from sync.receiver.log_throttle import LogThrottle
from sync.receiver.metrics import Metrics
from sync.receiver.monitor import MonitoringPages, serve_monitoring
from sync.receiver.partial_uploads import PartialUploadLimits, PartialUploads
from sync.receiver.pki import Authority
from sync.receiver.proxy import ReverseProxy
from sync.receiver.repeating import repeat_in_background
from sync.receiver.threads import ThreadRunner
from sync.receiver.tls import (
    CertificateFiles,
    ReloadingCertificate,
    ensure_own_certificate,
    own_certificate_files,
)
from sync.receiver.uploads import Uploads

TEMPORARIES = "serve"


@dataclass(frozen=True, slots=True)
class ListenAddress:
    """Where to listen: port 0 takes a free one."""

    host: str
    port: int


@contextlib.asynccontextmanager
async def running_receiver(
    folder: FleetFolder,
    listen: ListenAddress,
    road: CertificateFiles | ReverseProxy,
    limits: ReceiverLimits,
    metrics: socket.socket | None = None,
) -> AsyncIterator[tuple[str, int]]:
    """Receive segments while the context lasts; gives the address that is listened on.

    They come over TLS, with the certificate of `road`, or by a proxy. What is counted is told at
    the listening socket `metrics`, if there is one. At the end no request is begun, those in
    progress have `limits.grace_s`, and all is closed. Raises FleetError.
    """
    authority = Authority(folder.pki).ca
    way = road if isinstance(road, ReverseProxy) else ReloadingCertificate(road, authority).context
    for fault in GatewayRegistry(folder).survey().faults:
        log_event(logging.ERROR, "damaged", text=fault)
    with ThreadPoolExecutor(limits.threads, "landing") as pool:
        parts = _assemble(folder, road, limits, ThreadRunner(pool))
        async with contextlib.AsyncExitStack() as stack:
            for job in parts.jobs:
                await stack.enter_async_context(job)
            if metrics is not None:
                await stack.enter_async_context(serve_monitoring(parts.monitor, metrics))
            yield await stack.enter_async_context(_served(parts, listen, way, limits))


class _Parts(NamedTuple):
    """What a running receiver is made of."""

    receiver: HttpApi
    bodies: Uploads
    connections: ConnectionRegistry
    seldom: LogThrottle
    http_log: HttpErrorLog
    monitor: MonitoringPages
    jobs: tuple[contextlib.AbstractAsyncContextManager[None], ...]


def _assemble(
    folder: FleetFolder,
    road: CertificateFiles | ReverseProxy,
    limits: ReceiverLimits,
    in_thread: ThreadRunner,
) -> _Parts:
    landing = Landing(folder, TEMPORARIES, AsideLimits(limits.aside_files, limits.aside_bytes))
    bound = PartialUploadLimits(limits.partials_per_gateway, limits.partial_age_s, limits.sums)
    partials = PartialUploads(folder, bound)
    room = DiskQuota(folder, limits.reserve_bytes, limits.landing_bytes)
    gateways, metrics = GatewayRegistry(folder), Metrics()
    proxy, certificate = (
        (road, None) if isinstance(road, ReverseProxy) else (None, road.certificate)
    )
    connections = ConnectionRegistry(limits, metrics, behind=proxy is not None)
    seldom = LogThrottle(limits.log_lines_per_s, limits.rate_window_s)
    authority = Authority(folder.pki).ca.read_bytes()
    callers = Authenticator(gateways, authority, connections, in_thread, proxy)
    bodies = Uploads(landing, partials, metrics, limits, in_thread)
    return _Parts(
        HttpApi(folder, callers, landing, bodies, room, metrics, limits, in_thread, seldom),
        bodies,
        connections,
        seldom,
        HttpErrorLog(seldom, metrics),
        MonitoringPages(
            metrics, bodies, connections, partials, room, gateways, certificate, in_thread
        ),
        (
            repeat_in_background(lambda: _clean(landing, partials), limits.clean_every_s, "clean"),
            repeat_in_background(room.measure, limits.measure_every_s, "measure"),
        ),
    )


def _clean(landing: Landing, partials: PartialUploads) -> None:
    """Remove what dead receivers left, and beginnings that are too old."""
    left = landing.clean() + partials.clean()
    if left:
        log_event(logging.INFO, "cleaned", text="removed bodies that were cut off", count=left)


@contextlib.asynccontextmanager
async def _served(
    parts: _Parts, listen: ListenAddress, way: ssl.SSLContext | ReverseProxy, limits: ReceiverLimits
) -> AsyncIterator[tuple[str, int]]:
    behind = isinstance(way, ReverseProxy)
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
        listener = bind_socket(listen)
        address = listener.getsockname()[:2]
        server = runner.server
        assert server is not None  # noqa: S101
        try:
            counted = parts.connections, parts.seldom
            async with open_listener(listener, server, way, limits, *counted):
                yield address
        finally:
            await parts.bodies.drain()
    finally:
        await runner.cleanup()


def bind_socket(listen: ListenAddress) -> socket.socket:
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
    listen: ListenAddress,
    road: CertificateFiles | ReverseProxy,
    limits: ReceiverLimits,
    ready: Callable[[dict[str, tuple[str, int]]], None],
    metrics: ListenAddress | None = None,
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
        if road == own_certificate_files(folder):
            renewal = repeat_in_background(
                lambda: ensure_own_certificate(folder), limits.renew_every_s, "certificate"
            )
            await stack.enter_async_context(renewal)
        told = None if metrics is None else stack.enter_context(bind_socket(metrics))
        receiving = running_receiver(folder, listen, road, limits, told)
        name = "http" if isinstance(road, ReverseProxy) else "https"
        addresses = {name: await stack.enter_async_context(receiving)}
        if told is not None:
            addresses["metrics"] = told.getsockname()[:2]
        ready(addresses)
        sd_notify.notify("READY=1")
        await stop.wait()
        sd_notify.notify("STOPPING=1")
