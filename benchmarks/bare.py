"""The bare loop: the smallest program that makes assured exchanges durable, as a baseline.

It uses the gateway's parser, group commit and read buffer. It has no TLS, login, routing, rules or
limits, and does not decode payloads. An offer inserts a row; a delivery moves that row to the log.
Each is committed before it is answered. `python -m benchmarks.bare FOLDER` serves until SIGTERM.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from edge.config.limits import Limits
from edge.engine import database
from edge.engine.clock import Clock
from edge.engine.database import Transaction
from edge.engine.group_commit import Store, UnitLimits
from edge.errors import StoreError
from edge.server.server_context import READ_BYTES
from edge.xmpp.parser import StreamParser
from edge.xmpp.stanza import Stanza

_TABLES: Final = """
CREATE TABLE bare_held (
    id INTEGER PRIMARY KEY,
    sender TEXT NOT NULL,
    msg_id TEXT NOT NULL,
    body BLOB NOT NULL,
    UNIQUE (sender, msg_id)
) STRICT;
CREATE TABLE bare_events (
    seq INTEGER PRIMARY KEY,
    time INTEGER NOT NULL,
    source TEXT NOT NULL,
    body BLOB NOT NULL
) STRICT;
"""
_HOLD: Final = "INSERT INTO bare_held (sender, msg_id, body) VALUES (?, ?, ?)"
_RELEASE: Final = "DELETE FROM bare_held WHERE sender = ? AND msg_id = ? RETURNING body"
_APPEND: Final = "INSERT INTO bare_events (time, source, body) VALUES (?, ?, ?)"

_RECEIVED: Final = (
    "<iq type='result' id='%s' to='%s' from='gw.example'>"
    "<received xmlns='urn:xmpp:qos' msgId='%s'/></iq>"
)
_EMPTY: Final = "<iq type='result' id='%s' to='%s' from='gw.example'/>"


class BareSession(asyncio.BufferedProtocol):
    """A connection; the peer's socket address is its name."""

    def __init__(self, store: Store, buffer: memoryview) -> None:
        self._store = store
        self._buffer = buffer
        self._parser = StreamParser()
        self._transport: asyncio.Transport | None = None
        self._name = ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport and start the stream."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        host, port = transport.get_extra_info("peername")
        self._name = f"{host}:{port}@gw.example/bare"

    def get_buffer(self, _sizehint: int) -> memoryview:
        """Return the buffer that all sessions share."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Handle the bytes that were read."""
        for item in self._parser.feed(self._buffer[:nbytes]):
            if isinstance(item, Stanza):
                self._exchange(item)

    def connection_lost(self, _error: Exception | None) -> None:
        """Forget the connection."""
        self._transport = None
        self._parser.close()

    def _exchange(self, stanza: Stanza) -> None:
        stanza_id, request = stanza.attrs["id"], stanza.children[0]
        msg_id, name = request.attrs["msgId"], self._name
        if request.children:
            body = request.children[0].raw
            answer = (_RECEIVED % (stanza_id, name, msg_id)).encode()
            self._store.submit(lambda tx: _hold(tx, name, msg_id, body, answer), self._send)
        else:
            answer = (_EMPTY % (stanza_id, name)).encode()
            self._store.submit(lambda tx: _release(tx, name, msg_id, answer), self._send)

    def _send(self, outcome: bytes | StoreError) -> None:
        if not isinstance(outcome, bytes):
            raise outcome
        if self._transport is not None:
            self._transport.write(outcome)


def _hold(tx: Transaction, sender: str, msg_id: str, body: bytes, answer: bytes) -> bytes:
    tx.run(_HOLD, (sender, msg_id, body))
    return answer


def _release(tx: Transaction, sender: str, msg_id: str, answer: bytes) -> bytes:
    held: Any = tx.row(_RELEASE, (sender, msg_id))
    tx.run(_APPEND, (tx.now.wall, sender, held[0]))
    return answer


def create(folder: Path) -> Path:
    """Create a gateway's database with the two tables of the bare loop added."""
    path = folder / database.FILE_NAME
    database.create(path)
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(_TABLES)
    return path


async def serve(folder: Path) -> None:
    """Serve a folder until SIGTERM."""
    limits = Limits()
    bounds = UnitLimits(limits.waiting_units, limits.waiting_bytes)
    store = await Store.open(create(folder), Clock(0.0), bounds, limits.database_bytes)
    buffer = memoryview(bytearray(READ_BYTES))
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    server = await loop.create_server(
        lambda: BareSession(store, buffer), "127.0.0.1", 0, backlog=512
    )
    host, port = server.sockets[0].getsockname()
    print(f"ready xmpp={host}:{port}", flush=True)
    await stop.wait()
    server.close()
    await store.close()


def main() -> None:
    """Read the folder from the command line and serve it."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bare")
    parser.add_argument("folder", type=Path)
    asyncio.run(serve(parser.parse_args().folder))


if __name__ == "__main__":
    main()
