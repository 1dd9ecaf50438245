from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from firmware_sim.scenarios.link import FaultyLink

_Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@pytest.fixture
async def echo() -> AsyncIterator[int]:
    """Return the port of a server that sends everything back."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(1000):
                writer.write(data)
        except ConnectionError:
            pass  # the link was reset
        finally:
            writer.transport.abort()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    yield server.sockets[0].getsockname()[1]
    server.close()


async def _open(link: FaultyLink) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", link.port)
    writer.write(b"hello")
    async with asyncio.timeout(5):
        assert await reader.readexactly(5) == b"hello"
    return reader, writer


async def test_large_data_is_carried_completely(echo: int) -> None:
    delays = 0

    def delay() -> float:
        nonlocal delays
        delays += 1
        return 0.001

    async with FaultyLink("127.0.0.1", echo, delay) as link:
        reader, writer = await _open(link)
        data = bytes(range(256)) * 1000
        writer.write(data)
        async with asyncio.timeout(10):
            assert await reader.readexactly(len(data)) == data
        writer.close()
    assert delays > 2


async def test_a_cut_ends_the_connection_and_the_next_one_works(echo: int) -> None:
    async with FaultyLink("127.0.0.1", echo) as link:
        reader, writer = await _open(link)
        link.cut()
        async with asyncio.timeout(5):
            assert await reader.read() == b""
        writer.close()
        _, writer = await _open(link)
        writer.close()


async def test_a_reset_is_a_connection_reset_at_the_client(echo: int) -> None:
    async with FaultyLink("127.0.0.1", echo) as link:
        reader, writer = await _open(link)
        link.cut(reset=True)
        async with asyncio.timeout(5):
            with pytest.raises(ConnectionResetError):
                await reader.read()
        writer.close()


@pytest.mark.parametrize("lost", ["requests", "answers"])
async def test_one_direction_can_be_lost(echo: int, lost: str) -> None:
    async with FaultyLink("127.0.0.1", echo) as link:
        reader, writer = await _open(link)
        link.lose(requests=lost == "requests", answers=lost == "answers")
        writer.write(b"hello")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await reader.read(1)
        _, other = await _open(link)  # a later connection is not affected
        link.cut()
        writer.close()
        other.close()


@pytest.fixture
async def silent_server() -> AsyncIterator[tuple[int, asyncio.Queue[_Streams]]]:
    """Return the port of a silent server, and the streams of its connections."""
    connections: asyncio.Queue[_Streams] = asyncio.Queue()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await connections.put((reader, writer))

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    yield server.sockets[0].getsockname()[1], connections
    server.close()


@pytest.mark.parametrize("ended", ["requests", "answers"])
async def test_one_direction_can_end_while_the_other_continues(
    silent_server: tuple[int, asyncio.Queue[_Streams]], ended: str
) -> None:
    port, connections = silent_server
    async with FaultyLink("127.0.0.1", port) as link, asyncio.timeout(5):
        client = await asyncio.open_connection("127.0.0.1", link.port)
        server = await connections.get()
        client[1].write(b"hello")
        assert await server[0].readexactly(5) == b"hello"
        link.half_close(requests=ended == "requests", answers=ended == "answers")
        closed, other = (server, client) if ended == "requests" else (client, server)
        assert await closed[0].read() == b""
        other[1].write(b"lost")
        closed[1].write(b"heard")
        assert await other[0].readexactly(5) == b"heard"
        link.half_close(requests=True, answers=True)  # a closed direction is not closed again
        assert await other[0].read() == b""
        client[1].transport.abort()
        server[1].transport.abort()


async def test_an_absent_gateway_ends_the_connection() -> None:
    async with FaultyLink("127.0.0.1", 1) as link:
        reader, writer = await asyncio.open_connection("127.0.0.1", link.port)
        async with asyncio.timeout(5):
            assert await reader.read() == b""
        writer.close()


async def test_a_stop_leaves_no_task_and_no_open_port(echo: int) -> None:
    tasks = asyncio.all_tasks()
    link = FaultyLink("127.0.0.1", echo)
    await link.start()
    _, writer = await _open(link)
    await link.stop()
    writer.close()
    with pytest.raises(ConnectionError):
        await asyncio.open_connection("127.0.0.1", link.port)
    assert {task for task in asyncio.all_tasks() - tasks if "link" in repr(task)} == set()
