"""Unauthenticated, slow, excessive and invalid connections."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sync.receiver.limits import ReceiverLimits
from sync.segment import identity_path
from tests.helpers.fleet import GATEWAY, OTHER, Centre, Streams, identity, running_centre, segment
from tests.helpers.raw_put import close, open_upload, read_to_end, wait_for_partial_files

HEAD = f"HEAD /v1/segments/{identity_path(identity())} HTTP/1.1\r\nHost: centre\r\n"


@contextlib.asynccontextmanager
async def connected(centre: Centre, count: int = 1) -> AsyncIterator[list[Streams]]:
    """Open idle TLS connections."""
    async with contextlib.AsyncExitStack() as stack:
        found = [await centre.connect() for _ in range(count)]
        for _, writer in found:
            stack.callback(writer.transport.abort)
        yield found


async def is_refused(centre: Centre) -> bool:
    """Return whether another connection is closed without data."""
    try:
        async with connected(centre) as ((reader, _),):
            reading = asyncio.ensure_future(read_to_end(reader))
            await centre.client.head()
            if reading.done():
                return True
            reading.cancel()
            return False
    except (ConnectionError, ssl.SSLError):
        return True


def authenticated_head(centre: Centre, gateway: str = GATEWAY) -> str:
    """Return a request with a gateway's token."""
    path = identity_path(identity(gateway=gateway))
    token = centre.client.tokens[gateway]
    head = HEAD.replace(identity_path(identity()), path)
    return f"{head}Authorization: Bearer {token}\r\n\r\n"


async def ask(streams: Streams, head: str) -> bytes:
    """Send a request and return the headers of the answer."""
    streams[1].write(head.encode())
    async with asyncio.timeout(10):
        return await streams[0].readuntil(b"\r\n\r\n")


