"""A client that interrupts and resumes uploads."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import AsyncIterator, Callable, Iterable

import aiohttp

from sync.segment import Identity, identity_path
from tests.helpers.fleet import Answer, Client

FINAL = frozenset({200, 201, 409})
"""The final status codes of an upload."""

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

    headers = {
        "Authorization": f"Bearer {connected.tokens[name.gateway]}",
        "X-Fieldpost-SHA256": hashlib.sha256(data).hexdigest(),
        "Content-Length": str(len(data)),
    }
    with contextlib.suppress(OSError, aiohttp.ClientError):
        await connected.send("PUT", f"/v1/segments/{identity_path(name)}", headers, body())


async def resume(
    connected: Client,
    name: Identity,
    data: bytes,
    sending: Callable[[bytes], Iterable[bytes]] = pieces,
) -> Answer:
    """Query the offset and send the rest, until there is a final answer, at most for 30 s.

    `sending` gives the pieces of what is sent. Raises OSError or ClientError when the connection
    breaks.
    """
    async with asyncio.timeout(30):
        while True:
            answer = await connected.head(name, data)
            if answer.status == 200:
                return answer
            sent = await _rest(
                connected, name, data, int(answer.headers["x-fieldpost-offset"]), sending
            )
            if sent.status in FINAL:
                return sent
            assert sent.status in {416, 503}, sent


async def _rest(
    connected: Client,
    name: Identity,
    data: bytes,
    there: int,
    sending: Callable[[bytes], Iterable[bytes]],
) -> Answer:
    """Send the missing part of a body; all of it if nothing, or everything, is stored."""
    start = there if there < len(data) else 0
    headers = {
        "Authorization": f"Bearer {connected.tokens[name.gateway]}",
        "X-Fieldpost-SHA256": hashlib.sha256(data).hexdigest(),
        "Content-Length": str(len(data) - start),
    }
    if start:
        headers["Content-Range"] = f"bytes {start}-{len(data) - 1}/{len(data)}"

    async def body() -> AsyncIterator[bytes]:
        for piece in sending(data[start:]):
            yield piece

    return await connected.send("PUT", f"/v1/segments/{identity_path(name)}", headers, body())
