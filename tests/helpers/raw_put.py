"""Raw HTTP uploads: arbitrary headers, unfinished bodies, complete answers."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import ssl
from pathlib import Path

from sync.segment import identity_path
from tests.helpers.fleet import (
    GATEWAY,
    Centre,
    identity,
)


async def raw_request(centre: Centre, head: str, body: bytes = b"") -> tuple[str, bytes]:
    """Send bytes that no tidy client would, and read the answer to its end."""
    context = ssl.create_default_context(cafile=str(centre.folder.pki / "ca.pem"))
    reader, writer = await asyncio.open_connection(*centre.client.address, ssl=context)
    try:
        writer.write(head.replace("\n", "\r\n").encode() + body)
        async with asyncio.timeout(10):
            answer = await reader.read()
    finally:
        writer.close()
        await writer.wait_closed()
    return answer.split(b"\r\n", 1)[0].decode(), answer


def put_head(centre: Centre, *lines: str, data: bytes = b"", gateway: str = GATEWAY) -> str:
    return "\n".join(
        (
            f"PUT /v1/segments/{identity_path(identity())} HTTP/1.1",
            "Host: centre",
            "Connection: close",
            f"Authorization: Bearer {centre.client.tokens[gateway]}",
            f"X-Fieldpost-SHA256: {hashlib.sha256(data).hexdigest()}",
            *lines,
            "",
            "",
        )
    )


async def open_body(centre: Centre, gateway: str = GATEWAY) -> asyncio.StreamWriter:
    """Begin a body, send its first bytes, and leave it open once the receiver is at it."""
    context = ssl.create_default_context(cafile=str(centre.folder.pki / "ca.pem"))
    reader, writer = await asyncio.open_connection(*centre.client.address, ssl=context)
    head = put_head(centre, "Content-Length: 1000", "Expect: 100-continue", gateway=gateway)
    path = identity_path(identity())
    head = head.replace(path, identity_path(identity(gateway=gateway)))
    writer.write(head.replace("\n", "\r\n").encode())
    async with asyncio.timeout(10):
        assert b"100" in await reader.readuntil(b"\r\n\r\n")
    writer.write(b"x")
    return writer


async def begun(
    centre: Centre, data: bytes, whole: bytes
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Send the first bytes of a body on a connection that stays open, which is read by the test."""
    context = ssl.create_default_context(cafile=str(centre.folder.pki / "ca.pem"))
    reader, writer = await asyncio.open_connection(*centre.client.address, ssl=context)
    head = put_head(centre, f"Content-Length: {len(whole)}", "Expect: 100-continue", data=whole)
    writer.write(head.replace("\n", "\r\n").encode())
    async with asyncio.timeout(10):
        assert b"100" in await reader.readuntil(b"\r\n\r\n")
    writer.write(data)
    return reader, writer


def open_bodies(centre: Centre) -> int:
    """How many bodies' files the receiver, which runs in this process, has open."""
    count = 0
    for descriptor in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            target = descriptor.readlink()
            count += target.suffix == ".part" and target.is_relative_to(centre.folder.incoming)
    return count


async def until_open(centre: Centre, count: int) -> None:
    """Ask until `count` bodies are open, for 10 s at most."""
    async with asyncio.timeout(10):
        while open_bodies(centre) != count:
            await centre.client.head()


async def close(*writers: asyncio.StreamWriter) -> None:
    for writer in writers:
        writer.close()
        with contextlib.suppress(ssl.SSLError):  # of an answer that came and nobody read
            await writer.wait_closed()
