"""A small proxy that ends TLS, as nginx does before a receiver: one request at a connection.

It adds X-Forwarded-For, and sets the header of the client's certificate whatever the client sent.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import quote

HEADER = "X-Client-Certificate"


@contextlib.asynccontextmanager
async def tls_proxy(pki: Path, behind: tuple[str, int]) -> AsyncIterator[tuple[str, int]]:
    """Listen on a free port with the certificate in `pki`, and forward to `behind`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pki / "server.pem", pki / "server.key")
    context.load_verify_locations(pki / "ca.pem")
    context.verify_mode = ssl.CERT_OPTIONAL

    serving: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        serving.add(task)
        inner_reader, inner = await asyncio.open_connection(*behind)
        up = None
        try:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                inner.write(_rewritten(await reader.readuntil(b"\r\n\r\n"), writer))
                up = asyncio.create_task(_pump(reader, inner))
                await _pump(inner_reader, writer)
                writer.close()
                await writer.wait_closed()
        finally:
            for each in (inner, writer):
                each.transport.abort()
            if up is not None:
                up.cancel()
                await asyncio.gather(up, return_exceptions=True)

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    async with server:
        host, port = server.sockets[0].getsockname()[:2]
        try:
            yield host, port
        finally:
            for each in serving:
                each.cancel()
            await asyncio.gather(*serving, return_exceptions=True)


def _rewritten(head: bytes, writer: asyncio.StreamWriter) -> bytes:
    """The head of a request, with the proxy's own headers; the connection ends after it."""
    lines = head.decode("latin-1").rstrip("\r\n").split("\r\n")
    ours = (HEADER.lower(), "connection")
    kept = [line for line in lines if line.partition(":")[0].lower() not in ours]
    der = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    if der is not None:
        kept.append(f"{HEADER}: {quote(ssl.DER_cert_to_PEM_cert(der))}")
    kept += [f"X-Forwarded-For: {writer.get_extra_info('peername')[0]}", "Connection: close"]
    return ("\r\n".join(kept) + "\r\n\r\n").encode("latin-1")


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65_536):
        writer.write(data)
        await writer.drain()
