"""Compose and run the receiver: sockets, background tasks, signals and a clean stop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Sequence
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
from sync.receiver.incoming_files import PartialUploads
from sync.receiver.landing import Landing
from sync.receiver.limits import ReceiverLimits
from sync.receiver.listener import ConnectionRegistry, Listener
from sync.receiver.log_throttle import HttpErrorLog, LogThrottle
from sync.receiver.metrics import Metrics
from sync.receiver.monitoring import MonitoringPages, serve_monitoring
from sync.receiver.periodic_ingest import IngestPlan, periodic_ingest
from sync.receiver.pki import Authority
from sync.receiver.proxy import ReverseProxy
from sync.receiver.remote_landing import SPOOL_FOLDER, RemoteLanding, Spool, require_empty
from sync.receiver.threads import ThreadRunner
from sync.receiver.tls import (
    CertificateFiles,
    ReloadingCertificate,
    ensure_own_certificate,
    own_certificate_files,
)
from sync.receiver.uploads import Uploads
from sync.storage.local import LocalStorage
from sync.storage.storage import Storage


@dataclass(frozen=True, slots=True)
class ListenAddress:
    """An address to listen on; port 0 selects a free port."""

    host: str
    port: int


@contextlib.asynccontextmanager
async def running_receiver(
    folder: FleetFolder,
    listen: ListenAddress,
    frontend: CertificateFiles | ReverseProxy,
    limits: ReceiverLimits,
    metrics_socket: socket.socket | None = None,
    remote: Storage | None = None,
) -> AsyncIterator[tuple[str, int]]:
    """Receive segments while the context lasts; yield the listening address.

    `frontend` is the certificate for TLS, or the proxy through which gateways connect. Metrics are
    served at the listening socket `metrics_socket`, if given. Segments land in the fleet folder, or
    in the storage `remote`, which may be away. At the end, new requests are refused, requests in
    progress get `limits.drain_timeout_s` to finish, and all sockets are closed. Raises FleetError.
    """
    client_ca = Authority(folder.pki).ca
    if isinstance(frontend, ReverseProxy):
        tls_or_proxy: ssl.SSLContext | ReverseProxy = frontend
    else:
        tls_or_proxy = ReloadingCertificate(frontend, client_ca).context
    for fault in GatewayRegistry(folder).survey().faults:
        log_event(logging.ERROR, "damaged", text=fault)
    threads = limits.threads if remote is None else limits.uploads
    with ThreadPoolExecutor(threads, "landing") as pool:
        parts = _compose(folder, frontend, limits, remote, ThreadRunner(pool))
        async with contextlib.AsyncExitStack() as stack:
            if parts.spool is not None:
                stack.enter_context(parts.spool.opened())
            for task in parts.background_tasks:
                await stack.enter_async_context(task)
            if metrics_socket is not None:
                await stack.enter_async_context(serve_monitoring(parts.monitoring, metrics_socket))
            yield await stack.enter_async_context(_serve_http(parts, listen, tls_or_proxy, limits))


class _Parts(NamedTuple):
    api: HttpApi
    uploads: Uploads
    connections: ConnectionRegistry
    log: LogThrottle
    http_error_log: HttpErrorLog
    monitoring: MonitoringPages
    spool: Spool | None
    background_tasks: Sequence[contextlib.AbstractAsyncContextManager[None]]


def _compose(
    folder: FleetFolder,
    frontend: CertificateFiles | ReverseProxy,
    limits: ReceiverLimits,
    remote: Storage | None,
    in_thread: ThreadRunner,
) -> _Parts:
    spool = None
    if limits.spool_bytes is None:
        require_empty(folder.incoming / SPOOL_FOLDER)
    else:
        spool = Spool(folder.incoming / SPOOL_FOLDER, limits.spool_bytes)
    segments = remote or LocalStorage(folder.root)
    remote_landing = RemoteLanding(remote, limits, spool) if remote is not None else None
    landing = remote_landing or Landing(segments, limits)
    partials = PartialUploads(folder, limits)
    quota = DiskQuota(folder.incoming, segments, limits.reserve_bytes, limits.landing_quota_bytes)
    gateways, metrics = GatewayRegistry(folder), Metrics()
    proxy = frontend if isinstance(frontend, ReverseProxy) else None
    certificate = None if isinstance(frontend, ReverseProxy) else frontend.certificate
    connections = ConnectionRegistry(limits, metrics, behind_proxy=proxy is not None)
    log = LogThrottle(limits.log_lines_per_s, limits.rate_window_s)
    authority = Authority(folder.pki).ca.read_bytes()
    authenticator = Authenticator(gateways, authority, connections, in_thread, proxy)
    uploads = Uploads(partials, metrics, limits, in_thread)
    tasks = [
        repeat_in_background(lambda: _clean(landing, partials), limits.cleanup_interval_s, "clean"),
        repeat_in_background(
            quota.measure, limits.quota_interval_s, "measure", required=remote is None
        ),
    ]
    if remote_landing is not None:
        tasks.append(repeat_in_background(remote_landing.catch_up, limits.retry_after_s, "storage"))
    return _Parts(
        HttpApi(folder, authenticator, landing, uploads, quota, metrics, limits, in_thread, log),
        uploads,
        connections,
        log,
        HttpErrorLog(log, metrics),
        MonitoringPages(
            *(metrics, uploads, connections, partials, quota, remote_landing, gateways),
            *(certificate, in_thread),
        ),
        spool,
        tasks,
    )


def _clean(landing: Landing, partials: PartialUploads) -> None:
    removed = landing.clean() + partials.clean()
    if removed:
        log_event(logging.INFO, "cleaned", text="removed abandoned uploads", count=removed)


@contextlib.asynccontextmanager
async def repeat_in_background(
    job: Callable[[], object], every_s: float, event: str, *, required: bool = True
) -> AsyncIterator[None]:
    """Call `job` in a thread once, then every `every_s` seconds while the context lasts.

    A failure of the first call is raised if `required`. FleetError and OSError of other calls are
    logged as `event`.
    """
    if required:
        await asyncio.to_thread(job)
    else:
        await _try(job, event)
    task = asyncio.create_task(_repeat(job, every_s, event))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _repeat(job: Callable[[], object], every_s: float, event: str) -> None:
    while True:
        await asyncio.sleep(every_s)
        await _try(job, event)


async def _try(job: Callable[[], object], event: str) -> None:
    try:
        await asyncio.to_thread(job)
    except (FleetError, OSError) as error:
        log_event(logging.ERROR, event, text=str(error))


@contextlib.asynccontextmanager
async def _serve_http(
    parts: _Parts,
    listen: ListenAddress,
    frontend: ssl.SSLContext | ReverseProxy,
    limits: ReceiverLimits,
) -> AsyncIterator[tuple[str, int]]:
    is_proxied = isinstance(frontend, ReverseProxy)
    line_bytes = limits.proxied_header_line_bytes if is_proxied else limits.header_line_bytes
    runner = web.AppRunner(
        parts.api.application(),
        access_log=None,
        auto_decompress=False,
        keepalive_timeout=limits.idle_timeout_s,
        lingering_time=limits.linger_s,
        shutdown_timeout=limits.close_timeout_s,
        logger=parts.http_error_log,
        max_headers=limits.header_fields,
        max_line_size=line_bytes,
        max_field_size=line_bytes,
    )
    await runner.setup()
    try:
        listener = bind_socket(listen)
        address = listener.getsockname()[:2]
        server = runner.server
        assert server is not None  # noqa: S101 # set by setup()
        try:
            async with Listener(listener, server, frontend, limits, parts.connections, parts.log):
                yield address
        finally:
            await parts.uploads.drain()
    finally:
        await runner.cleanup()


def bind_socket(listen: ListenAddress) -> socket.socket:
    """Open a listening socket. Raises FleetError with the reason if that fails."""
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
    frontend: CertificateFiles | ReverseProxy,
    limits: ReceiverLimits,
    on_ready: Callable[[dict[str, tuple[str, int]]], None],
    metrics_listen: ListenAddress | None = None,
    ingest: IngestPlan | None = None,
    remote: Storage | None = None,
) -> None:
    """Receive segments until SIGTERM or SIGINT, then stop cleanly.

    Segments land in `remote`, if given (see `running_receiver`). With `ingest`, they are also
    loaded into the tables. `on_ready` is called with the listening
    addresses by name, and systemd is notified. A certificate that the centre's own authority issued
    is renewed while the receiver runs. Raises FleetError when the receiver cannot start, OSError
    when systemd's notification socket is missing.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with contextlib.AsyncExitStack() as stack:
        if frontend == own_certificate_files(folder):
            renewal = repeat_in_background(
                lambda: ensure_own_certificate(folder), limits.renewal_interval_s, "certificate"
            )
            await stack.enter_async_context(renewal)
        metrics_socket = None
        if metrics_listen is not None:
            metrics_socket = stack.enter_context(bind_socket(metrics_listen))
        receiver = running_receiver(folder, listen, frontend, limits, metrics_socket, remote)
        name = "http" if isinstance(frontend, ReverseProxy) else "https"
        addresses = {name: await stack.enter_async_context(receiver)}
        if metrics_socket is not None:
            addresses["metrics"] = metrics_socket.getsockname()[:2]
        if ingest is not None:
            segments = remote or LocalStorage(folder.root)
            await stack.enter_async_context(periodic_ingest(segments, ingest))
        on_ready(addresses)
        sd_notify.notify("READY=1")
        await stop.wait()
        sd_notify.notify("STOPPING=1")
