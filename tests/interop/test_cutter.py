"""The proxy that loses connections on demand: what the tests of resumption rest on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.helpers.cutter import Cutter

WAIT_S = 10.0


@asynccontextmanager
async def echo() -> AsyncIterator[tuple[int, asyncio.Queue[str]]]:
    """A server that gives back what it gets; its queue has how each connection ended."""
    ends: asyncio.Queue[str] = asyncio.Queue()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(1000):
                writer.write(data)
            ends.put_nowait("closed")
        except ConnectionResetError:
            ends.put_nowait("reset")
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1], ends
    finally:
        server.close()


async def exchange(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, data: bytes = b"hello"
) -> bytes:
    writer.write(data)
    return await asyncio.wait_for(reader.readexactly(len(data)), WAIT_S)


async def test_it_forwards_and_hands_on_an_orderly_end() -> None:
    async with echo() as (port, ends):
        with Cutter("127.0.0.1", port) as cutter:
            reader, writer = await asyncio.open_connection("127.0.0.1", cutter.port)
            assert await exchange(reader, writer, b"x" * 300_000) == b"x" * 300_000
            writer.write_eof()
            assert await asyncio.wait_for(reader.read(), WAIT_S) == b""
            assert await asyncio.wait_for(ends.get(), WAIT_S) == "closed"
            writer.close()


async def test_a_cut_resets_both_ends_and_the_next_connection_works() -> None:
    async with echo() as (port, ends):
        with Cutter("127.0.0.1", port) as cutter:
            reader, writer = await asyncio.open_connection("127.0.0.1", cutter.port)
            await exchange(reader, writer)
            assert cutter.cut() == 1
            with pytest.raises(ConnectionResetError):
                await asyncio.wait_for(reader.read(), WAIT_S)
            assert await asyncio.wait_for(ends.get(), WAIT_S) == "reset"
            writer.close()
            reader, writer = await asyncio.open_connection("127.0.0.1", cutter.port)
            assert await exchange(reader, writer) == b"hello"
            assert cutter.accepted == 2
            writer.close()


async def test_what_is_held_comes_through_once_it_is_released() -> None:
    async with echo() as (port, _ends):
        with Cutter("127.0.0.1", port) as cutter:
            cutter.cut(hold=True)
            reader, writer = await asyncio.open_connection("127.0.0.1", cutter.port)
            pending = asyncio.create_task(exchange(reader, writer))
            assert not await came(pending)
            cutter.release()
            assert await pending == b"hello"
            writer.close()


async def test_a_frozen_connection_is_silent_and_stays() -> None:
    async with echo() as (port, _ends):
        with Cutter("127.0.0.1", port) as cutter:
            reader, writer = await asyncio.open_connection("127.0.0.1", cutter.port)
            await exchange(reader, writer)
            cutter.freeze()
            pending = asyncio.create_task(exchange(reader, writer))
            assert not await came(pending)
            cutter.thaw()
            assert await pending == b"hello"
            writer.close()


async def test_what_is_withheld_is_lost_by_a_cut() -> None:
    async with echo() as (port, ends):
        with Cutter("127.0.0.1", port) as cutter:
            reader, writer = await asyncio.open_connection("127.0.0.1", cutter.port)
            await exchange(reader, writer)
            cutter.freeze()
            writer.write(b"lost")
            await asyncio.to_thread(cutter.wait_withheld)
            cutter.cut()
            cutter.thaw()
            assert await asyncio.wait_for(ends.get(), WAIT_S) == "reset"
            writer.close()


async def came(pending: asyncio.Task[bytes]) -> bool:
    """Whether the bytes came although they should not: what would take microseconds got 100 ms."""
    done, _ = await asyncio.wait([pending], timeout=0.1)
    return bool(done)
