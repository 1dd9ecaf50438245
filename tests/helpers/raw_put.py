"""Raw HTTP uploads: arbitrary headers, unfinished bodies, complete answers."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import ssl
from pathlib import Path

from sync.segment import identity_path
from tests.helpers.fleet import GATEWAY, Centre, identity


async def raw_request(centre: Centre, head: str, body: bytes = b"") -> tuple[str, bytes]:
    """Send raw bytes and read the answer to its end."""
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


async def start_upload(centre: Centre, gateway: str = GATEWAY) -> asyncio.StreamWriter:
    """Start an upload, and return once the receiver has its first bytes."""
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


async def started_uploads(
    centre: Centre, data: bytes, whole: bytes
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Start an upload on a connection that stays open and is read by the test."""
    context = ssl.create_default_context(cafile=str(centre.folder.pki / "ca.pem"))
    reader, writer = await asyncio.open_connection(*centre.client.address, ssl=context)
    head = put_head(centre, f"Content-Length: {len(whole)}", "Expect: 100-continue", data=whole)
    writer.write(head.replace("\n", "\r\n").encode())
    async with asyncio.timeout(10):
        assert b"100" in await reader.readuntil(b"\r\n\r\n")
    writer.write(data)
    return reader, writer


def partial_file_count(centre: Centre) -> int:
    """Return how many files of uploads the receiver in this process has open."""
    count = 0
    for descriptor in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            target = descriptor.readlink()
            count += target.suffix == ".part" and target.is_relative_to(centre.folder.incoming)
    return count


async def until_partial_files(centre: Centre, count: int) -> None:
    """Wait, at most 10 s, until `count` files of uploads are open."""
    async with asyncio.timeout(10):
        while partial_file_count(centre) != count:
            await centre.client.head()


async def close(*writers: asyncio.StreamWriter) -> None:
    for writer in writers:
        writer.close()
        with contextlib.suppress(ssl.SSLError):  # of an answer that came and nobody read
            await writer.wait_closed()
