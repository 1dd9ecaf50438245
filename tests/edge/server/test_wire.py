from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from edge.config.limits import Limits
from edge.server.tls import TlsContexts, TlsServer
from edge.server.wire import SocketWire, WireContext


async def test_nothing_is_read_between_the_request_for_tls_and_the_handshake(folder: Path) -> None:
    """The handshake may have to wait for others; what is read before it was not under TLS."""
    parser: Any = SimpleNamespace(reset=lambda: None, close=lambda: None)
    server = TlsServer(TlsContexts(folder, "gw.example", pytest.fail), Limits())
    wire = SocketWire(WireContext(Limits()), parser, server)
    opened, lost = asyncio.Event(), asyncio.Event()
    handler: Any = SimpleNamespace(open=opened.set, lose=lost.set)
    wire.handler = handler
    loop = asyncio.get_running_loop()
    async with (
        await loop.create_server(lambda: wire, "127.0.0.1", 0) as listener,
        asyncio.timeout(60),
    ):
        address = listener.sockets[0].getsockname()
        client, _ = await loop.create_connection(asyncio.Protocol, *address)
        await opened.wait()
        plain = wire._transport
        assert plain is not None
        wire.start_tls()
        assert not plain.is_reading()
        wire.abort()
        await lost.wait()
        client.abort()
