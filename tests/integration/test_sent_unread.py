"""What the system keeps of what a session does not read: bounded, since it is memory too."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

from tests.helpers.gateway import PASSWORD, Gateway, port_of
from tests.helpers.xmpp import Client, condition, log_in

UNREAD = 4096
LETTERS = 350
"""Messages of 2,000 bytes: half of what the system would keep of its own accord, and within what a
connection may send at once."""


async def test_a_reader_that_never_reads_fills_no_more_than_its_buffer(tmp_path: Path) -> None:
    gateway = Gateway(tmp_path / "gateway", "deaf", "pump1", require_tls=False)
    with gateway.run() as process:
        tcp = socket.socket()
        tcp.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, UNREAD)
        tcp.connect(("127.0.0.1", port_of(process)))
        deaf = Client(*await asyncio.open_connection(sock=tcp))
        deaf.open()
        await deaf.element()
        assert await deaf.authenticate("SCRAM-SHA-256", "deaf", PASSWORD) == "success"
        full = await deaf.bind("fw")
        deaf.deafen()
        async with await log_in(port_of(process), gateway.ca, "pump1", PASSWORD) as pump:
            body = "x" * 2_000
            for number in range(LETTERS):
                pump.send(f"<message to='{full}' id='{number}'><body>{body}</body></message>")
            refused = await pump.element()
            assert refused.get("type") == "error"
            assert condition(refused) == "resource-constraint"
        deaf.cut()
