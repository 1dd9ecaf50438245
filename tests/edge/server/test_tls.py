"""The files of certificates, and the input buffer that all TLS connections of an event loop share.

The sharing relies on internals of asyncio. These tests fail with a Python in which it has no effect
or is not safe.
"""

from __future__ import annotations

import asyncio
import re
import shutil
import ssl
import sys
import time
from asyncio import sslproto
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from edge.config.limits import Limits
from edge.errors import SetupError
from edge.server import tls
from edge.server.tls import (
    BUFFER_BYTES,
    EXPIRED,
    NOT_VALID_YET,
    PeerCertificate,
    TlsContexts,
    TlsServer,
    share_input,
)
from tests.helpers.pki import issue_server

BYTES = 8_000
"""Bytes that a client sends at once; the server receives them in one piece or more."""


class Application(asyncio.Protocol):
    """Collects what a connection receives, and sends it to `next` in the same callback."""

    def __init__(self) -> None:
        self.received = bytearray()
        self.next: asyncio.Transport | None = None
        self._arrived = asyncio.Event()

    def data_received(self, data: bytes) -> None:
        self.received += data
        if self.next is not None:
            self.next.write(data)
        self._arrived.set()

    async def receive(self, size: int) -> bytes:
        """Return all that was received when it is `size` bytes or more."""
        async with asyncio.timeout(60):
            while len(self.received) < size:
                self._arrived.clear()
                await self._arrived.wait()
        return bytes(self.received)


class PlainConnection(asyncio.Protocol):
    """A connection before TLS, which starts the handshake."""

    def __init__(self, server: Server) -> None:
        self._server = server

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        # Python 3.11.2 reads after this call although reading is paused in it.
        asyncio.get_running_loop().call_soon(self._begin, transport)

    def _begin(self, transport: asyncio.Transport) -> None:
        transport.pause_reading()
        work = self._server.accept(transport)
        self._server.tasks.append(asyncio.get_running_loop().create_task(work))


class Connection(NamedTuple):
    application: Application
    transport: asyncio.Transport
    protocol: Any
    """asyncio's protocol for TLS."""


def _fail_untrusted(rule: str, reason: str) -> None:
    pytest.fail(f"{rule}: {reason}")


class Server:
    def __init__(self, folder: Path) -> None:
        self._tls = TlsServer(TlsContexts(folder, "gw.example", pytest.fail), Limits())
        self.tasks: list[asyncio.Task[None]] = []
        self.accepted: asyncio.Queue[Connection] = asyncio.Queue()

    async def accept(self, plain: asyncio.Transport) -> None:
        application = Application()
        transport = await self._tls.handshake(application, plain, None, _fail_untrusted)
        assert transport is not None
        self.accepted.put_nowait(Connection(application, transport, plain.get_protocol()))


class Pair(NamedTuple):
    client: Application
    sender: asyncio.Transport
    server: Connection


@asynccontextmanager
async def connected(folder: Path, count: int) -> AsyncIterator[list[Pair]]:
    loop = asyncio.get_running_loop()
    server = Server(folder)
    listener = await loop.create_server(lambda: PlainConnection(server), "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    context = ssl.create_default_context(cafile=folder / "pki" / "ca.pem")
    pairs: list[Pair] = []
    try:
        for _ in range(count):
            transport, client = await loop.create_connection(
                Application, "127.0.0.1", port, ssl=context, server_hostname="gw.example"
            )
            pairs.append(Pair(client, transport, await server.accepted.get()))
        yield pairs
    finally:
        listener.close()
        for pair in pairs:
            pair.sender.abort()
            pair.server.transport.abort()
        await asyncio.sleep(0)


@pytest.fixture(autouse=True)
def small_buffers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sslproto.SSLProtocol, "max_size", BUFFER_BYTES)


def test_dates_of_a_certificate() -> None:
    certificate = PeerCertificate(b"", "1", 1_000, 2_000)
    faults = [certificate.fault(now) for now in (999, 1_000, 2_000, 2_001)]
    assert faults == [NOT_VALID_YET, "", "", EXPIRED]


async def test_all_connections_of_a_server_have_one_buffer(folder: Path) -> None:
    async with connected(folder, 3) as pairs:
        views = [memoryview(pair.server.protocol.get_buffer(-1)) for pair in pairs]
        assert len({id(view.obj) for view in views}) == 1
        assert {len(view) for view in views} == {BUFFER_BYTES}


async def test_bytes_of_connections_do_not_mix(folder: Path) -> None:
    """Each of the server's connections writes to the next one when it receives."""
    async with connected(folder, 4) as pairs:
        for pair, following in zip(pairs, pairs[1:] + pairs[:1], strict=True):
            pair.server.application.next = following.server.transport
        texts = [bytes([65 + number]) * BYTES for number in range(4)]
        for pair, text in zip(pairs, texts, strict=True):
            pair.sender.write(text)
        received = [await pair.client.receive(BYTES) for pair in pairs]
        assert received == texts[-1:] + texts[:-1]
        assert [pair.server.application.received for pair in pairs] == texts


async def test_received_bytes_are_copied_before_the_application_has_them(folder: Path) -> None:
    """The application overwrites the shared buffer in each of its many callbacks."""

    class OverwritingApplication(Application):
        def data_received(self, data: bytes) -> None:
            view[:] = bytes(len(view))
            super().data_received(data)

    async with connected(folder, 1) as (pair,):
        view = pair.server.protocol.get_buffer(-1)
        application = OverwritingApplication()
        pair.server.transport.set_protocol(application)
        text = bytes(range(256)) * 1024
        pair.sender.write(text)
        assert await application.receive(len(text)) == text


