"""The transport for TLS between a client and a plain transport, both in memory."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.config.limits import Limits
from edge.ops.certificates import pki
from edge.ops.certificates.tls_context import server_context
from edge.server import tls, tls_transport
from edge.server.tls import BUFFER_BYTES, Hello, TlsContexts, TlsServer
from edge.server.tls_transport import DISCARDED_BYTES, RECORD_BYTES, TlsTransport
from tests.helpers.garbage import garbage

HIGH: Final = 50_000
"""Bytes in the write buffer above which writing is paused."""

ALERT: Final = 21
"""The type of a record that has an alert."""


class PlainTransport(asyncio.Transport):
    """A transport whose socket is in memory: `unsent` is its write buffer."""

    def __init__(self) -> None:
        super().__init__({"peername": ("192.0.2.1", 5222)})
        self.protocol: Any = None
        self.unsent = bytearray()
        self.largest_write = 0
        self.lost = False
        self._reading = False
        self._closing = False
        self._writing_paused = False
        self._low, self._high = 0, 1 << 20

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self.protocol = protocol

    def is_reading(self) -> bool:
        return self._reading and not self._closing

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        self._reading = True

    def write(self, data: bytes | bytearray | memoryview) -> None:
        assert not self._closing
        self.unsent += data
        self.largest_write = max(self.largest_write, len(data))
        if len(self.unsent) > self._high and not self._writing_paused:
            self._writing_paused = True
            self.protocol.pause_writing()

    def get_write_buffer_size(self) -> int:
        return len(self.unsent)

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._low, self._high

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        assert high is not None
        self._low, self._high = high // 4 if low is None else low, high

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            if not self.unsent:
                self._lose()

    def abort(self) -> None:
        self._closing = True
        self.unsent.clear()
        self._lose()

    def send(self, size: int) -> bytes:
        """Take bytes from the write buffer."""
        sent = bytes(self.unsent[:size])
        del self.unsent[:size]
        if len(self.unsent) <= self._low and self._writing_paused:
            self._writing_paused = False
            self.protocol.resume_writing()
        if self._closing and not self.unsent:
            self._lose()
        return sent

    def receive(self, data: bytearray, size: int) -> None:
        """Read at most `size` bytes once, if reading is not paused."""
        if data and self.is_reading():
            view = self.protocol.get_buffer(-1)
            size = min(size, len(view), len(data))
            view[:size] = data[:size]
            del data[:size]
            self.protocol.buffer_updated(size)

    def receive_eof(self) -> None:
        if not self.protocol.eof_received():
            self.close()

    def _lose(self) -> None:
        if not self.lost:
            self.lost = True
            asyncio.get_running_loop().call_soon(self._call_connection_lost)

    def _call_connection_lost(self) -> None:
        protocol, self.protocol = self.protocol, None
        protocol.connection_lost(None)


class Application(asyncio.BufferedProtocol):
    """Collects what it receives by a buffer that is smaller than a record."""

    def __init__(self) -> None:
        self.received = bytearray()
        self.transport: asyncio.Transport | None = None
        self.updates = 0
        self.ends: list[str] = []
        self.writing = True
        self.on_update: Callable[[], None] = lambda: None
        self._buffer = bytearray(5_001)

    def get_buffer(self, sizehint: int) -> bytearray:
        del sizehint
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        assert self.transport is not None, "the handshake is not over"
        assert self.transport.is_reading()
        assert not self.ends
        self.received += self._buffer[:nbytes]
        self.updates += 1
        self.on_update()

    def eof_received(self) -> None:
        self.ends.append("eof")

    def pause_writing(self) -> None:
        assert self.writing
        self.writing = False

    def resume_writing(self) -> None:
        assert not self.writing
        self.writing = True

    def connection_lost(self, exc: Exception | None) -> None:
        assert exc is None
        self.ends.append("lost")


class Link:
    """A client in memory, and the application on a transport that it is connected with."""

    def __init__(self, folder: Path, buffer: memoryview | None = None, **options: Any) -> None:
        files = pki.files(folder)
        client = ssl.create_default_context(cafile=files.ca)
        server = server_context(files)
        for name, value in options.items():
            setattr(server, name, value)
        self.plain = PlainTransport()
        self.application = Application()
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.client = client.wrap_bio(self.incoming, self.outgoing, server_hostname="gw.example")
        self.wire = bytearray()
        """Bytes that the client has sent and the server has not read."""
        self.received = bytearray()
        own = memoryview(bytearray(BUFFER_BYTES))
        self.transport = TlsTransport(
            self.application, self.plain, server, own if buffer is None else buffer
        )
        self.handshake = self.transport.start_handshake(b"")

    async def open(self, early: bytes = b"") -> Link:
        """Do the handshake; the client sends `early` together with the end of the handshake."""
        while not self.handshake.done():
            is_over = self.shake_hands()
            if is_over and early:
                self.send(early)
            self.deliver()
            self.incoming.write(self.plain.send(1 << 20))
        self.shake_hands()
        assert await self.handshake
        self.application.transport = self.transport
        self.transport.set_write_buffer_limits(HIGH)
        self.transport.resume_reading()
        await asyncio.sleep(0)
        return self

    def shake_hands(self) -> bool:
        try:
            self.client.do_handshake()
        except ssl.SSLWantReadError:
            return False
        finally:
            self.wire += self.outgoing.read()
        return True

    def send(self, data: bytes) -> None:
        """Let the client send one record or more."""
        rest = memoryview(data)
        while rest:
            rest = rest[self.client.write(rest) :]
        self.wire += self.outgoing.read()

    def deliver(self, size: int = 1 << 20) -> None:
        """Let the server read what the client has sent, or a part of it."""
        rest = max(0, len(self.wire) - size)
        while len(self.wire) > rest and self.plain.is_reading():
            self.plain.receive(self.wire, len(self.wire) - rest)

    def read(self, size: int = 1 << 20) -> None:
        """Let the client read what the server has sent, or a part of it."""
        self.incoming.write(self.plain.send(size))
        with suppress(ssl.SSLWantReadError, ssl.SSLZeroReturnError):
            while data := self.client.read(RECORD_BYTES):
                self.received += data

    def close(self) -> None:
        """Let the client send close_notify."""
        with suppress(ssl.SSLWantReadError):
            self.client.unwrap()
        self.wire += self.outgoing.read()


STEPS: Final = st.one_of(
    st.tuples(st.sampled_from(["pause", "resume"]), st.just(0)),
    st.tuples(
        st.sampled_from(["send", "deliver", "write", "read"]),
        st.one_of(st.integers(1, 40), st.integers(1, 60_000)),
    ),
)


@given(
    steps=st.lists(STEPS, max_size=40),
    version=st.sampled_from([ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]),
    tickets=st.sampled_from([0, 2]),
)
def test_data_arrives_in_order_whatever_is_paused_and_however_it_is_split(
    new_folder: Path, steps: Sequence[tuple[str, int]], version: ssl.TLSVersion, tickets: int
) -> None:
    async def run() -> None:
        link = await Link(new_folder, maximum_version=version, num_tickets=tickets).open()
        plain, transport, application = link.plain, link.transport, link.application
        sent, written = bytearray(), bytearray()
        for number, (step, size) in enumerate([*steps, ("resume", 0)]):
            data = bytes([number]) * size
            if step == "send":
                link.send(data)
                sent += data
            elif step == "deliver":
                link.deliver(size)
            elif step == "write":
                transport.write(data)
                written += data
            elif step == "read":
                link.read(size)
            else:
                getattr(transport, f"{step}_reading")()
                assert step == "resume" or not plain.is_reading()
                await asyncio.sleep(0)
            assert sent.startswith(application.received)
            assert written.startswith(link.received)
            size = transport.get_write_buffer_size()
            assert len(written) - len(link.received) <= size + RECORD_BYTES
            assert application.writing or size > HIGH // 4
            assert not application.writing or size <= HIGH
        link.deliver()
        link.read()
        assert (application.received, link.received) == (sent, written)
        assert application.writing
        assert plain.largest_write < RECORD_BYTES + 512
        transport.abort()
        await asyncio.sleep(0)
        assert application.ends == ["lost"]

    asyncio.run(run())


async def test_data_waits_until_the_application_resumes_reading(folder: Path) -> None:
    """Some came with the end of the handshake, and some is decrypted when reading is paused."""
    link = await Link(folder).open(early=b"early")
    application, transport = link.application, link.transport
    assert application.received == b"early"
    application.on_update = transport.pause_reading
    data = bytes(range(256)) * 300
    link.send(data)
    link.deliver()
    assert 0 < len(application.received) < len(data)
    assert len(link.wire) > 0, "the plain transport reads on"
    for _ in range(20):
        before = len(application.received)
        transport.resume_reading()
        assert len(application.received) == before
        await asyncio.sleep(0)
        link.deliver()
    assert application.received == b"early" + data


async def test_small_records_are_delivered_together(folder: Path) -> None:
    link = await Link(folder).open()
    for _ in range(100):
        link.send(b"x")
    link.deliver()
    assert link.application.received == b"x" * 100
    assert link.application.updates == 1


async def test_transports_that_share_a_buffer_do_not_mix(folder: Path) -> None:
    """Each application writes to the next transport as it receives."""
    buffer = memoryview(bytearray(BUFFER_BYTES))
    links = [await Link(folder, buffer).open() for _ in range(3)]
    for link, following in zip(links, links[1:] + links[:1], strict=True):

        def write(link: Link = link, following: Link = following) -> None:
            following.transport.write(link.application.received)

        link.application.on_update = write
    texts = [bytes([65 + number]) * 5_000 for number in range(3)]
    for link, text in zip(links, texts, strict=True):
        link.send(text)
    for link in links:
        link.deliver()
    for link in links:
        link.read()
    assert [link.application.received for link in links] == texts
    assert [link.received for link in links] == texts[-1:] + texts[:-1]


# The end


async def test_close_sends_everything_and_waits_for_the_client(folder: Path) -> None:
    link = await Link(folder).open()
    data = bytes(100_000)
    link.transport.write(data)
    link.transport.close()
    link.transport.write(b"too late")
    assert link.transport.is_closing()
    assert not link.plain.is_closing()
    link.read()
    link.close()
    assert link.received == data
    link.deliver()
    await asyncio.sleep(0)
    assert link.application.ends == ["lost"]


async def test_close_with_unread_input_is_no_error(folder: Path) -> None:
    link = await Link(folder).open()
    link.transport.pause_reading()
    link.send(bytes(20_000))
    link.transport.write(b"last words")
    link.transport.close()
    link.transport.pause_reading()
    link.deliver()
    assert not link.plain.is_closing()
    link.read()
    assert link.received == b"last words"
    link.close()
    link.deliver()
    await asyncio.sleep(0)
    assert link.application.received == b""
    assert link.application.ends == ["lost"]


async def test_close_does_not_wait_for_a_client_that_goes_on(folder: Path) -> None:
    link = await Link(folder).open()
    link.transport.close()
    link.send(bytes(DISCARDED_BYTES - 10_000))
    link.deliver()
    assert not link.plain.is_closing()
    link.send(bytes(10_000))
    link.deliver()
    assert link.plain.is_closing()
    assert link.plain.unsent, "close_notify is still to be sent"
    link.read()
    await asyncio.sleep(0)
    assert link.application.ends == ["lost"]


async def test_close_aborts_after_a_time(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tls_transport, "CLOSE_TIMEOUT", 0.0)
    link = await Link(folder).open()
    link.transport.write(b"unread")
    link.transport.close()
    async with asyncio.timeout(60):
        while not link.application.ends:  # noqa: ASYNC110
            await asyncio.sleep(0)
    assert link.plain.lost


async def test_close_notify_of_the_client_is_answered(folder: Path) -> None:
    link = await Link(folder).open()
    link.application.on_update = lambda: link.transport.write(b"answer")
    link.send(b"last words")
    link.close()
    link.deliver()
    assert link.application.received == b"last words"
    link.read()
    assert link.received == b"answer"
    link.client.unwrap()  # the transport's close_notify has arrived
    await asyncio.sleep(0)
    assert link.application.ends == ["eof", "lost"]


async def test_end_without_close_notify(folder: Path) -> None:
    link = await Link(folder).open()
    link.transport.write(b"answer")
    link.plain.receive_eof()
    link.transport.write(b"too late")
    link.read()
    await asyncio.sleep(0)
    assert link.received == b"answer"
    assert link.application.ends == ["eof", "lost"]


async def test_forged_record_ends_the_connection_with_an_alert(folder: Path) -> None:
    link = await Link(folder, maximum_version=ssl.TLSVersion.TLSv1_2).open()
    sent: list[bytes] = []
    link.plain.write = sent.append  # type: ignore[assignment, method-assign]
    link.send(b"valid")
    link.wire += b"\x17\x03\x03\x00\x40" + bytes(64)
    link.deliver()
    assert link.application.received == b"valid"
    assert [record[0] for record in sent] == [ALERT]
    await asyncio.sleep(0)
    assert link.application.ends == ["lost"]


async def test_an_error_of_the_application_ends_the_connection(folder: Path) -> None:
    link = await Link(folder).open()
    link.send(bytes(10_000))
    link.application.on_update = link.transport.pause_reading
    link.deliver()
    errors: list[object] = []
    asyncio.get_running_loop().set_exception_handler(
        lambda _loop, found: errors.append(found["exception"])
    )

    def fail() -> None:
        raise OverflowError

    link.application.on_update = fail
    link.transport.resume_reading()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert [type(error) for error in errors] == [OverflowError]
    assert link.application.ends == ["lost"]


async def test_protocol_and_information_of_a_transport(folder: Path) -> None:
    link = await Link(folder).open()
    transport = link.transport
    assert transport.get_write_buffer_limits() == (HIGH // 4, HIGH)
    assert transport.get_extra_info("peername") == ("192.0.2.1", 5222)
    assert transport.get_extra_info("ssl_object").version() == "TLSv1.3"
    assert transport.get_extra_info("sslcontext") is transport.get_extra_info("ssl_object").context
    assert transport.get_extra_info("unknown", "none") == "none"
    assert not transport.can_write_eof()
    other = Application()
    other.transport = transport
    transport.set_protocol(other)
    assert transport.get_protocol() is other
    link.send(b"data")
    link.deliver()
    assert link.application.received == b""
    assert other.received == b"data"


# The handshake


async def test_an_aborted_handshake_has_not_succeeded(folder: Path) -> None:
    for end in (TlsTransport.abort, TlsTransport.close):
        link = Link(folder)
        end(link.transport)
        assert not await link.handshake
        assert link.application.ends == []


async def test_end_of_the_client_fails_the_handshake(folder: Path) -> None:
    link = Link(folder)
    link.plain.receive_eof()
    with pytest.raises(ConnectionResetError):
        await link.handshake
    await asyncio.sleep(0)
    assert link.application.ends == []


async def test_silent_client_fails_the_handshake_after_a_time(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls, "SLOT_TIME", 0.0)
    limits = Limits(authenticate_time=0.001)
    server = TlsServer(TlsContexts(folder, "gw.example", pytest.fail), limits)
    failures: list[tuple[str, str]] = []
    plain = PlainTransport()

    async def handshake() -> object:
        return await server.handshake(Application(), plain, None, lambda *f: failures.append(f))

    assert await handshake() is None
    assert failures == [("tls", "the peer did not complete the handshake")]
    assert server.active_handshakes == 0
    plain.close()
    assert await handshake() is None
    assert len(failures) == 1


async def test_a_failed_handshake_is_freed_without_garbage_collection(folder: Path) -> None:
    server = TlsServer(TlsContexts(folder, "gw.example", pytest.fail), Limits())
    failures: list[tuple[str, str]] = []
    hello = Hello(b"\x16\x03\x01\x00\x04\x01\x00\x00\x00", "")

    async def handshake() -> None:
        plain = PlainTransport()
        plain.write = alerts.append  # type: ignore[assignment, method-assign]
        assert not await server.handshake(
            Application(), plain, hello, lambda *failure: failures.append(failure)
        )
        await asyncio.sleep(0)

    alerts: list[bytes] = []
    with garbage() as left:
        await handshake()
    assert failures == [("tls", "handshake failed: length too short")]
    assert [alert[0] for alert in alerts] == [ALERT]
    assert [one for one in left if isinstance(one, TlsTransport | ssl.SSLObject)] == []
