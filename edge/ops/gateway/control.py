"""Talk to a running gateway over its control socket, `DIR/control.sock`.

Only the owner of the folder can connect. A request is one line; its answer is one line of JSON. The
answer to a `Listen` request is a line for each published item, until the connection ends.
`edge.server.control_server` answers the requests.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Final, TypeVar

import msgspec
from msgspec import Struct

from edge.errors import SetupError
from edge.features.queues.store.overview import Attendance
from edge.ops.gateway.operator_requests import Answer, ItemReport, Listen, RequestRefused, Work

T = TypeVar("T")

SOCKET: Final = "control.sock"

STATUS: Final = b"status"
"""The request for a `ProcessStatus`."""

SESSIONS: Final = b"sessions"
"""The request for the `DeviceConnections`."""

RELOAD: Final = b"reload"
"""The request to reload the configuration; the answer is a `ReloadReport`."""

RELOAD_TIMEOUT: Final = 60.0
"""Maximum seconds of a reload, which waits for commits and may wait for name resolution."""

MEMBERS: Final = b"members"
"""The request for a queue's members (`QueueAttendance`), before a space and the queue's number."""

DATABASE_ERROR: Final = b'{"error":"the database"}\n'
"""The answer to a `MEMBERS` request if the gateway cannot read its database."""

TIMEOUT: Final = 5.0
"""Maximum seconds until the gateway answers; an answer usually takes milliseconds."""

MAX_REQUEST_BYTES: Final = 3 * 1024 * 1024
"""Maximum bytes of a request: a message of 1 MiB, the longest stanza, escaped for JSON."""

MAX_ANSWER_BYTES: Final = 16 * 1024 * 1024
"""Maximum bytes of an answer.

The answer to `SESSIONS` usually has 200 bytes for each session. The answer to `MEMBERS` names at
most a thousand sessions of at most 3 KiB, usually of 50 bytes. The answer to `STATUS` has 4 KiB.
"""

_READ: Final = 64 * 1024
_CLOSED: Final = "the gateway closed the connection, because it is busy or stopping"
_PERFORMED: Final = "; it may have performed the request: check that before you try again"


class FrontStatus(Struct, frozen=True, kw_only=True):
    """A front process, which has connections of devices.

    Attributes:
        number: its number from 1 on.
        pid: its process id, if it runs.
        restarts: how often it was started again since the gateway's start.
        connections: the number of its connections.
        confined: whether it can open no files but those that it needs.
    """

    number: int
    pid: int | None
    restarts: int
    connections: int
    confined: bool


class ProcessStatus(Struct, frozen=True, kw_only=True):
    """The part of the status that only the running process knows.

    `build` is "compiled" or "pure" (`build_kind`), `service` the service time in seconds, `uptime`
    the process uptime in seconds, `boot` the kernel's id of the boot. `limits` are the values in
    force, by option; `used` is the use of each limit that the process itself counts.
    `sessions` is the number of sessions of devices by protocol: `xmpp`, `mqtt` or `mqtt websocket`;
    `accepts_devices` is whether devices can connect, `fronts` the front processes, `store_error`
    why the database does not work, if the process cannot use it, `certificate_error` why it uses
    the previous certificate in place of the present files, and `link_error` why a component has no
    link to its server.
    """

    version: str
    build: str = "pure"
    boot: str
    service: float
    uptime: float
    synchronised: bool
    used: dict[str, int]
    limits: dict[str, int | float]
    sessions: dict[str, int] = {}
    accepts_devices: bool = True
    fronts: list[FrontStatus] = []
    store_error: str | None = None
    certificate_error: str | None = None
    link_error: str | None = None


class ConnectedSession(Struct, frozen=True, kw_only=True):
    """A session of a device, as the running gateway knows it; times are in ms since 1970 UTC.

    Attributes:
        account: the name of the device.
        resource: the resource of its address; in MQTT, the client identifier.
        protocol: `xmpp` or `mqtt`.
        version: the version of the protocol, if it has several.
        transport: `websocket`, or empty for TCP, with or without TLS.
        address: the IP address of the session's connection to this gateway, if it has one.
        since: when the session was bound, if that is known.
        seen: when the device last sent something, if that is known.
        detached: whether the session has lost its connection and can be resumed.
        unacknowledged: the number of stanzas that the device has not acknowledged yet; `None` if
            the outbox has the number of its messages (`device_status.DurableSession`).
    """

    account: str
    resource: str
    protocol: str = "xmpp"
    version: str = ""
    transport: str = ""
    address: str | None = None
    since: int | None = None
    seen: int | None = None
    detached: bool = False
    unacknowledged: int | None = 0

    @property
    def protocol_text(self) -> str:
        """The protocol with its version and transport, for people."""
        return " ".join(filter(None, (self.protocol, self.version, self.transport)))


class DeviceConnections(Struct, frozen=True, kw_only=True):
    """The sessions of devices, and when devices were last seen, as the process alone knows it.

    `seen` has, by account, when a session last began or ended, in ms since 1970 UTC; accounts for
    which the database has this time are left out.
    """

    sessions: list[ConnectedSession]
    seen: dict[str, int] = {}


class ReloadReport(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The result of a reload: the changed options, those that need a restart, and the faults.

    If there are faults, nothing was changed.
    """

    changed: list[str] = []
    restart: list[str] = []
    faults: list[str] = []


