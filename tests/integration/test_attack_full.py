"""Tests of a running gateway whose database or memory for unacknowledged stanzas is full.

Other sessions continue, each message is stored or refused, and no traceback is logged.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest

from edge.engine import database
from firmware_sim.attackers.stanzas import PING
from tests.helpers.gateway import Gateway, bound, known
from tests.helpers.processes import Process
from tests.helpers.xmpp import SM, Closed

KIB = 1024
MIB = 1024 * KIB
DEVICES = ("cam1", "cam2", "cam3", "cam4", "writer")
SMALL = {
    "database_bytes": 12 * MIB,
    "database_reserve": MIB,
    "outbox_bytes": 64 * KIB,
    "outbox_bytes_per_account": 64 * KIB,
    "outbox_bytes_per_source": 64 * KIB,
    "backlog_bytes": MIB,
    "recent_bytes": 0,
    "held_bytes": 64 * KIB,
    "held_bytes_per_source": 64 * KIB,
    "dead_bytes": 64 * KIB,
    "offline_total_bytes": MIB,
    "offline_bytes_per_source": MIB,
    "unacknowledged_bytes": 64 * KIB,
    "unacknowledged_total_bytes": 128 * KIB,
}


@pytest.fixture
def gateway(tmp_path: Path) -> Gateway:
    return Gateway(tmp_path / "gateway", *DEVICES, require_tls=False, **SMALL)


@contextmanager
def full(gateway: Gateway) -> Iterator[None]:
    """Fill the database beyond its quota from another process."""
    path = gateway.folder / database.FILE_NAME
    with closing(sqlite3.connect(path, isolation_level=None, timeout=10)) as other:
        other.execute("CREATE TABLE filler (bytes BLOB)")
        other.execute("INSERT INTO filler VALUES (zeroblob(?))", (13 * MIB,))
        yield
        other.execute("DROP TABLE filler")
        other.execute("PRAGMA incremental_vacuum").fetchall()


def chat_message(number: int, to: str, size: int = 5000) -> str:
    return f"<message type='chat' id='{number}' to='{to}'><body>{'x' * size}</body></message>"


async def test_largest_session_ends_when_memory_is_full(process: Process) -> None:
    """The limit on all sessions together ends the one with most unacknowledged bytes."""
    tokens = {}
    async with await bound(process, "cam4", "plain") as plain:
        for name, count in {"cam4": 0, "cam1": 20, "cam2": 40, "cam3": 50}.items():
            client = await bound(process, name)
            tokens[name] = await client.enable()
            client.send(f"<iq type='get' id='{'i' * 1000}' to='gw.example'>{PING}</iq>" * count)
            with suppress(Closed):
                for _ in range(count):
                    await client.stanza()
            client.cut()
        assert (await plain.iq("get", PING)).get("type") == "result"
    there = []
    for name, token in tokens.items():
        async with await known(process, name) as again:
            answer = await again.resume(token, 0)
            if answer.tag == f"{SM}resumed":
                there.append(name)
    assert len(there) == 3, "one had to go"
    assert "cam4" in there, "it had nothing"
    assert "cam1" in there, "it had least"


async def test_replacing_session_works_while_the_disk_is_full(
    gateway: Gateway, process: Process
) -> None:
    async with await bound(process, "writer") as writer:
        client = await bound(process, "cam1")
        await client.enable()
        client.send("<presence/>")
        writer.send(chat_message(7, "cam1@gw.example"))
        while (await client.element()).get("id") != "7":
            pass
        with full(gateway):
            again = await bound(process, "cam1")
            assert await client.closed() == "conflict"
            assert (await again.iq("get", PING)).get("type") == "result"
            writer.send(chat_message(8, "cam1@gw.example/fw"))
            assert (await again.element()).get("id") == "8"
        async with again:
            again.send("<presence/>")
            while (await again.element()).get("id") != "7":
                pass