async def test_transport_fills_the_buffer_and_passes_it_on_in_one_callback() -> None:
    class Reader(asyncio.BufferedProtocol):
        def __init__(self) -> None:
            self.buffer = bytearray(16)
            self.lent = False
            self.received = 0
            self.ended = loop.create_future()

        def get_buffer(self, sizehint: int) -> bytearray:
            del sizehint
            self.lent = True
            loop.call_soon(self.later)
            return self.buffer

        def buffer_updated(self, nbytes: int) -> None:
            self.lent = False
            self.received += nbytes

        def eof_received(self) -> None:
            self.lent = False

        def later(self) -> None:
            if self.lent and not self.ended.done():
                self.ended.set_exception(AssertionError("another callback ran in between"))

        def connection_lost(self, exc: Exception | None) -> None:
            if not self.ended.done():
                self.ended.set_result(None)

    loop = asyncio.get_running_loop()
    reader = Reader()
    async with await loop.create_server(lambda: reader, "127.0.0.1", 0) as listener:
        transport, _ = await loop.create_connection(
            asyncio.Protocol, *listener.sockets[0].getsockname()
        )
        transport.write(bytes(1000))
        transport.close()
        async with asyncio.timeout(60):
            await reader.ended
    assert reader.received == 1000


async def test_buffer_is_not_shared_if_sharing_may_be_unsafe(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    buffer = memoryview(bytearray(BUFFER_BYTES))
    async with connected(folder, 1) as (pair,):
        protocol = pair.server.protocol
        own = protocol._ssl_buffer = bytearray(BUFFER_BYTES)
        assert not share_input(Application(), buffer)
        assert not share_input(protocol, buffer[1:])
        for target, name, value in (
            (sys, "version_info", (3, 15, 0, "alpha", 0)),
            (asyncio, "SelectorEventLoop", asyncio.Event),
            (protocol, "_ssl_buffer_view", None),
        ):
            with monkeypatch.context() as patch:
                patch.setattr(target, name, value)
                assert not share_input(protocol, buffer)
        assert protocol._ssl_buffer is own
        assert share_input(protocol, buffer)
        assert memoryview(protocol.get_buffer(-1)).obj is buffer.obj


@pytest.mark.parametrize(
    ("name", "other", "problem"),
    [
        ("server.pem", None, "server.pem cannot be read: No such file or directory"),
        ("server.key", None, "server.key cannot be read: No such file or directory"),
        ("ca.pem", None, "ca.pem cannot be read: No such file or directory"),
        ("server.key", "ca.key", "server.key is not the key of .*server.pem"),
        ("server.pem", "crl.pem", "server.pem and .*server.key cannot be used: "),
        ("server.key", "ca.pem", "server.pem and .*server.key cannot be used: "),
        ("ca.pem", "ca.key", "ca.pem cannot be used: "),
        ("crl.pem", "ca.key", "crl.pem cannot be used: "),
    ],
)
def test_error_names_the_file(folder: Path, name: str, other: str | None, problem: str) -> None:
    TlsContexts(folder, "gw.example", pytest.fail)
    (folder / "pki" / name).unlink()
    if other is not None:
        shutil.copy(folder / "pki" / other, folder / "pki" / name)
    with pytest.raises(SetupError) as error:
        TlsContexts(folder, "gw.example", pytest.fail)
    assert re.search(problem, str(error.value))
    assert "_ssl.c" not in str(error.value)


@pytest.mark.parametrize("name", ["server.pem", "server.key", "ca.pem", "crl.pem"])
def test_folder_in_place_of_a_file_is_reported(folder: Path, name: str) -> None:
    (folder / "pki" / name).unlink()
    (folder / "pki" / name).mkdir()
    with pytest.raises(SetupError, match=f"{name} cannot be read: it is a folder"):
        TlsContexts(folder, "gw.example", pytest.fail)


def test_a_certificate_that_devices_refuse_does_not_replace_the_one_in_use(folder: Path) -> None:
    changes: list[None] = []
    contexts = TlsContexts(folder, "gw.example", lambda: changes.append(None))
    first = contexts.get()
    for domain, days in (("gw.example", -1), ("gw.example", 60), ("other.example", 1)):
        issue_server(folder, domain, days)
        for _ in range(2):
            assert contexts.get() is first
        assert contexts.error is not None
        assert "; the certificate in use stays: " in contexts.error
        with pytest.raises(SetupError, match=r"server\.pem"):
            contexts.load()
    assert len(changes) == 3
    issue_server(folder, "gw.example", 1)
    assert contexts.get() is not first
    assert contexts.error is None


def test_refused_files_are_tried_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that was behind makes a certificate seem not valid yet."""
    contexts = TlsContexts(folder, "gw.example", lambda: None)
    first = contexts.get()
    issue_server(folder, "gw.example", 60)
    monkeypatch.setattr(tls, "RETRY_TIME", 0.0)
    assert contexts.get() is first
    later = time.time() + 31 * 86_400
    monkeypatch.setattr(time, "time", lambda: later)
    assert contexts.get() is not first


def test_an_expired_certificate_is_used_at_the_start_until_it_is_renewed(folder: Path) -> None:
    issue_server(folder, "gw.example", -1)
    assert TlsContexts(folder, "gw.example", pytest.fail).error is None


def test_revocation_list_is_optional(folder: Path) -> None:
    (folder / "pki" / "crl.pem").unlink()
    TlsContexts(folder, "gw.example", pytest.fail)
