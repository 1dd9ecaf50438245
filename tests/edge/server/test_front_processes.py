"""Front processes that do not start, and what a front can reach."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, cast

import msgspec
import pytest

from edge.config.limits import Limits
from edge.errors import SetupError
from edge.server import front_processes, socket_side
from edge.server.front_process import MAX_UNANSWERED, FrontConnections, MemoryFiles
from edge.server.front_processes import FrontProcesses
from edge.server.link.linked_handler import LinkedHandler
from edge.server.link.messages import (
    VERSION,
    Begin,
    CertificateFiles,
    Figures,
    Left,
    Limit,
    Listening,
    Release,
    StopAccepting,
    encode,
)
from edge.server.refusal_counters import RefusalCounters
from edge.server.tls import TlsContexts, TlsServer
from edge.server.wire import Wire, WireContext
from tests.helpers.pki import issue_server

WAIT_S = 30.0


class Listener:
    """A listener without sockets."""

    sockets: ClassVar[str] = "edge.server.mqtt.socket_side"
    transport: ClassVar[str] = ""

    def connect(self, wire: Wire) -> None:
        raise AssertionError

    def decoder(self) -> Callable[[bytes], Sequence[Any]]:
        raise AssertionError


def front_command(folder: Path, script: str) -> str:
    path = folder / "front"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o700)
    return str(path)


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("exit 3", "does not start: it has ended, with status 3"),
        ("exec sleep 60", "does not start: it is not ready after 0.2 s"),
        ("", "does not start: it cannot be started: "),
    ],
)
async def test_a_front_that_does_not_start_fails_the_start(
    tmp_path: Path, script: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = front_command(tmp_path, script) if script else str(tmp_path / "missing")
    monkeypatch.setattr("sys.executable", command)
    monkeypatch.setattr(front_processes, "START_TIME", 0.2 if "sleep" in script else WAIT_S)
    monkeypatch.setattr(front_processes, "END_TIME", 0.1)
    store: Any = None  # nothing is logged before the gateway has started
    fronts = FrontProcesses(2, Limits(), store, RefusalCounters())
    fronts.listen(Listener(), (), only_tls=False)
    with pytest.raises(SetupError) as raised:
        await fronts.start()
    assert expected in str(raised.value)  # of either front
    assert not fronts.up
    fronts.stop_accepting()
    await asyncio.wait_for(fronts.close(), WAIT_S)


def one_front(
    folder: Path, program: str, monkeypatch: pytest.MonkeyPatch
) -> tuple[FrontProcesses, asyncio.Queue[tuple[Any, ...]]]:
    """Return one front, which is a program in Python, and the queue of what is logged of its
    ends."""
    (folder / "front.py").write_text(program)
    script = f"exec {sys.executable} {folder / 'front.py'}"
    monkeypatch.setattr("sys.executable", front_command(folder, script))
    ended: asyncio.Queue[tuple[Any, ...]] = asyncio.Queue()
    store: Any = None
    fronts = FrontProcesses(1, Limits(), store, RefusalCounters())
    monkeypatch.setattr(fronts, "log_end", lambda *words: ended.put_nowait(words))
    fronts.listen(Listener(), (), only_tls=False)
    return fronts, ended


HANGS = """
import sys, time
from socket import socket
from edge.server.link.messages import VERSION, Ready, encode
data = encode([Ready(VERSION, False)])
link = socket(fileno=0)
link.sendall(len(data).to_bytes(4) + data)
time.sleep(600)
"""


async def test_a_front_that_hangs_is_ended_and_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fronts, ended = one_front(tmp_path, HANGS, monkeypatch)
    monkeypatch.setattr(front_processes, "SILENT_TIME", 0.6)
    monkeypatch.setattr(front_processes, "END_TIME", 0.1)
    await fronts.start()
    for restarts in (1, 2):
        expected = 1, "it hung: it sent nothing for 0.6 s, with status -9", restarts
        assert await asyncio.wait_for(ended.get(), WAIT_S) == expected
    fronts.stop_accepting()
    await asyncio.wait_for(fronts.close(), WAIT_S)


async def test_a_front_sends_its_figures_at_each_check(monkeypatch: pytest.MonkeyPatch) -> None:
    front = FrontConnections(lambda _error: None)
    sent: list[Any] = []
    monkeypatch.setattr(front.link, "send", sent.append)
    front._count_bad_certificate()
    front._refused = 2
    for _ in range(2):
        front._check()
    assert sent == [Figures(0, 1, 2), Figures(0, 0, 0)]


async def test_refusals_of_a_front_are_counted() -> None:
    store: Any = None
    fronts = FrontProcesses(1, Limits(), store, refusals := RefusalCounters())
    front = fronts._fronts[0]
    for figures in (Figures(1, 0, 0), Figures(0, 2, 3), Figures(0, 0, 4)):
        front.count_refusals(figures)
    assert refusals.take() == {"certificate_files": 1, "connections": 7}


ENDS = HANGS.replace("time.sleep(600)", "")


async def test_no_front_is_started_again_once_the_gateway_stops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fronts, _ended = one_front(tmp_path, ENDS, monkeypatch)
    monkeypatch.setattr(fronts, "log_end", lambda *_: fronts.stop_accepting())
    await fronts.start()
    front = fronts._fronts[0]
    assert front._running is not None
    await asyncio.wait_for(front._running, WAIT_S)
    assert len(front.ids) == 1


async def test_a_front_without_room_for_its_link_fails_the_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail() -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(socket, "socketpair", fail)
    store: Any = None
    fronts = FrontProcesses(1, Limits(), store, RefusalCounters())
    fronts.listen(Listener(), (), only_tls=False)
    with pytest.raises(SetupError, match="Too many open files"):
        await asyncio.wait_for(fronts.start(), WAIT_S)


async def test_a_connection_for_which_a_front_has_no_room_is_counted(folder: Path) -> None:
    contexts = TlsContexts(folder, "gw.example", pytest.fail)
    limits = msgspec.to_builtins(Limits(unauthenticated=1))
    listening = socket.create_server(("127.0.0.1", 0))
    wanted = Listening(Listener.sockets, False, (listening.detach(),))
    front = FrontConnections(lambda _error: None)
    certificates = CertificateFiles(*contexts.read())
    context, tls = front._prepare(Begin(VERSION, certificates, limits, [wanted]))
    await front._listen(0, socket_side.load(Listener.sockets), wanted, context, tls)
    front._unbound.update(range(1 + MAX_UNANSWERED))
    address = front._servers[0].sockets[0].getsockname()
    reader, writer = await asyncio.open_connection(*address)
    with suppress(ConnectionResetError):
        assert await asyncio.wait_for(reader.read(), WAIT_S) == b""
    assert front._refused == 1
    writer.close()
    front._servers[0].close()


async def test_a_front_that_is_to_stop_listens_no_more(folder: Path) -> None:
    contexts = TlsContexts(folder, "gw.example", pytest.fail)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        wanted = [Listening(Listener.sockets, False, (os.dup(listening.fileno()),))]
        front = FrontConnections(lambda _error: None)
        begin = Begin(
            VERSION, CertificateFiles(*contexts.read()), msgspec.to_builtins(Limits()), wanted
        )
        context, tls = front._prepare(begin)
        front._on_batch(memoryview(encode([StopAccepting()])))
        await front._listen(0, socket_side.load(Listener.sockets), wanted[0], context, tls)
    assert not any(server.is_serving() for server in front._servers)


class Tls:
    """A TLS server that counts how often it was told to use the present limits."""

    def __init__(self) -> None:
        self.told = 0

    def use_limits(self) -> None:
        self.told += 1


async def test_all_who_hold_the_limits_of_a_front_see_new_ones() -> None:
    front = FrontConnections(lambda _error: None)
    tls: Any = Tls()
    front._context, front._tls = WireContext(Limits()), tls
    held = front._context.limits
    limits = msgspec.to_builtins(Limits(stalled_time=7.0, handshakes=1))
    front._on_batch(memoryview(encode([Limit(limits)])))
    assert (held.stalled_time, held.handshakes) == (7.0, 1)
    assert front._context.limits is held
    assert tls.told == 1


async def test_a_front_goes_on_with_its_certificates_if_others_cannot_be_used(
    folder: Path,
) -> None:
    contexts = TlsContexts(folder, "gw.example", pytest.fail)
    contexts.add("mqtt")
    sent = CertificateFiles(*contexts.read())
    front = FrontConnections(lambda _error: None)
    front._files = MemoryFiles(sent)
    front._tls = TlsServer(front._contexts(front._files), Limits())
    front._tls.add("mqtt")
    first = front._tls.contexts.get("mqtt")
    front._on_batch(memoryview(encode([msgspec.structs.replace(sent, server_key=b"no key")])))
    assert front._bad_certificates == 1
    assert front._tls.contexts.get("mqtt") is first
    front._on_batch(memoryview(encode([sent])))
    assert front._tls.contexts.get("mqtt") is not first
    assert front._tls.contexts.error is None
    front._files.close()


async def test_what_follows_the_begin_at_once_is_used(folder: Path) -> None:
    """A certificate may be revoked, or limits reloaded, while a front starts."""
    contexts = TlsContexts(folder, "gw.example", pytest.fail)
    begin = Begin(VERSION, CertificateFiles(*contexts.read()), msgspec.to_builtins(Limits()), [])
    issue_server(folder, "gw.example", 1)
    changed = CertificateFiles(*contexts.read())
    limits = msgspec.to_builtins(Limits(stalled_time=7.0))
    front = FrontConnections(lambda _error: None)
    front._prepare(begin)
    front._on_batch(memoryview(encode([changed, Limit(limits)])))
    assert front._files is not None
    assert front._files.paths.server.read_bytes() == changed.server
    assert front._context is not None
    assert front._context.limits.stalled_time == 7.0
    front._files.close()


async def test_fronts_are_sent_files_that_have_changed(folder: Path) -> None:
    store: Any = None  # nothing is logged
    fronts = FrontProcesses(1, Limits(), store, RefusalCounters())
    contexts = TlsContexts(folder, "gw.example", pytest.fail)
    fronts.watch(contexts)
    before = fronts._begin.certificates
    issue_server(folder, "gw.example", 1)
    contexts.refresh()
    assert fronts._begin.certificates.server == (folder / "pki" / "server.pem").read_bytes()
    assert fronts._begin.certificates.server != before.server
    fronts.stop_accepting()


class FailingWire:
    """A wire that fails."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def release(self) -> None:
        self.calls.append("release")
        raise RuntimeError

    def abort(self) -> None:
        self.calls.append("abort")


