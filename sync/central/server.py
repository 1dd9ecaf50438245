"""The receiver's process: TLS, the listening socket, signals and a clean stop.

Puts the parts together; what a request means is `sync.central.receiver`'s.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import logging
import signal
import socket
import ssl
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aiohttp import web

from sync.central.bodies import Bodies
from sync.central.callers import Callers
from sync.central.door import open_door
from sync.central.errors import FleetError
from sync.central.gateways import Gateways
from sync.central.landing import AsideBound, Landing
from sync.central.limits import ReceiverLimits
from sync.central.logs import tell
from sync.central.partial import PartialBound, Partials
from sync.central.pki import Authority
from sync.central.proxy import Proxy
from sync.central.receiver import Receiver
from sync.central.repeating import repeated
from sync.central.room import Room
from sync.central.threads import Threads

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from sync.central.folders import FleetFolder

KIND = "serve"


@dataclass(frozen=True, slots=True)
class Listen:
    """Where to listen: port 0 takes a free one."""

    host: str
    port: int


@dataclass(frozen=True, slots=True)
class Chain:
    """The certificate that is shown to gateways, with those that vouch for it, and its key: PEM."""

    certificate: Path
    key: Path


class Certificate:
    """A TLS context that follows its files: a new certificate is shown by the next handshake.

    Clients may show one of the authority in the file `clients`, and need not.
    """

    def __init__(self, chain: Chain, clients: Path) -> None:
        self._chain = chain
        self._clients = clients
        self._seen = self._stamp()
        self._current = self._load()
        self.context = self._load()
        self.context.sni_callback = self._choose

    def _stamp(self) -> list[tuple[int, int]]:
        """What differs once a file was replaced; either of the two may come first."""
        found = (path.stat() for path in (self._chain.certificate, self._chain.key))
        return [(each.st_mtime_ns, each.st_ino) for each in found]

    def _load(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            context.load_cert_chain(self._chain.certificate, self._chain.key)
        except ssl.SSLError as error:
            msg = f"{self._chain.certificate} and {self._chain.key} are no pair: {error.reason}"
            raise FleetError(msg) from error
        context.load_verify_locations(self._clients)
        context.verify_mode = ssl.CERT_OPTIONAL
        return context

    def _choose(
        self, connection: ssl.SSLObject, name: str | None, context: ssl.SSLContext
    ) -> int | None:
        """Called by a handshake. A certificate that cannot be loaded leaves the one before."""
        del name, context
        try:
            stamp = self._stamp()
            if stamp != self._seen:
                self._seen = stamp
                self._current = self._load()
                tell(logging.INFO, "certificate", text="a new certificate is in use")
        except (OSError, FleetError) as error:
            tell(logging.ERROR, "certificate", text=str(error))
        connection.context = self._current
        return None


def own_chain(folder: FleetFolder) -> Chain:
    """The certificate of the centre's own authority, made anew first if it ends soon."""
    with folder.changing():
        Authority(folder.pki).ensure((), dt.datetime.now(dt.UTC))
    return _own(folder)


def _own(folder: FleetFolder) -> Chain:
    authority = Authority(folder.pki)
    return Chain(authority.server, authority.server_key)


@contextlib.asynccontextmanager
async def listening(
    folder: FleetFolder, listen: Listen, road: Chain | Proxy, limits: ReceiverLimits
) -> AsyncIterator[tuple[str, int]]:
    """Receive segments while the context lasts; gives the address that is listened on.

    They come over TLS, with the certificate of `road`, or by a proxy.

    At its end no request is begun, those in progress have `limits.grace_s`, and all is closed.
    """
    landing = Landing(folder, KIND, AsideBound(limits.aside_files, limits.aside_bytes))
    partials = Partials(folder, PartialBound(limits.partials_per_gateway, limits.partial_age_s))
    room = Room(folder, limits.reserve_bytes, limits.landing_bytes)
    for fault in Gateways(folder).survey().faults:
        tell(logging.ERROR, "damaged", text=fault)
    authority = Authority(folder.pki).ca
    proxy = road if isinstance(road, Proxy) else None
    way = proxy or Certificate(road, authority).context
    with ThreadPoolExecutor(limits.threads, "landing") as pool:
        in_thread = Threads(pool)
        bodies = Bodies(landing, partials, limits, in_thread)
        callers = Callers(Gateways(folder), authority.read_bytes(), in_thread, proxy)
        receiver = Receiver(folder, callers, landing, bodies, room, limits, in_thread)
        async with (
            repeated(lambda: _clean(landing, partials), limits.clean_every_s, "clean"),
            repeated(room.measure, limits.measure_every_s, "measure"),
            _served(receiver, bodies, listen, way, limits) as address,
        ):
            yield address


def _clean(landing: Landing, partials: Partials) -> None:
    """Remove what dead receivers left, and beginnings that are too old."""
    left = landing.clean() + partials.clean()
    if left:
        tell(logging.INFO, "cleaned", text="removed bodies that were cut off", count=left)


@contextlib.asynccontextmanager
async def _served(
    receiver: Receiver,
    bodies: Bodies,
    listen: Listen,
    way: ssl.SSLContext | Proxy,
    limits: ReceiverLimits,
) -> AsyncIterator[tuple[str, int]]:
    runner = web.AppRunner(
        receiver.application(),
        access_log=None,
        auto_decompress=False,
        keepalive_timeout=limits.idle_s,
        lingering_time=limits.linger_s,
        shutdown_timeout=limits.close_s,
    )
    await runner.setup()
    try:
        listener = _bind(listen)
        address = listener.getsockname()[:2]
        server = runner.server
        assert server is not None  # noqa: S101
        try:
            async with open_door(listener, server, way, limits):
                yield address
        finally:
            await bodies.drain()
    finally:
        await runner.cleanup()


def _bind(listen: Listen) -> socket.socket:
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
    ready: Callable[[tuple[str, int]], None],
) -> None:
    """Receive segments until SIGTERM or SIGINT, then stop cleanly.

    `ready` is called with the address once it is listened on. The certificate of the centre's own
    authority is renewed while it runs. Raises FleetError when the receiver cannot start.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with contextlib.AsyncExitStack() as stack:
        if road == _own(folder):
            renewal = repeated(lambda: own_chain(folder), limits.renew_every_s, "certificate")
            await stack.enter_async_context(renewal)
        ready(await stack.enter_async_context(listening(folder, listen, road, limits)))
        await stop.wait()