async def test_new_connections_beyond_the_rate_do_not_block_connected_gateways(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    limits = ReceiverLimits(connections_per_address_s=0.01, rate_window_s=300.0)
    async with running_centre(tmp_path / "fleet", limits) as centre:
        assert (await centre.client.put(segment())).status == 201
        async with connected(centre, 2):
            assert await is_refused(centre)
            assert (await centre.client.put(segment())).status == 200, "it is connected"
    assert {record.getMessage() for record in caplog.records} == {"refused"}


async def test_idle_connections_of_a_site_make_room_for_its_gateways(tmp_path: Path) -> None:
    """120 sockets behind one address say nothing: most do not even begin a TLS handshake."""
    async with running_centre(tmp_path / "fleet") as centre, contextlib.AsyncExitStack() as stack:
        idle = await stack.enter_async_context(connected(centre, 4))
        for _ in range(120):
            _, writer = await asyncio.open_connection(*centre.client.address)
            stack.callback(writer.transport.abort)
            idle.append((_, writer))
        [gateway] = await stack.enter_async_context(connected(centre))
        assert b" 404 " in await ask(gateway, authenticated_head(centre, OTHER))
        assert (await centre.client.put(segment())).status == 201
        for reader, _ in idle[: 124 - ReceiverLimits().unauthenticated_per_address]:
            assert await read_to_end(reader) == b""
        assert b" 404 " in await ask(gateway, authenticated_head(centre, OTHER))


@pytest.mark.parametrize("data", [b"", HEAD.encode()], ids=["none", "lines"])
async def test_first_request_has_a_time_limit(tmp_path: Path, data: bytes) -> None:
    limits = ReceiverLimits(first_request_timeout_s=0.3)
    async with running_centre(tmp_path / "fleet", limits) as centre:
        async with connected(centre) as ((reader, writer),):
            writer.write(data)
            assert await read_to_end(reader) == b""
            assert (await centre.client.put(segment())).status == 201
        assert (await centre.client.put(segment())).status == 200, "only the first request has it"


@pytest.mark.parametrize(
    ("head", "status", "reason"),
    [
        (f"{HEAD}\r\n", b"401", b""),
        (f"{HEAD}Authorization: Bearer nobody's\r\n\r\n", b"401", b""),
        ("GET / HTTP/1.1\r\nHost: centre\r\n\r\n", b"404", b'"request"'),
        ("DELETE /v1/segments/a/b/c/d HTTP/1.1\r\nHost: centre\r\n\r\n", b"405", b'"request"'),
        (f"{HEAD}Expect: wonders\r\n\r\n", b"417", b""),
        ("OPTIONS * HTTP/1.1\r\nHost: centre\r\n\r\n", b"404", b'"request"'),
    ],
)
async def test_unauthenticated_connection_closes_after_one_answer(
    tmp_path: Path, head: str, status: bytes, reason: bytes
) -> None:
    """This includes a connection that sends a hundred requests at once."""
    async with (
        running_centre(tmp_path / "fleet") as centre,
        connected(centre) as ((reader, writer),),
    ):
        writer.write(head.encode() * 100)
        answer = await read_to_end(reader)
    assert answer.split(b" ")[1] == status
    assert reason in answer
    assert answer.count(b"HTTP/1.1 ") == 1
    assert b"\r\nConnection: close\r\n" in answer
    assert b"\r\nServer: fieldpost\r\n" in answer


async def test_authenticated_connection_stays_open(tmp_path: Path) -> None:
    async with running_centre(tmp_path / "fleet") as centre, connected(centre) as (streams,):
        foreign_head = authenticated_head(centre).replace(f"/{GATEWAY}/", f"/{OTHER}/")
        for _ in range(2):
            assert b" 404 " in await ask(streams, authenticated_head(centre))
            assert b" 403 " in await ask(streams, foreign_head)
        assert b" 401 " in await ask(streams, f"{HEAD}\r\n")
        assert await read_to_end(streams[0]) == b"", "a failed authentication ends it"


async def test_slow_upload_is_aborted_and_resumed(tmp_path: Path) -> None:
    limits = ReceiverLimits(
        linger_s=0.1,
        buffer_bytes=1,
        min_throughput_window_s=0.2,
        min_bytes_per_s=10**9,
        stall_timeout_s=30.0,
    )
    data = segment(text="x" * 1_000)
    async with running_centre(tmp_path / "fleet", limits) as centre:
        length = f"Content-Length: {len(data)}"
        reader, writer = await open_upload(centre, data[:10], data, length)
        answering = asyncio.ensure_future(read_to_end(reader))
        sent = 10
        async with asyncio.timeout(10):
            while not answering.done():
                await centre.client.head()  # waits for an answer
                if sent < len(data) - 1 and not writer.is_closing():
                    writer.write(data[sent : sent + 1])
                    sent += 1
        assert b" 408 " in answering.result()
        await close(writer)
        await wait_for_partial_files(centre, 0)
        stored = int((await centre.client.head(data=data)).headers["x-fieldpost-offset"])
        assert 10 <= stored < len(data)


@pytest.mark.parametrize(
    "head",
    [
        b"\x16\x03\x01" * 100,
        b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 1_000 + b"\r\n",
        b"GET / HTTP/1.1\r\nA: " + b"b" * 10_000 + b"\r\n\r\n",
        b"GET /" + b"b" * 10_000 + b" HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"PUT / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"GET / HTTP/1.1\r\nA\0: b\r\n\r\n",
        b"GET http://[ HTTP/1.1\r\nHost: centre\r\n\r\n",
        b"GET //%ff%00\\ HTTP/1.1\r\nHost: \xff\xff\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
        + b"x" * 9,
        b"CONNECT centre:443 HTTP/1.1\r\nHost: centre\r\n\r\nmore",
        b"GET / HTTP/1.1\nA: b\n\n",
    ],
)
async def test_invalid_http_is_refused_without_stack_trace(
    tmp_path: Path, head: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "fieldpost.fleet")
    async with running_centre(tmp_path / "fleet") as centre:
        async with connected(centre) as ((reader, writer),):
            writer.write(head)
            answer = await read_to_end(reader)
        assert (await centre.client.put(segment())).status == 201
    assert answer.split(b" ")[1] in {b"400", b"404"}
    log_entries = {(record.getMessage(), record.levelno) for record in caplog.records}
    assert log_entries <= {("refused", logging.INFO)}


async def test_conflict_is_logged_as_warning_with_the_segment(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running_centre(tmp_path / "fleet") as centre:
        await centre.client.put(segment())
        assert (await centre.client.put(segment(text="other"))).status == 409
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    facts = record.facts  # type: ignore[attr-defined]
    assert (facts["reason"], facts["gateway"]) == ("conflict", GATEWAY)
    assert (facts["lane"], facts["numbers"]) == ("logs", "1-3")