class QueueAttendance(Struct, frozen=True, kw_only=True):
    """The connected sessions of a queue's members at the service time `service`, in seconds."""

    service: float
    attending: list[Attendance]


@contextmanager
def short_path(folder: Path) -> Iterator[str]:
    """Yield a path of at most 107 bytes, the kernel's maximum, to the control socket.

    It is this short even if the folder's path is long, and is valid only inside the block.
    Raises `OSError` if there is no such folder.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{descriptor}/{SOCKET}"
    finally:
        os.close(descriptor)


def process_status(folder: Path, timeout: float = TIMEOUT) -> ProcessStatus | None:
    """Query the status of the gateway in `folder`; return `None` if it is not running.

    Raises `SetupError` if the gateway does not answer within `timeout` seconds, closes the
    connection, or has another version.
    """
    return _query(folder, STATUS, ProcessStatus, timeout)


def reload(folder: Path) -> ReloadReport | None:
    """Make the gateway in `folder` reload its configuration.

    Returns `None` and raises errors as `process_status` does.
    """
    return _query(folder, RELOAD, ReloadReport, RELOAD_TIMEOUT)


def device_connections(folder: Path) -> DeviceConnections | None:
    """Query the sessions of the gateway in `folder`.

    Returns `None` and raises errors as `process_status` does.
    """
    return _query(folder, SESSIONS, DeviceConnections, TIMEOUT)


def attendance(folder: Path, queue: int, timeout: float = TIMEOUT) -> QueueAttendance | None:
    """Query the connected sessions of the members of the queue with the number `queue`.

    Returns `None` and raises errors as `process_status` does.
    """
    return _query(folder, b"%b %d" % (MEMBERS, queue), QueueAttendance, timeout)


def perform(folder: Path, request: Work, timeout: float = TIMEOUT) -> Answer:
    """Make the gateway in `folder` perform a request of the operator.

    Raises:
        RequestRefused: the gateway refuses the request, and has changed nothing but its event log.
        SetupError: the gateway is not running, or does not answer. If it closed the connection or
            did not answer within `timeout` seconds, it may have performed the request.
    """
    line = msgspec.json.encode(request)
    if len(line) > MAX_REQUEST_BYTES:
        raise RequestRefused(
            f"the request has {len(line)} bytes; a request has at most {MAX_REQUEST_BYTES} bytes"
        )
    answer = _query(folder, line, Answer, timeout, changes=True)
    if answer is None:
        raise _not_running(folder)
    if answer.error:
        raise RequestRefused(answer.error)
    return answer


@contextmanager
def listening(
    folder: Path, filters: list[str], idle: float | None = None
) -> Iterator[Iterator[ItemReport]]:
    """Yield an iterator of the items that are published to nodes while the block runs.

    Args:
        filters: filters of the names of the nodes.
        idle: seconds without an item after which the iterator ends; `None` means never.

    Raises:
        RequestRefused: a filter is invalid, or there are too many listeners.
        SetupError: the gateway is not running, does not answer, has another version, or has closed
            the connection: it stops, has too many connections, or the items were read too slowly.
    """
    with ExitStack() as stack:
        client = stack.enter_context(socket.socket(socket.AF_UNIX))
        client.settimeout(TIMEOUT)
        lines = stack.enter_context(client.makefile("rb"))
        try:
            with suppress(BrokenPipeError, ConnectionResetError):  # the answer is then not complete
                client.connect(stack.enter_context(short_path(folder)))
                client.sendall(msgspec.json.encode(Listen(filters)) + b"\n")
            _read_answer(folder, lines)
        except (FileNotFoundError, ConnectionRefusedError):
            raise _not_running(folder) from None
        except TimeoutError:
            raise SetupError(_silence(folder, TIMEOUT)) from None
        client.settimeout(idle)
        yield _items(folder, lines)


def _items(folder: Path, lines: BinaryIO) -> Iterator[ItemReport]:
    while True:
        try:
            item = _read_answer(folder, lines).item
        except TimeoutError:
            return
        if item is not None:
            yield item


def _read_answer(folder: Path, lines: BinaryIO) -> Answer:
    line = b""
    with suppress(ConnectionResetError):
        line = lines.readline()
    closed = f"{_CLOSED}, or because items were read too slowly; try again"
    answer = _decode(folder, line, Answer, closed)
    if answer.error:
        raise RequestRefused(answer.error)
    return answer


def _not_running(folder: Path) -> SetupError:
    return SetupError(f"the gateway in {folder} is not running; start it with `fieldpost run`")


def _silence(folder: Path, timeout: float) -> str:
    return f"{folder / SOCKET}: the gateway has not answered for {timeout:g} s"


def _query(
    folder: Path, request: bytes, type: type[T], timeout: float, *, changes: bool = False
) -> T | None:
    """Send a request and return its answer, or `None` if the gateway is not running.

    `changes` is whether repeating the request could do harm. If so and no answer arrives, the text
    of the error says that the request may have been performed.
    """
    advice = _PERFORMED if changes else "; try again"
    try:
        with short_path(folder) as path, socket.socket(socket.AF_UNIX) as client:
            line = _exchange(client, path, request, time.monotonic() + timeout)
    except (FileNotFoundError, ConnectionRefusedError):  # never started; killed
        return None
    except (BrokenPipeError, ConnectionResetError):  # too many other clients
        line = b""
    except TimeoutError:
        raise SetupError(f"{_silence(folder, timeout)}{advice}") from None
    except OSError as error:
        text = f"{folder / SOCKET} cannot be queried: {error.strerror or error}"
        raise SetupError(text) from None
    return _decode(folder, line, type, f"{_CLOSED}{advice}")


def _decode(folder: Path, line: bytes, type: type[T], closed: str) -> T:
    """Decode an answer; raise `SetupError` if it is invalid, with the text `closed` if cut off."""
    if not line.endswith(b"\n"):
        problem = closed
    elif line == DATABASE_ERROR:
        problem = "the gateway cannot read its database; see `fieldpost doctor`"
    else:
        try:
            return msgspec.json.decode(line, type=type)
        except msgspec.DecodeError:
            problem = "the gateway has another version than this command; restart the gateway"
    raise SetupError(f"{folder / SOCKET}: {problem}")


def _exchange(client: socket.socket, path: str, request: bytes, deadline: float) -> bytes:
    client.settimeout(max(deadline - time.monotonic(), 0.001))
    client.connect(path)
    client.sendall(request + b"\n")
    answer = bytearray()
    while not answer.endswith(b"\n") and len(answer) <= MAX_ANSWER_BYTES:
        client.settimeout(max(deadline - time.monotonic(), 0.001))
        chunk = client.recv(_READ)
        if not chunk:
            break
        answer += chunk
    return bytes(answer)
