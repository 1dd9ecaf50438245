"""The control socket, over which commands on the same machine talk to the running gateway.

A request is one line, the answer is one line of JSON, and the connection ends;
`edge.ops.gateway.control` is the client. Only the owner of the gateway's folder may connect, and no
front process, so every client is the operator.
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from collections import Counter
from collections.abc import Awaitable, Callable, Container
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import msgspec

from edge import __version__
from edge.build_kind import build_kind
from edge.config.limits import Limits
from edge.engine.store.database import Transaction
from edge.engine.time.clock import Clock
from edge.errors import StoreError
from edge.features.queues.service.diagnosis import MAX_MEMBERS
from edge.features.queues.store import overview
from edge.ops.gateway import control
from edge.ops.gateway.control import (
    MAX_REQUEST_BYTES,
    DeviceConnections,
    ProcessStatus,
    QueueAttendance,
    ReloadReport,
)
from edge.server.endpoints import Endpoints
from edge.server.operator_channel import ItemListener, OperatorRequests, read_listen
from edge.server.transports import unlink

MAX_CLIENTS: Final = 8
"""Maximum concurrent connections; a further one is closed."""

REQUEST_TIMEOUT: Final = 5.0
"""Maximum seconds for a request and its answer, after which the connection is closed; enough on a
busy machine."""

MODE: Final = 0o600

_CREDENTIALS: Final = struct.Struct("3i")
"""The process, user and group of a peer."""


def state_reader(
    limits: Limits,
    clock: Clock,
    endpoints: Endpoints,
    store_error: Callable[[], str | None],
) -> Callable[[], ProcessStatus]:
    """Return a function that returns the state of the process.

    The uptime in this state begins when `state_reader` is called.

    Args:
        store_error: returns why the process cannot use its database, if that is so.
    """
    started = asyncio.get_running_loop().time()
    build = build_kind()

    def read_state() -> ProcessStatus:
        now = clock()
        return ProcessStatus(
            version=__version__,
            build=build,
            boot=clock.run.boot,
            service=now.service,
            uptime=asyncio.get_running_loop().time() - started,
            synchronised=now.synchronised,
            used=endpoints.used(),
            limits=msgspec.to_builtins(limits),
            sessions=Counter(
                f"{each.protocol} {each.transport}".rstrip()
                for each in endpoints.connected_sessions(now.wall)
            ),
            accepts_devices=endpoints.up,
            fronts=endpoints.processes,
            store_error=store_error(),
            certificate_error=endpoints.certificate_error,
            link_error=endpoints.link_error,
        )

    return read_state


def present_members(tx: Transaction, queue: int) -> QueueAttendance:
    """Return the connected sessions of the members of the queue with this number."""
    return QueueAttendance(
        service=tx.now.service, attending=overview.attendance(tx, queue, MAX_MEMBERS)
    )


class ControlServer:
    """The server of the control socket.

    Args:
        state: returns the state of the process.
        connections: returns the sessions of devices.
        reload: reloads the configuration; it must go on if the request's connection is lost.
        members: returns the connected sessions of a queue's members; takes the queue's number.
        fronts: returns the ids of front processes, which may not connect.
        requests: performs requests of the operator; `None` refuses them.
    """

    def __init__(
        self,
        folder: Path,
        state: Callable[[], ProcessStatus],
        connections: Callable[[], Awaitable[DeviceConnections]],
        reload: Callable[[], Awaitable[ReloadReport]],
        members: Callable[[int], Awaitable[QueueAttendance]],
        fronts: Callable[[], Container[int]] = frozenset,
        requests: OperatorRequests | None = None,
    ) -> None:
        self._folder = folder
        self._state = state
        self._connections = connections
        self._reload = reload
        self._members = members
        self.fronts = fronts
        self.requests = requests
        self._server: asyncio.Server | None = None
        self._reachable = ExitStack()
        self.clients: set[_Client] = set()

    async def start(self) -> None:
        """Listen; replaces the socket of a killed gateway. Raises `OSError`."""
        loop = asyncio.get_running_loop()
        with ExitStack() as undo:
            path = undo.enter_context(control.short_path(self._folder))
            listening = _bind(path)
            undo.callback(listening.close)
            self._server = await loop.create_unix_server(lambda: _Client(self), sock=listening)
            self._reachable = undo.pop_all()  # asyncio uses the path again when it closes

    def stop(self) -> None:
        """Close all connections and remove the socket."""
        if self._server is None:
            return
        self._server.close()
        for client in list(self.clients):
            client.abort()
        (self._folder / control.SOCKET).unlink(missing_ok=True)
        self._reachable.close()

    async def answer(self, request: bytes) -> bytes:
        """Return the answer to a request line, which is given without its line end."""
        words = request.split(b" ")
        if request == control.STATUS:
            return msgspec.json.encode(self._state()) + b"\n"
        if request == control.SESSIONS:
            return msgspec.json.encode(await self._connections()) + b"\n"
        if request == control.RELOAD:
            return msgspec.json.encode(await self._reload()) + b"\n"
        if len(words) == 2 and words[0] == control.MEMBERS and words[1].isdigit():
            try:
                return msgspec.json.encode(await self._members(int(words[1]))) + b"\n"
            except StoreError:
                return control.DATABASE_ERROR
        if request.startswith(b"{") and self.requests is not None:
            return await self.requests.answer(request)
        return b'{"error":"unknown request"}\n'


class _Client(asyncio.Protocol):
    def __init__(self, server: ControlServer) -> None:
        self._server = server
        self._request = b""
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._answer: asyncio.Task[None] | None = None
        self._listener: ItemListener | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)  # noqa: S101
        self._transport = transport
        is_front = _peer_id(transport.get_extra_info("socket")) in self._server.fronts()
        if is_front or len(self._server.clients) >= MAX_CLIENTS:
            transport.abort()
            return
        self._server.clients.add(self)
        self._set_timeout(transport, REQUEST_TIMEOUT)

    def _set_timeout(self, transport: asyncio.Transport, timeout: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(timeout, transport.abort)

    def data_received(self, data: bytes) -> None:
        assert self._transport is not None  # noqa: S101
        if self._answer is not None:
            return
        self._request += data[: MAX_REQUEST_BYTES + 1]
        line, end, _ = self._request.partition(b"\n")
        if end:
            if line == control.RELOAD:
                self._set_timeout(self._transport, control.RELOAD_TIMEOUT)
            self._answer = asyncio.create_task(self._send_answer(self._transport, line))
        elif len(self._request) > MAX_REQUEST_BYTES:
            self._transport.abort()

    async def _send_answer(self, transport: asyncio.Transport, line: bytes) -> None:
        requests = self._server.requests
        if requests is not None and (listen := read_listen(line)) is not None:
            self._listener = requests.listen(listen, transport)
            if self._listener is not None and self._timer is not None:
                self._timer.cancel()
            return
        transport.write(await self._server.answer(line))
        transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        unlink(self._transport)
        self._server.clients.discard(self)
        if self._timer is not None:
            self._timer.cancel()
        if self._answer is not None:
            self._answer.cancel()
        if self._listener is not None:
            self._listener.remove()

    def abort(self) -> None:
        """Close the connection now."""
        if self._transport is not None:
            self._transport.abort()


def _peer_id(peer: socket.socket) -> int:
    """Return the id of the process that has connected (SO_PEERCRED of unix(7))."""
    pid, _user, _group = _CREDENTIALS.unpack(
        peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    )
    return int(pid)


def _bind(path: str) -> socket.socket:
    """Create the socket; from the first moment on, only its owner can use it."""
    file = Path(path)
    if file.is_socket():
        file.unlink()
    listening = socket.socket(socket.AF_UNIX)
    try:
        os.fchmod(listening.fileno(), MODE)
        listening.bind(path)
        file.chmod(MODE)  # whatever the umask
    except BaseException:
        listening.close()
        raise
    return listening
