"""A client of MQTT over WebSocket, which makes its frames itself (RFC 6455, section 5.2)."""

from __future__ import annotations

import asyncio
import secrets
import ssl
from contextlib import suppress
from typing import Any, Final, Self, cast

from edge.mqtt.packets import V5
from tests.helpers.mqtt import WAIT_S, MqttClient, open_streams
from tests.helpers.processes import Process
from tests.helpers.xmpp import closed_on_error

CONTINUATION: Final = 0
TEXT: Final = 1
BINARY: Final = 2
CLOSE: Final = 8
PING: Final = 9
PONG: Final = 10

REQUEST: Final = """\
GET {path} HTTP/1.1\r
Host: gw.example\r
Upgrade: websocket\r
Connection: Upgrade\r
Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r
Sec-WebSocket-Version: 13\r
Sec-WebSocket-Protocol: {protocol}\r
Sec-WebSocket-Extensions: permessage-deflate\r
\r
"""


def frame(kind: int, data: bytes, *, is_last: bool = True) -> bytes:
    """Build a frame of a client, which has a mask."""
    size, mask = len(data), secrets.token_bytes(4)
    head = bytes((kind | (0x80 if is_last else 0),))
    if size < 126:
        head += bytes((size | 0x80,))
    elif size < 1 << 16:
        head += b"\xfe" + size.to_bytes(2)
    else:
        head += b"\xff" + size.to_bytes(8)
    return head + mask + bytes(byte ^ mask[at % 4] for at, byte in enumerate(data))


class Frames:
    """The stream of a WebSocket's messages, in place of that of the socket.

    Attributes:
        status: the HTTP status of the answer.
        headers: its headers.
        close_code: the status code of the gateway's Close frame.
        pongs: what the gateway has sent in Pong frames.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self.raw = writer
        self.status = 0
        self.headers: dict[str, str] = {}
        self.close_code: int | None = None
        self.pongs: list[bytes] = []

    async def shake_hands(self, path: str, protocol: str) -> None:
        self.raw.write(REQUEST.format(path=path, protocol=protocol).encode())
        head = await asyncio.wait_for(self._reader.readuntil(b"\r\n\r\n"), WAIT_S)
        first, *lines = head.decode().split("\r\n")
        self.status = int(first.split()[1])
        fields = (line.partition(":") for line in lines if line)
        self.headers = {name.lower(): value.strip() for name, _, value in fields}

    async def wait_end(self) -> None:
        """Wait until the gateway has closed the connection."""
        await asyncio.wait_for(self._reader.read(), WAIT_S)

    def write(self, data: bytes) -> None:
        self.raw.write(frame(BINARY, data))

    async def read(self, _most: int) -> bytes:
        """Return the content of the next binary frame; empty bytes at the end."""
        while self.close_code is None:
            try:
                kind, data = await self._frame()
            except (asyncio.IncompleteReadError, ConnectionError):
                break
            if kind == BINARY:
                return data
            if kind == CLOSE:
                self.close_code = int.from_bytes(data[:2])
            elif kind == PONG:
                self.pongs.append(data)
        return b""

    async def _frame(self) -> tuple[int, bytes]:
        first, size = await self._reader.readexactly(2)
        assert first & 0x80, "the frame is not the whole message"
        assert size < 0x80, "a server must not mask"
        if size > 125:
            size = int.from_bytes(await self._reader.readexactly(2 if size == 126 else 8))
        return first & 15, await self._reader.readexactly(size)

    def close(self) -> None:
        self.raw.close()

    async def wait_closed(self) -> None:
        with suppress(ssl.SSLError):  # the gateway's Close frame came after the end of TLS
            await self.raw.wait_closed()


class WebSocketClient(MqttClient):
    """A connection of MQTT over WebSocket."""

    frames: Frames

    @classmethod
    async def open(
        cls,
        at: tuple[str, int] | Process,
        version: int = V5,
        tls: ssl.SSLContext | None = None,
        name: str = "mqttws",
        *,
        path: str = "/mqtt",
        protocol: str = "mqtt",
    ) -> Self:
        """Open a connection, and ask for a WebSocket."""
        frames = Frames(*await open_streams(at, tls, name))
        found = cls(cast(Any, frames), cast(Any, frames), version)
        found.frames = frames
        async with closed_on_error(found):
            await frames.shake_hands(path, protocol)
        return found
