"""Raw HTTP uploads: arbitrary headers, unfinished bodies, complete answers."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import ssl
from pathlib import Path

from sync.segment import identity_path
from tests.helpers.fleet import GATEWAY, Centre, Streams, identity


async def raw_request(centre: Centre, head: str, body: bytes = b"") -> tuple[str, bytes]:
    """Send raw bytes and read the answer to its end."""
    reader, writer = await centre.connect()
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
            f"PUT /v1/segments/{identity_path(identity(gateway=gateway))} HTTP/1.1",
            "Host: centre",
            "Connection: close",
            f"Authorization: Bearer {centre.client.tokens[gateway]}",
            f"X-Fieldpost-SHA256: {hashlib.sha256(data).hexdigest()}",
            *lines,
            "",
            "",
        )
    )


async def open_upload(
    centre: Centre, sent: bytes, whole: bytes, *lines: str, gateway: str = GATEWAY
) -> Streams:
    """Start an upload of `whole`, and send these bytes once the receiver reads its body."""
    reader, writer = await centre.connect()
    head = put_head(centre, *lines, "Expect: 100-continue", data=whole, gateway=gateway)
    writer.write(head.replace("\n", "\r\n").encode())
    async with asyncio.timeout(10):
        assert b"100" in await reader.readuntil(b"\r\n\r\n")
    writer.write(sent)
    return reader, writer


async def start_upload(centre: Centre, gateway: str = GATEWAY) -> asyncio.StreamWriter:
    _, writer = await open_upload(centre, b"x", b"", "Content-Length: 1000", gateway=gateway)
    return writer


async def read_to_end(reader: asyncio.StreamReader) -> bytes:
    """Return everything received until the connection is closed, at most 10 s."""
    async with asyncio.timeout(10):
        with contextlib.suppress(ConnectionError):
            return await reader.read()
    return b""


def partial_path(data: bytes) -> str:
    """Return the path, in the fleet folder, of the gateway's partial upload of a body."""
    return f"incoming/partial/{GATEWAY}/{hashlib.sha256(data).hexdigest()}.part"


def partial_file_count(centre: Centre) -> int:
    """Return how many files of uploads the receiver in this process has open."""
    count = 0
    for descriptor in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            target = descriptor.readlink()
            count += target.suffix == ".part" and target.is_relative_to(centre.folder.incoming)
    return count


async def wait_for_partial_files(centre: Centre, count: int) -> None:
    """Wait, at most 10 s, until `count` files of uploads are open."""
    async with asyncio.timeout(10):
        while partial_file_count(centre) != count:
            await centre.client.head()


async def close(*writers: asyncio.StreamWriter) -> None:
    for writer in writers:
        writer.close()
        with contextlib.suppress(ssl.SSLError):  # because of an unread answer
            await writer.wait_closed()
