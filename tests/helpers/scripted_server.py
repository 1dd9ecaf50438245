"""A scripted server for a component: it sends what a test specifies, valid or not."""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from xml.etree.ElementTree import Element

from tests.helpers.pull_parser import PullParser

SECRET = "between us"
WAIT_S = 15.0

HEADER = (
    "<?xml version='1.0'?><stream:stream xmlns='jabber:component:accept'"
    " xmlns:stream='http://etherx.jabber.org/streams' from='gw.example' id='a>b'>"
)
ID = "a>b"


class Link:
    """A connection of the component, on the server's side."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._parser = PullParser()
        self._depth = 0
        self._elements: list[Element] = []

    def send(self, *pieces: str | bytes) -> None:
        for piece in pieces:
            self._writer.write(piece.encode() if isinstance(piece, str) else piece)

    def close_connection(self) -> None:
        """Close the connection without closing the stream."""
        self._writer.close()

    def pause_reading(self) -> None:
        self._writer.transport.pause_reading()  # type: ignore[attr-defined]

    async def read_stream_header(self) -> str:
        """Wait for the stream header and return it."""
        async with asyncio.timeout(WAIT_S):
            return (await self._reader.readuntil(b">")).decode()

    async def element(self) -> Element:
        async with asyncio.timeout(WAIT_S):
            while not self._elements:
                data = await self._reader.read(65_536)
                if not data:
                    raise ConnectionError("the component has closed the connection")
                self._parser.feed(data)
                self._collect()
            return self._elements.pop(0)

    def _collect(self) -> None:
        for event, element in self._parser.read_events():
            self._depth += 1 if event == "start" else -1
            if event == "end" and self._depth == 1:
                self._elements.append(element)

    async def accept_handshake(self, then: str = "") -> None:
        """Open the stream, check and accept the handshake, and send `then` in the same write."""
        header = await self.read_stream_header()
        assert re.search("to=['\"]gw.example['\"]", header)
        self._parser.feed("<s xmlns='jabber:component:accept' xmlns:stream='s'>")
        self._collect()
        self.send(HEADER)
        handshake = await self.element()
        assert handshake.text == hashlib.sha1(f"{ID}{SECRET}".encode()).hexdigest()  # noqa: S324
        self.send("<handshake/>" + then)

    async def ask(self, stanza: str) -> Element:
        self.send(stanza)
        return await self.element()


class Server:
    """A server to which components connect."""

    def __init__(self) -> None:
        self.links: asyncio.Queue[Link] = asyncio.Queue()
        self.port = 0

    async def link(self) -> Link:
        return await asyncio.wait_for(self.links.get(), WAIT_S)


@asynccontextmanager
async def serving(host: str = "127.0.0.1") -> AsyncIterator[Server]:
    server = Server()
    writers: list[asyncio.StreamWriter] = []

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        await server.links.put(Link(reader, writer))

    listener = await asyncio.start_server(connected, host, 0, limit=2**22)
    server.port = listener.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listener.close()
        for writer in writers:
            writer.transport.abort()
            with suppress(OSError):
                await writer.wait_closed()
        await listener.wait_closed()
