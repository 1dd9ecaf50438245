"""TLS handshakes: stalled, invalid, too many, interrupted accept."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import socket
import tracemalloc
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from sync.receiver.limits import ReceiverLimits
from tests.helpers.fleet import Answer, Centre, running_centre, segment
from tests.helpers.raw_put import read_to_end

STALLED_BYTES = 64 * 1024
"""Memory limit for a stalled handshake; asyncio's own buffer would need four times as much."""


@contextlib.asynccontextmanager
async def stalled(centre: Centre, count: int) -> AsyncIterator[list[asyncio.StreamReader]]:
    """Open `count` connections without a handshake."""
    streams = [await asyncio.open_connection(*centre.client.address) for _ in range(count)]
    try:
        yield [reader for reader, _ in streams]
    finally:
        for _, writer in streams:
            writer.transport.abort()


async def put_when_possible(centre: Centre) -> Answer:
    async with asyncio.timeout(10):
        while True:
            with contextlib.suppress(aiohttp.ClientOSError):
                return await centre.client.put(segment())


async def test_stalled_handshake_counts_as_connection_and_makes_room(tmp_path: Path) -> None:
    async with (
        running_centre(tmp_path / "fleet", ReceiverLimits(connections=2)) as centre,
        stalled(centre, 2) as stalling,
    ):
        assert (await centre.client.put(segment())).status == 201
        assert await read_to_end(stalling[0]) == b"", "the oldest is closed"


async def test_handshake_times_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "fieldpost.fleet")
    limits = ReceiverLimits(connections=1, handshake_timeout_s=0.05)
    async with running_centre(tmp_path / "fleet", limits) as centre, stalled(centre, 1) as first:
        assert await read_to_end(first[0]) == b""
        assert (await put_when_possible(centre)).status == 201
    assert "refused" in [record.getMessage() for record in caplog.records]


async def test_invalid_handshake_is_refused(tmp_path: Path) -> None:
    async with running_centre(tmp_path / "fleet", ReceiverLimits(connections=1)) as centre:
        reader, writer = await asyncio.open_connection(*centre.client.address)
        writer.write(b"GET / HTTP/1.1\r\nHost: centre\r\n\r\n")
        assert b"HTTP" not in await read_to_end(reader)
        writer.transport.abort()
        assert (await put_when_possible(centre)).status == 201


async def test_stalled_handshakes_use_little_memory(tmp_path: Path) -> None:
    count = 50
    async with running_centre(tmp_path / "fleet", ReceiverLimits(connections=count)) as centre:
        tracemalloc.start()
        try:
            before, _ = tracemalloc.get_traced_memory()
            async with stalled(centre, count) as stalling, stalled(centre, 1):
                assert await read_to_end(stalling[0]) == b"", "all others are in their handshake"
                after, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert (after - before) / count < STALLED_BYTES


async def test_stop_closes_a_stalled_handshake(tmp_path: Path) -> None:
    async with contextlib.AsyncExitStack() as clients:
        async with running_centre(tmp_path / "fleet", ReceiverLimits(connections=1)) as centre:
            first = await clients.enter_async_context(stalled(centre, 1))
            second = await clients.enter_async_context(stalled(centre, 1))
            assert await read_to_end(first[0]) == b"", "the second has been accepted"
        assert await read_to_end(second[0]) == b""


async def test_failed_accept_is_logged_and_retried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    faults = [OSError(errno.EMFILE, os.strerror(errno.EMFILE)), ConnectionAbortedError()]
    accept = socket.socket.accept

    def failing(self: socket.socket) -> tuple[socket.socket, object]:
        if faults:
            raise faults.pop(0)
        return accept(self)

    async with running_centre(tmp_path / "fleet", ReceiverLimits(accept_retry_s=0.01)) as centre:
        monkeypatch.setattr(socket.socket, "accept", failing)
        assert (await centre.client.put(segment())).status == 201
    assert [record.getMessage() for record in caplog.records] == ["accept"]
    assert faults == []


async def test_stop_while_accepting_is_suspended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def failing(_: socket.socket) -> tuple[socket.socket, object]:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    async with contextlib.AsyncExitStack() as clients:
        async with running_centre(tmp_path / "fleet", ReceiverLimits()) as centre:
            monkeypatch.setattr(socket.socket, "accept", failing)
            first = await clients.enter_async_context(stalled(centre, 1))
            async with asyncio.timeout(10):
                while not caplog.records:
                    await asyncio.to_thread(os.sched_yield)
        assert await read_to_end(first[0]) == b""
