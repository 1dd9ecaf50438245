from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from firmware_sim.scenarios.link import FaultyLink

_Ends = tuple[asyncio.StreamReader, asyncio.StreamWriter]


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
    asked = 0

    def delay() -> float:
        nonlocal asked
        asked += 1
        return 0.001

    async with FaultyLink("127.0.0.1", echo, delay) as link:
        reader, writer = await _open(link)
        data = bytes(range(256)) * 1000
        writer.write(data)
        async with asyncio.timeout(10):
            assert await reader.readexactly(len(data)) == data
        writer.close()
    assert asked > 2


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
        writer.write(b"anybody?")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await reader.read(1)
        _, other = await _open(link)  # a later connection is whole
        link.cut()
        writer.close()
        other.close()


@pytest.fixture
async def open_ends() -> AsyncIterator[tuple[int, asyncio.Queue[_Ends]]]:
    """Return the port of a silent server, and the ends of its connections."""
    ends: asyncio.Queue[_Ends] = asyncio.Queue()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await ends.put((reader, writer))

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    yield server.sockets[0].getsockname()[1], ends
    server.close()


@pytest.mark.parametrize("ended", ["requests", "answers"])
async def test_one_direction_can_end_while_the_other_continues(
    open_ends: tuple[int, asyncio.Queue[_Ends]], ended: str
) -> None:
    port, ends = open_ends
    async with FaultyLink("127.0.0.1", port) as link, asyncio.timeout(5):
        near = await asyncio.open_connection("127.0.0.1", link.port)
        far = await ends.get()
        near[1].write(b"hello")
        assert await far[0].readexactly(5) == b"hello"
        link.half_close(requests=ended == "requests", answers=ended == "answers")
        deaf, speaking = (far, near) if ended == "requests" else (near, far)
        assert await deaf[0].read() == b""
        speaking[1].write(b"lost")
        deaf[1].write(b"heard")
        assert await speaking[0].readexactly(5) == b"heard"
        link.half_close(requests=True, answers=True)  # what has ended ends no more
        assert await speaking[0].read() == b""
        near[1].transport.abort()
        far[1].transport.abort()


async def test_an_absent_gateway_ends_the_connection() -> None:
    async with FaultyLink("127.0.0.1", 1) as link:
        reader, writer = await asyncio.open_connection("127.0.0.1", link.port)
        async with asyncio.timeout(5):
            assert await reader.read() == b""
        writer.close()


async def test_a_stop_leaves_no_task_and_no_open_port(echo: int) -> None:
    others = asyncio.all_tasks()
    link = FaultyLink("127.0.0.1", echo)
    await link.start()
    _, writer = await _open(link)
    await link.stop()
    writer.close()
    with pytest.raises(ConnectionError):
        await asyncio.open_connection("127.0.0.1", link.port)
    assert {task for task in asyncio.all_tasks() - others if "link" in repr(task)} == set()
