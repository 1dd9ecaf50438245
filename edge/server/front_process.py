"""A front process: it has the sockets of devices, and does TLS, parsing and writing for the core.

It has no database, no rights and no secret but the key of the gateway's certificate. What
peers send before they have logged in is parsed here. It is started with one end of a socket pair as
standard input, over which the core says what it listens on (`messages.Begin`), and ends when the
core closes the other end.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, cast

import msgspec
from msgspec.structs import force_setattr

from edge.config.limits import Limits
from edge.errors import SetupError
from edge.ops.certificates import pki
from edge.server import socket_side
from edge.server.confinement import confine, end_before_parent, end_with_parent, set_name
from edge.server.link.batches import Batches
from edge.server.link.linked_handler import LinkedHandler
from edge.server.link.messages import (
    MAX_CONNECTIONS,
    VERSION,
    Abort,
    Begin,
    CertificateFiles,
    Close,
    Credit,
    Figures,
    Limit,
    Listening,
    Ready,
    Release,
    Reset,
    SetLimit,
    StartTls,
    StopAccepting,
    ToConnection,
    Write,
    decode_from_core,
)
from edge.server.socket_side import BACKLOG, SocketSide
from edge.server.tls import TlsContexts, TlsServer
from edge.server.tls_client_hello import ClientHelloReader
from edge.server.wire import WireContext

NAME: Final = "fieldpost-front"
"""The name by which ps(1) shows the process."""

_NO_FILE: Final = Path("/proc/self/fd/none")

MAX_UNANSWERED: Final = 512
"""Connections without a session that this process has beyond `limits.unauthenticated`, because the
core has not answered yet: as many as connect at once after a power cut. While the core is too busy,
further ones are closed and counted. Each takes 7 KB."""

CHECK_TIME: Final = 1.0
"""Seconds between two checks of what has left the write buffers, and between two messages with
figures, which show the core that this process does not hang."""

IDLE_CHECKS: Final = 30
"""Checks between two of all connections; parsers without input since the last one are freed."""

GC_THRESHOLD: Final = 20_000
"""New objects until a garbage collection, as in the core."""


class FrontConnections:
    """The connections of this process."""

    def __init__(self, stop: Callable[[Exception | None], None]) -> None:
        self._stop = stop
        self.link = Batches(self._on_batch, self._on_pause, stop, is_eager=True)
        self._loop = asyncio.get_running_loop()
        self._context: WireContext | None = None
        self._files: MemoryFiles | None = None
        self._tls: TlsServer | None = None
        self._servers: list[asyncio.Server] = []
        self._handlers: dict[int, LinkedHandler] = {}
        self._unbound: set[int] = set()  # connections without a session
        self._next = 0
        self._bad_certificates = self._refused = 0
        self._checks = 0
        self._is_paused = False
        self._is_stopping = False

    # From the core

    def _on_batch(self, data: memoryview) -> None:
        for message in decode_from_core(data):
            if isinstance(message, Begin | CertificateFiles | Limit | StopAccepting):
                self._control(message)
            elif (handler := self._handlers.get(message.connection)) is not None:
                try:
                    _act(handler, message)
                except Exception as error:  # ends this connection alone
                    text = "a message to a device could not be handled"
                    self._loop.call_exception_handler({"message": text, "exception": error})
                    handler.wire.abort()

    def _control(self, message: Begin | CertificateFiles | Limit | StopAccepting) -> None:
        if isinstance(message, Begin):
            context, tls_server = self._prepare(message)
            serving = self._loop.create_task(self._serve(message.listening, context, tls_server))
            serving.add_done_callback(self._on_served)
        elif isinstance(message, CertificateFiles):
            self._use(message)
        elif isinstance(message, Limit):
            self._set_limits(msgspec.convert(message.limits, Limits))
        else:
            self._is_stopping = True
            for server in self._servers:
                server.close()

    def _set_limits(self, limits: Limits) -> None:
        """Change the limits in place, for all who hold them."""
        if self._context is not None and self._tls is not None:
            for name in limits.__struct_fields__:
                force_setattr(self._context.limits, name, getattr(limits, name))
            self._tls.use_limits()

    def _on_pause(self, is_paused: bool) -> None:
        """Pass on no input while the core does not read; what passes for a moment is bounded by
        the credits."""
        self._is_paused = is_paused
        if not is_paused:
            self._unbound &= self._handlers.keys()
        for handler in self._handlers.values():
            handler.pause(is_paused)

    # Begin

    def _prepare(self, begin: Begin) -> tuple[WireContext, TlsServer]:
        """Use the limits and certificates at once, because later ones may follow in this batch."""
        if begin.version != VERSION:
            raise ValueError(f"the core speaks version {begin.version}, and not {VERSION}")
        limits = msgspec.convert(begin.limits, Limits)
        self._context = WireContext(limits)
        self._files = MemoryFiles(begin.certificates)
        self._tls = TlsServer(self._contexts(self._files), limits)
        return self._context, self._tls

    async def _serve(
        self, wanted: Sequence[Listening], context: WireContext, tls_server: TlsServer
    ) -> None:
        sides = [
            socket_side.load(each.module) for each in wanted
        ]  # may read files, as aiohttp does
        confined = confine()  # before the first byte of a peer is read
        for place, (side, listening) in enumerate(zip(sides, wanted, strict=True)):
            await self._listen(place, side, listening, context, tls_server)
        self._loop.call_later(CHECK_TIME, self._check)
        self.link.send(Ready(VERSION, confined))
        gc.freeze()
        gc.set_threshold(GC_THRESHOLD)

    def _on_served(self, task: asyncio.Task[None]) -> None:
        error = task.exception()
        if isinstance(error, Exception):
            self._stop(error)

    def _contexts(self, files: MemoryFiles) -> TlsContexts:
        return TlsContexts(None, "", self._count_bad_certificate, files.paths)

    def _use(self, certificates: CertificateFiles) -> None:
        """Use other certificates for the next handshakes, or go on with those in use."""
        before = self._files
        if self._tls is None or before is None:
            return
        files = MemoryFiles(certificates)
        try:
            contexts = self._contexts(files)
            for alpn in self._tls.contexts.names():
                contexts.add(alpn)
        except SetupError:
            self._count_bad_certificate()
            files.close()
            return
        self._tls.contexts, self._files = contexts, files
        before.close()

    def _count_bad_certificate(self) -> None:
        self._bad_certificates += 1

    async def _listen(
        self,
        place: int,
        side: SocketSide,
        listening: Listening,
        context: WireContext,
        tls_server: TlsServer,
    ) -> None:
        tls_server.add(side.alpn)

        def accept() -> asyncio.BaseProtocol:
            unbound = len(self._unbound) - context.limits.unauthenticated
            if unbound >= MAX_UNANSWERED or len(self._handlers) >= MAX_CONNECTIONS:
                self._refused += 1
                return _Refused()
            self._next += 1
            wire = side.wire(context, side.parser(context.limits), tls_server)
            handler = LinkedHandler(
                self.link,
                wire,
                self._next,
                place,
                side.encoder(),
                self._loop.time,
                self._unbound.discard,
                self._forget,
            )
            self._handlers[self._next] = handler
            self._unbound.add(self._next)
            if self._is_paused:
                handler.pause(True)
            return ClientHelloReader(wire, side.alpn, only_tls=listening.only_tls)

        for descriptor in listening.sockets:
            listener = socket.socket(fileno=descriptor)
            listener.setblocking(False)
            server = await self._loop.create_server(accept, sock=listener, backlog=BACKLOG)
            self._servers.append(server)
            if self._is_stopping:
                server.close()

    def _forget(self, number: int) -> None:
        self._handlers.pop(number, None)
        if not self._is_paused:  # else the core does not know it yet, and has to learn of it
            self._unbound.discard(number)

    # Regular checks

    def _check(self) -> None:
        self._loop.call_later(CHECK_TIME, self._check)
        for handler in self._handlers.values():
            handler.report_left()
        self._checks += 1
        if self._checks % IDLE_CHECKS == 0:
            for handler in self._handlers.values():
                handler.wire.release_if_idle()
        handshakes = 0 if self._tls is None else self._tls.active_handshakes
        self.link.send(Figures(handshakes, self._bad_certificates, self._refused))
        self._bad_certificates = self._refused = 0


class MemoryFiles:
    """Files in memory, because OpenSSL reads certificates from files, and this process can open
    none.

    Attributes:
        paths: their paths, for this process alone.
    """

    def __init__(self, certificates: CertificateFiles) -> None:
        self._descriptors: list[int] = []
        path, crl = self._add, certificates.crl
        self.paths = pki.Files(
            ca=path(certificates.ca),
            ca_key=_NO_FILE,
            server=path(certificates.server),
            server_key=path(certificates.server_key),
            crl=_NO_FILE if crl is None else path(crl),
        )

    def _add(self, data: bytes) -> Path:
        descriptor = os.memfd_create("certificate")
        self._descriptors.append(descriptor)
        os.pwrite(descriptor, data, 0)
        return Path(f"/proc/self/fd/{descriptor}")

    def close(self) -> None:
        """Free them."""
        for descriptor in self._descriptors:
            os.close(descriptor)


class _Refused(asyncio.Protocol):
    """A connection for which there is no room."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast(asyncio.Transport, transport).abort()


def _act(handler: LinkedHandler, message: ToConnection) -> None:
    match message:
        case Write():
            handler.write(message.data, reports=message.reports)
        case Credit():
            handler.add_credit(message.cost)
        case SetLimit():
            handler.wire.set_limit(message.max_bytes)
        case Reset():
            handler.wire.reset_parser()
        case StartTls():
            handler.wire.start_tls()
        case Release():
            handler.wire.release()
        case Close():
            handler.wire.close()
        case Abort():
            handler.wire.abort()


def _ignore_signals() -> None:
    """Leave signals to the core, which ends its fronts when their connections are closed."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)


async def _run() -> None:
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[Exception | None] = loop.create_future()

    def stop(error: Exception | None) -> None:
        if not ended.done():
            ended.set_result(error)

    front = FrontConnections(stop)
    core = socket.socket(fileno=0)
    await loop.connect_accepted_socket(lambda: front.link, core)
    if (error := await ended) is not None:
        sys.stderr.write(f"a front process has failed: {error}\n")
        sys.stderr.flush()
        os._exit(1)
    os._exit(0)


if __name__ == "__main__":
    set_name(NAME)
    end_with_parent(signal.SIGKILL)
    end_before_parent()
    _ignore_signals()
    asyncio.run(_run())
