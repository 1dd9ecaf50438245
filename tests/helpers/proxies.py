"""Proxies on loopback: one that only supports CONNECT, and one that ends TLS before a receiver."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

HEADER = "X-Client-Certificate"


@contextlib.asynccontextmanager
async def _serving(
    serve: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
    context: ssl.SSLContext | None = None,
) -> AsyncIterator[tuple[str, int]]:
    """Listen on a free port; close the connections at the end."""
    tasks: set[asyncio.Task[None]] = set()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        await serve(reader, writer)

    server = await asyncio.start_server(handle, "127.0.0.1", 0, ssl=context)
    try:
        host, port = server.sockets[0].getsockname()[:2]
        yield host, port
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
    writer.close()


@dataclass
class ConnectProxy:
    """A proxy that only supports CONNECT, and resolves every name to this machine.

    `requests` has the head of each request, `answer` is the status line of the answers.
    """

    answer: str = "200 Connection established"
    url: str = ""
    requests: list[str] = field(default_factory=list)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Read one request; copy bytes both ways if the answer is 200."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode("ascii")
        self.requests.append(head)
        writer.write(f"HTTP/1.1 {self.answer}\r\n\r\n".encode())
        await writer.drain()
        if self.answer.startswith("200"):
            port = int(head.split()[1].rpartition(":")[2])
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", port)
            await asyncio.gather(_copy(reader, far_writer), _copy(far_reader, writer))
        writer.close()


@contextlib.asynccontextmanager
async def proxying() -> AsyncIterator[ConnectProxy]:
    proxy = ConnectProxy()
    async with _serving(proxy.serve) as (host, port):
        proxy.url = f"{host}:{port}"
        yield proxy


@contextlib.asynccontextmanager
async def tls_proxy(pki: Path, upstream: tuple[str, int]) -> AsyncIterator[tuple[str, int]]:
    """End TLS with the certificate in `pki`, as nginx does, and forward one request to `upstream`.

    It adds X-Forwarded-For, and replaces the header of the client's certificate.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pki / "server.pem", pki / "server.key")
    context.load_verify_locations(pki / "ca.pem")
    context.verify_mode = ssl.CERT_OPTIONAL

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner_reader, inner = await asyncio.open_connection(*upstream)
        up = None
        try:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                inner.write(_rewrite_head(await reader.readuntil(b"\r\n\r\n"), writer))
                up = asyncio.create_task(_copy(reader, inner))
                await _copy(inner_reader, writer)
                await writer.wait_closed()
        finally:
            for each in (inner, writer):
                each.transport.abort()
            if up is not None:
                up.cancel()
                await asyncio.gather(up, return_exceptions=True)

    async with _serving(serve, context) as address:
        yield address


def _rewrite_head(head: bytes, writer: asyncio.StreamWriter) -> bytes:
    """Return the head of a request with the proxy's own headers and `Connection: close`."""
    lines = head.decode("latin-1").rstrip("\r\n").split("\r\n")
    replaced = (HEADER.lower(), "connection")
    kept = [line for line in lines if line.partition(":")[0].lower() not in replaced]
    der = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    if der is not None:
        kept.append(f"{HEADER}: {quote(ssl.DER_cert_to_PEM_cert(der))}")
    kept += [f"X-Forwarded-For: {writer.get_extra_info('peername')[0]}", "Connection: close"]
    return ("\r\n".join(kept) + "\r\n\r\n").encode("latin-1")