async def test_an_error_in_a_front_ends_one_connection() -> None:
    errors: list[object] = []
    asyncio.get_running_loop().set_exception_handler(
        lambda _loop, context: errors.append(context["exception"])
    )
    front = FrontConnections(lambda _error: None)
    wires = [FailingWire(), FailingWire()]
    for number, wire in enumerate(wires):
        handler: Any = SimpleNamespace(wire=wire)
        front._handlers[number] = handler
    front._on_batch(memoryview(encode([Release(0), Release(1)])))
    assert [wire.calls for wire in wires] == [["release", "abort"]] * 2
    assert len(errors) == 2


async def test_what_the_core_does_not_read_of_lost_connections_is_bounded() -> None:
    front = FrontConnections(lambda _error: None)
    front._unbound = {1, 2}
    front._on_pause(True)
    front._forget(1)
    assert front._unbound == {1, 2}
    front._handlers[2] = cast(LinkedHandler, SimpleNamespace(pause=lambda _is_paused: None))
    front._on_pause(False)
    assert front._unbound == {2}
    front._forget(2)
    assert not front._unbound


async def test_what_has_left_is_never_negative() -> None:
    """Under TLS, the write buffer has more bytes than were written to it."""
    wire: Any = SimpleNamespace(write=lambda _data: None, backlog=lambda: 24)
    sent: list[Any] = []
    link: Any = SimpleNamespace(send=sent.append)
    ignore: Any = None
    handler = LinkedHandler(link, wire, 1, 0, ignore, lambda: 0.0, ignore, ignore)
    handler.write(b"\xd0\0", reports=True)
    assert sent == [Left(1, 0)]


