"""A client that interrupts and resumes uploads."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable

import aiohttp

from sync.segment import Identity
from tests.helpers.fleet import Answer, Client

FINAL = frozenset({200, 201, 409})
"""The final status codes of an upload."""

REPEATED = frozenset({416, 429, 503})
"""The status codes after which a request is repeated: a slow machine gets them more often."""

PIECE = 16 * 1024


def pieces(data: bytes) -> Iterable[bytes]:
    """Yield the data in pieces of 16 KiB."""
    return (data[at : at + PIECE] for at in range(0, len(data), PIECE))


async def send_interrupted(connected: Client, name: Identity, data: bytes, size: int) -> None:
    """Send the first bytes of a body and close the connection."""

    async def body() -> AsyncIterator[bytes]:
        for piece in pieces(data[:size]):
            yield piece
        raise ConnectionAbortedError

    with contextlib.suppress(OSError, aiohttp.ClientError):
        await connected.put(data, name, body(), Content_Length=str(len(data)))


async def resume(
    connected: Client,
    name: Identity,
    data: bytes,
    sending: Callable[[bytes], Iterable[bytes]] = pieces,
) -> Answer:
    """Query the offset and send the rest, until there is a final answer, at most for 30 s.

    All bytes are sent if none, or all, are stored. `sending` splits bytes into pieces.
    Raises OSError or ClientError if the connection breaks.
    """
    async with asyncio.timeout(30):
        while True:
            answer = await connected.head(name, data)
            if answer.status == 200:
                return answer
            if answer.status in REPEATED:
                continue
            assert answer.status == 404, answer
            offset = int(answer.headers["x-fieldpost-offset"])
            start = offset if offset < len(data) else 0
            headers = {"Content_Length": str(len(data) - start)}
            if start:
                headers["Content_Range"] = f"bytes {start}-{len(data) - 1}/{len(data)}"
            upload = await connected.put(data, name, _body(sending(data[start:])), **headers)
            if upload.status in FINAL:
                return upload
            assert upload.status in REPEATED, upload


async def _body(parts: Iterable[bytes]) -> AsyncIterator[bytes]:
    for piece in parts:
        yield piece
