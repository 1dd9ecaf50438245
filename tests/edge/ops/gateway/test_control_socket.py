from __future__ import annotations

import asyncio
import os
import socket
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack, asynccontextmanager, closing, suppress
from pathlib import Path

import pytest

from edge.errors import SetupError, StoreFull
from edge.features.queues.store.overview import Attendance
from edge.ops.gateway import control, status
from edge.ops.gateway.control import (
    MAX_REQUEST_BYTES,
    DeviceConnections,
    ProcessStatus,
    QueueAttendance,
    ReloadReport,
)
from edge.ops.gateway.operator_requests import DeleteNode
from edge.server import control_server
from edge.server.control_server import MAX_CLIENTS, ControlServer

WAIT_S = 10.0
STATE = ProcessStatus(
    version="1.2.3", boot="b", service=12.5, uptime=2.0, synchronised=True, used={"sessions": 3},
    limits={"sessions": 7, "held_ttl": 1.5},
)  # fmt: skip
ATTENDING = Attendance(
    4, "pump1@gw.example/w", 1, accepts_qos=True, outbox_full=False, too_many_bytes=False
)
FAULTY = 13


async def attendance_of(queue: int) -> QueueAttendance:
    if queue == FAULTY:
        raise StoreFull("no byte is left")
    return QueueAttendance(service=9.5, attending=[ATTENDING] * queue)


async def connections() -> DeviceConnections:
    return DeviceConnections(sessions=[])


async def reload() -> ReloadReport:
    raise AssertionError


def new_server(
    folder: Path, attendance: Callable[[int], Awaitable[QueueAttendance]] = attendance_of
) -> ControlServer:
    return ControlServer(folder, lambda: STATE, connections, reload, attendance)


@asynccontextmanager
async def serving(folder: Path) -> AsyncIterator[ControlServer]:
    server = new_server(folder)
    await server.start()
    yield server
    server.stop()


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[ControlServer]:
    async with serving(tmp_path) as server:
        yield server


async def ask(folder: Path) -> ProcessStatus | None:
    return await asyncio.to_thread(control.process_status, folder)


async def call(folder: Path, request: bytes) -> bytes:
    """Send bytes and return the reply until the connection ends."""
    reader, writer = await asyncio.open_unix_connection(folder / control.SOCKET)
    writer.write(request)
    try:
        return await asyncio.wait_for(reader.read(), WAIT_S)
    except ConnectionResetError:
        return b""
    finally:
        writer.close()


def names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


