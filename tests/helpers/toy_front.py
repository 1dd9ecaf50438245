"""A front with a protocol of lines, and a gateway that runs it beside the configured fronts.

A client sends the name of a device, and is bound to `NAME@DOMAIN/toy`. Each further line is a full
address, a space and a text, which is sent there as a message. Each message to the session is
written as a line; its end is the line `end: REASON`. `python -m tests.helpers.toy_front DIR` runs
the gateway.
"""

from __future__ import annotations

import asyncio
import sys
from functools import partial
from pathlib import Path
from typing import Any

from edge.app import App
from edge.config import load
from edge.config.load import Address
from edge.engine import sessions
from edge.engine.database import Receipt, SentMessage, Transaction
from edge.engine.encoding import RawStanza, encode
from edge.engine.hooks import Context
from edge.engine.outputs import EndReason
from edge.features.accounts.store import accounts
from edge.features.messages.rules import MessageType
from edge.features.messages.service import AccountMessage
from edge.journal import Journal
from edge.ops.gateway.control import ConnectedSession
from edge.routing.xmpp.router import Router
from edge.server.fronts import Front
from edge.server.server_context import ServerContext

PROTOCOL = "toy"


def _encode(_context: Context, message: AccountMessage) -> bytes:
    return message.content.stanza if isinstance(message.content, RawStanza) else b""


def _ignore(_outcome: object) -> None:
    pass


class ToySession(asyncio.Protocol):
    source = ""
    unacknowledged_bytes = 0

    def __init__(self, front: ToyFront) -> None:
        self._front = front
        self._context = front.context
        self.transport: Any = None
        self.generation = self._context.outputs.next_generation()
        self.bare = self.full = ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        for line in data.decode().splitlines():
            if self.full:
                self._context.store.submit(partial(self._send, line=line), _ignore)
            else:
                self._log_in(line)

    def _log_in(self, name: str) -> None:
        context = self._context
        self.bare = f"{name}@{context.settings.gateway.domain}"
        self.full = f"{self.bare}/toy"
        if (exceeded := context.admission.admit(self)) is not None:
            self._write(f"refused: {exceeded.name}")
            return
        context.admission.replace_others(self)
        context.outputs.attach(self.generation, self)
        self._front.sessions.add(self)

        def bind(tx: Transaction) -> None:
            names = name, self.bare, self.full
            context.lifecycle.bind(tx, self.generation, *names, accounts.login_grant(tx, name))

        context.store.submit(bind, lambda _outcome: self._write(self.full))

    def _send(self, tx: Transaction, line: str) -> None:
        to, _, text = line.partition(" ")
        generation = sessions.find_generation(tx, to)
        assert generation is not None
        stanza = f"<message from='{self.full}' to='{to}'><body>{text}</body></message>"
        content = RawStanza(stanza.encode())
        tx.send(generation, AccountMessage(content, self.full, to, MessageType.CHAT, storable=True))

    def _write(self, line: str) -> None:
        self.transport.write(f"{line}\n".encode())

    def deliver(self, message: SentMessage, _receipt: Receipt | None) -> None:
        if line := encode(self._context.engine, PROTOCOL, message):
            self._write(line.decode())

    def end(self, reason: EndReason) -> None:
        self._write(f"end: {reason.name}")
        self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        context = self._context
        self._front.sessions.discard(self)
        context.admission.remove(self)
        context.outputs.detach(self.generation)
        context.store.submit(lambda tx: context.lifecycle.end(tx, self.generation, ()), _ignore)


class ToyFront(Front):
    def __init__(self, context: ServerContext) -> None:
        self.context = context
        self.sessions: set[ToySession] = set()
        self._server: asyncio.Server | None = None
        context.engine.hooks.encode(PROTOCOL, AccountMessage, _encode)

    async def start(self) -> list[tuple[str, Address]]:
        loop = self.context.loop
        self._server = await loop.create_server(lambda: ToySession(self), "127.0.0.1", 0)
        return [("toy", Address(*self._server.sockets[0].getsockname()))]

    @property
    def up(self) -> bool:
        return self._server is not None and self._server.is_serving()

    def used(self) -> dict[str, int]:
        return {}

    def connected_sessions(self, _wall: int) -> list[ConnectedSession]:
        return [
            ConnectedSession(account=each.bare.partition("@")[0], resource="toy")
            for each in self.sessions
        ]

    def stop_accepting(self) -> None:
        if self._server is not None:
            self._server.close()

    async def close(self, _patience: float) -> None:
        for session in list(self.sessions):
            session.end(EndReason.SHUTDOWN)


class ToyApp(App):
    def create_fronts(self, server: ServerContext, router: Router) -> list[Front]:
        return [*super().create_fronts(server, router), ToyFront(server)]


def _main(folder: Path) -> None:
    app = ToyApp(folder, load.load(folder), Journal())
    asyncio.run(app.serve(partial(print, flush=True)))


if __name__ == "__main__":
    _main(Path(sys.argv[1]))
