"""A proxy that knows CONNECT alone, and takes every name for this machine."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field


@dataclass
class ConnectProxy:
    """The proxy: `asked` has the head of each request, `answer` is the status that it gives."""

    answer: str = "200 Connection established"
    url: str = ""
    asked: list[str] = field(default_factory=list)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Read one request; copy bytes both ways if the answer is 200."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode("ascii")
        self.asked.append(head)
        writer.write(f"HTTP/1.1 {self.answer}\r\n\r\n".encode())
        await writer.drain()
        if self.answer.startswith("200"):
            port = int(head.split()[1].rpartition(":")[2])
            there, back = await asyncio.open_connection("127.0.0.1", port)
            await asyncio.gather(copy(reader, back), copy(there, writer))
        writer.close()


async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
    writer.close()


@contextlib.asynccontextmanager
async def proxying() -> AsyncIterator[ConnectProxy]:
    """Run a proxy on a free port; its connections are gone at the end."""
    proxy = ConnectProxy()
    open_now: set[asyncio.Task[None]] = set()

    async def one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        open_now.add(task)
        try:
            await proxy.serve(reader, writer)
        finally:
            open_now.discard(task)

    server = await asyncio.start_server(one, "127.0.0.1", 0)
    proxy.url = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield proxy
    finally:
        server.close()
        for task in list(open_now):
            task.cancel()
        await asyncio.gather(*open_now, return_exceptions=True)