REACH = """
import errno, json, os, resource, socket, sys
from pathlib import Path
import edge.server.front_process, edge.server.mqtt.socket_side, edge.server.xmpp.socket_side
from edge.server.confinement import confine
from edge.server.front_process import MemoryFiles
from edge.server.link.messages import CertificateFiles

def attempt(action):
    try:
        action()
    except OSError as error:
        return errno.errorcode[error.errno]
    return ""

folder, port = Path(sys.argv[1]), int(sys.argv[2])
sent = CertificateFiles(b"a certificate", b"its key", b"the CA", None)
socket.setdefaulttimeout(5)
confined = confine()
print(json.dumps({
    "modules": sorted(sys.modules),
    "confined": confined,
    "sent": [path.read_text() for path in MemoryFiles(sent).paths if path.exists()],
    "written": attempt(lambda: (folder / "new").write_bytes(b"")),
    "read": attempt(lambda: (folder / "file").read_bytes()),
    "module": attempt(lambda: Path(os.__file__).read_bytes()),
    "signalled": attempt(lambda: os.kill(os.getppid(), 0)),
    "processes": resource.getrlimit(resource.RLIMIT_NPROC),
    "connected": attempt(lambda: socket.create_connection(("127.0.0.1", port)).close()),
}))
"""

FOREIGN = ("sqlite3", "aiosqlite", "cryptography", "slixmpp", "edge.engine", "edge.features")


def test_a_front_has_no_more_than_it_needs(tmp_path: Path) -> None:
    """No database, no cryptography but TLS, no files of others, no processes, signals and
    connections of its own."""
    (tmp_path / "file").touch()
    command = [sys.executable, "-c", REACH, str(tmp_path), "9"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    modules = found["modules"]
    assert "edge.xmpp.parser" in modules
    assert [name for name in modules if name.startswith(FOREIGN)] == []
    assert sorted(found["sent"]) == ["a certificate", "its key", "the CA"]
    assert found["processes"] == [0, 0]
    if not found["confined"]:
        pytest.skip("this kernel has no Landlock")
    assert found["module"] == ""
    assert (found["written"], found["read"]) == ("EACCES", "EACCES")
    major, minor = (int(part) for part in re.findall(r"\d+", os.uname().release)[:2])
    if (major, minor) >= (6, 7):  # Landlock's version 4
        assert found["connected"] == "EACCES"
    if (major, minor) >= (6, 12):  # version 6
        assert found["signalled"] == "EPERM"