async def until(is_true: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not is_true():  # noqa: ASYNC110 - nothing in the gateway waits for this
            await asyncio.sleep(0)


async def test_status_is_answered(served: ControlServer, tmp_path: Path) -> None:
    for _ in range(2):
        assert await ask(tmp_path) == STATE
    await until(lambda: not served.clients)


async def test_a_front_process_may_not_connect(served: ControlServer, tmp_path: Path) -> None:
    served.fronts = lambda: {os.getpid()}
    assert await call(tmp_path, b"status\n") == b""
    served.fronts = lambda: {os.getppid()}
    assert await call(tmp_path, b"status\n")


async def test_attendance_is_answered(served: ControlServer, tmp_path: Path) -> None:
    for queue in (1, 2000):
        attendance = await asyncio.to_thread(control.attendance, tmp_path, queue)
        assert attendance == QueueAttendance(service=9.5, attending=[ATTENDING] * queue)


async def test_database_error_is_reported(served: ControlServer, tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="cannot read its database"):
        await asyncio.to_thread(control.attendance, tmp_path, FAULTY)


async def test_one_request_per_connection(served: ControlServer, tmp_path: Path) -> None:
    assert (await call(tmp_path, b"members 1\nstatus\n")).count(b"\n") == 1


async def test_slow_request_ends_with_the_socket(tmp_path: Path) -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def wait_forever(_queue: int) -> QueueAttendance:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        raise AssertionError

    server = new_server(tmp_path, wait_forever)
    await server.start()
    reply = asyncio.create_task(call(tmp_path, b"members 1\n"))
    await asyncio.wait_for(begun.wait(), WAIT_S)
    server.stop()
    assert await reply == b""
    await asyncio.wait_for(ended.wait(), WAIT_S)


async def test_socket_is_private(tmp_path: Path) -> None:
    old = os.umask(0o777)
    try:
        async with serving(tmp_path):
            assert (tmp_path / control.SOCKET).stat().st_mode & 0o777 == 0o600
    finally:
        os.umask(old)


async def test_a_stop_removes_the_socket(tmp_path: Path) -> None:
    server = new_server(tmp_path)
    server.stop()
    await server.start()
    assert names(tmp_path) == [control.SOCKET]
    server.stop()
    assert names(tmp_path) == []
    assert await ask(tmp_path) is None


async def test_a_killed_gateways_socket_is_replaced(tmp_path: Path) -> None:
    with closing(socket.socket(socket.AF_UNIX)) as stale:
        stale.bind(str(tmp_path / control.SOCKET))
    assert await ask(tmp_path) is None
    async with serving(tmp_path):
        assert await ask(tmp_path) == STATE


async def test_a_regular_file_in_place_of_the_socket_is_kept(tmp_path: Path) -> None:
    socket_path = tmp_path / control.SOCKET
    socket_path.write_text("mine", "utf-8")
    server = new_server(tmp_path)
    with pytest.raises(OSError, match="in use"):
        await server.start()
    server.stop()
    assert socket_path.read_text("utf-8") == "mine"


async def test_a_folder_may_have_a_long_path(tmp_path: Path) -> None:
    folder = tmp_path / ("x" * 120)
    folder.mkdir()
    async with serving(folder):
        assert await ask(folder) == STATE
    assert names(folder) == []


@pytest.mark.parametrize(
    "request_", [b"nothing\n", b"\n", b"status \n", b"members\n", b"members x\n", b"members 1 2\n"]
)
async def test_unknown_request_is_reported(
    served: ControlServer, tmp_path: Path, request_: bytes
) -> None:
    assert await call(tmp_path, request_) == b'{"error":"unknown request"}\n'


async def test_request_may_arrive_in_pieces(served: ControlServer, tmp_path: Path) -> None:
    reader, writer = await asyncio.open_unix_connection(tmp_path / control.SOCKET)
    for piece in (b"sta", b"tus", b"\n"):
        writer.write(piece)
        await writer.drain()
        await until(lambda: bool(served.clients))
    assert (await asyncio.wait_for(reader.read(), WAIT_S)).startswith(b'{"version":"1.2.3"')
    writer.close()


async def test_endless_request_is_cut_off(served: ControlServer, tmp_path: Path) -> None:
    assert await call(tmp_path, b"x" * (MAX_REQUEST_BYTES + 1)) == b""
    assert await ask(tmp_path) == STATE


async def test_connections_are_limited_in_number(served: ControlServer, tmp_path: Path) -> None:
    with ExitStack() as stack:
        for _ in range(MAX_CLIENTS):
            client = stack.enter_context(socket.socket(socket.AF_UNIX))
            client.connect(str(tmp_path / control.SOCKET))
        await until(lambda: len(served.clients) == MAX_CLIENTS)
        assert await call(tmp_path, b"") == b""
        with pytest.raises(SetupError, match="busy"):
            await ask(tmp_path)
    await until(lambda: not served.clients)
    assert await ask(tmp_path) == STATE


async def test_connections_are_limited_in_time(
    served: ControlServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control_server, "REQUEST_TIMEOUT", 0.01)
    assert await call(tmp_path, b"stat") == b""


async def test_stop_closes_connections(served: ControlServer, tmp_path: Path) -> None:
    reply = asyncio.create_task(call(tmp_path, b"stat"))
    await until(lambda: bool(served.clients))
    served.stop()
    assert await reply == b""


def answer_once(folder: Path, answer: bytes | None) -> threading.Thread:
    """Listen in place of a gateway; answer one caller with `answer`, or never if it is None."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(folder / control.SOCKET))
    listener.listen()

    def serve() -> None:
        with suppress(ConnectionError), listener, listener.accept()[0] as caller:
            while caller.recv(100) and answer is None:
                pass
            caller.sendall(answer or b"")

    thread = threading.Thread(target=serve)
    thread.start()
    return thread


def perform(folder: Path, timeout: float) -> None:
    control.perform(folder, DeleteNode("work"), timeout)


def listen(folder: Path, _timeout: float) -> None:
    with control.listening(folder, ["#"]):
        pass


BUSY, OTHER_VERSION = (
    "is busy or stopping; try again",
    "has another version than this command; restart",
)
UNANSWERED: list[tuple[Callable[[Path, float], object], bytes | None, str]] = [
    (control.process_status, b"", BUSY),
    (control.process_status, b"x" * 5_000_000, BUSY),
    (control.process_status, b"{}\n", OTHER_VERSION),
    (control.process_status, b"nonsense\n", OTHER_VERSION),
    (control.process_status, None, r"has not answered for 0\.05 s"),
    (lambda folder, _: control.reload(folder), b'{"error":"unknown request"}\n', OTHER_VERSION),
    (perform, b"", "busy or stopping; it may have performed the request"),
    (perform, None, r"0\.05 s; it may have performed the request"),
    (listen, b"", "busy or stopping, or because items were read too slowly; try again"),
    (listen, b"nonsense\n", OTHER_VERSION),
    (listen, None, r"has not answered for 0\.05 s"),
]
"""A request of a command, the answer if there is one, and the reported problem."""


@pytest.mark.parametrize(("request_", "answer", "problem"), UNANSWERED)
def test_missing_or_invalid_answer_is_reported(
    tmp_path: Path,
    request_: Callable[[Path, float], object],
    answer: bytes | None,
    problem: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    timeout = 0.05 if answer is None else WAIT_S
    monkeypatch.setattr(control, "TIMEOUT", timeout)
    thread = answer_once(tmp_path, answer)
    with pytest.raises(SetupError, match=problem):
        request_(tmp_path, timeout)
    thread.join()


def test_status_reports_a_missing_answer(folder: Path) -> None:
    thread = answer_once(folder, b"")
    report = status.read(folder)
    assert report.state == status.NO_ANSWER
    assert BUSY in (report.trouble or "")
    thread.join()
