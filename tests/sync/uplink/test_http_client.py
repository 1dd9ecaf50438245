"""The HTTPS client for the centre; `tests/integration/test_uploader.py` has its requests."""

from __future__ import annotations

import asyncio
from asyncio.sslproto import SSLProtocol
from pathlib import Path
from types import FrameType

import pytest

from sync.common.enrolment import Enrolment, new_token
from sync.uplink.http_client import HttpClient, Request
from sync.uplink.responses import TemporaryFailure
from tests.helpers.garbage import garbage
from tests.helpers.pki import make_pki

REQUEST = Request("GET", "/")


@pytest.mark.parametrize("answer", [b"", b"220 no TLS\r\n"])
async def test_a_failed_handshake_is_freed_without_garbage_collection(
    tmp_path: Path, answer: bytes
) -> None:
    async def serve(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(answer)
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        url = f"https://127.0.0.1:{port}"
        client = HttpClient(Enrolment("gw.example", url, new_token(), make_pki(tmp_path).ca))
        await client.send(REQUEST)  # imports aiohttp
        with garbage() as left:
            assert isinstance(await client.send(REQUEST), TemporaryFailure)
        await client.close()
    assert [one for one in left if isinstance(one, SSLProtocol | FrameType)] == []
