"""A protocol of lines on the transport core, and a gateway that runs it beside the configured ones.

A client sends `NAME PASSWORD` of a device, and is bound to `NAME@DOMAIN/toy`. Each further line is
a full address, a space and a text, which is sent there as a message. Each message to the session is
written as a line `message: STANZA`; its end is the line `end: REASON`.
`python -m tests.helpers.toy_front DIR` runs the gateway.
"""

from __future__ import annotations

import asyncio
import sys
from functools import partial
from pathlib import Path

from edge.app import App
from edge.config import load
from edge.config.load import Address
from edge.credentials import Credentials
from edge.engine import sessions
from edge.engine.access import Sender
from edge.engine.database import MessageBytes, SentMessage, Transaction
from edge.engine.encoding import encode
from edge.engine.hooks import Context
from edge.engine.outputs import EndReason
from edge.engine.session_lifecycle import Bound
from edge.errors import StoreError
from edge.features.messages.rules import MessageType
from edge.features.messages.service import AccountMessage
from edge.journal import Journal
from edge.routing.xmpp.router import Router
from edge.server.connection import Connection
from edge.server.fronts import Front
from edge.server.listener import Listen, Listener
from edge.server.login import BindRefusal, Login
from edge.server.server_context import ServerContext
from edge.server.session import Session
from edge.server.tls import TlsServer

PROTOCOL = "toy"


def _encode(_context: Context, message: AccountMessage) -> bytes:
    if not isinstance(message.content, MessageBytes):
        return b""
    return b"message: " + message.content.body + b"\n"


class ToySession(Session[str]):
    __slots__ = ()

    def handle(self, request: str) -> None:
        self.submit(request, partial(self._send_message, request), len(request))

    def _send_message(self, line: str, tx: Transaction, sender: Sender) -> bytes:
        to, _, text = line.partition(" ")
        generation = sessions.find_generation(tx, to)
        if generation is None:
            return b"error: no session\n"
        stanza = f"<message from='{sender.full}' to='{to}'><body>{text}</body></message>"
        content = MessageBytes(stanza.encode())
        message = AccountMessage(content, sender.full, to, MessageType.CHAT, storable=True)
        tx.send(generation, message)
        return b""

    def refusal(self, request: str, error: StoreError) -> bytes:
        return f"error: {error}\n".encode()

    def encode(self, message: SentMessage) -> bytes:
        return encode(self._context.engine, PROTOCOL, message)


class ToyConnection(Connection[str, ToySession]):
    _rest = b""
    _is_logging_in = False

    def is_waiting(self) -> bool:
        return self._is_logging_in

    def parse(self, data: bytes | memoryview) -> list[str]:
        *lines, self._rest = (self._rest + data).split(b"\n")
        return [line.decode() for line in lines]

    def handle(self, item: str) -> bool:
        if self._session is not None:
            self._session.handle(item)
        elif self._login is not None:
            self._is_logging_in = True
            self._log_in(self._login, *item.partition(" ")[::2])
        return True

    def _log_in(self, login: Login, name: str, password: str) -> None:
        def found(keys: Credentials | None) -> None:
            if keys is None:
                verified(False)
            else:
                login.verify_password(password, keys, verified)

        def verified(is_correct: bool) -> None:
            if is_correct:
                login.accept(name)
                self._bind_session(login, name)
            else:
                login.fail(name, "PLAIN", "", partial(self._refuse, "password"), is_guess=True)

        login.note_input()
        if login.may_try(name):
            login.find_credentials(name, "SCRAM-SHA-256", found)
        else:
            verified(False)

    def _bind_session(self, login: Login, name: str) -> None:
        context, registry = self._context, self._registry
        full = f"{name}@{context.settings.gateway.domain}/toy"
        generation = context.outputs.next_generation()
        session = ToySession(context, registry, generation, name, full, self._source)
        if (exceeded := login.admit(registry, session)) is not None:
            self._refuse(exceeded.name)
        else:
            login.bind(session, self, partial(self._start_session, session))

    def _start_session(self, session: ToySession, outcome: Bound | BindRefusal) -> None:
        if not isinstance(outcome, Bound):
            self._refuse(str(outcome))
            return
        self._bind(session)
        self.send(f"{session.full}\n".encode())
        session.attach(self)
        self._process()

    def _refuse(self, reason: str) -> None:
        self.send(f"refused: {reason}\n".encode())
        self.close()

    def end(self, reason: EndReason) -> None:
        self.send(f"end: {reason.name}\n".encode())
        self.close()


class ToyListener(Listener[ToySession]):
    def __init__(self, context: ServerContext) -> None:
        wanted = [Listen("toy", "toy", "listen", [Address("127.0.0.1", 0)])]
        super().__init__(context, PROTOCOL, wanted)
        context.engine.hooks.encode(PROTOCOL, AccountMessage, _encode)

    def accept(self, tls_server: TlsServer, *, only_tls: bool) -> ToyConnection:
        return ToyConnection(self._context, tls_server, self._registry)


class ToyApp(App):
    def create_fronts(self, server: ServerContext, router: Router) -> list[Front]:
        return [*super().create_fronts(server, router), ToyListener(server)]


def _main(folder: Path) -> None:
    app = ToyApp(folder, load.load(folder), Journal())
    asyncio.run(app.serve(partial(print, flush=True)))


if __name__ == "__main__":
    _main(Path(sys.argv[1]))
