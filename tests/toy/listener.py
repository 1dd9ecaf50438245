"""The toy's listener, connection and session on the transport core.

A client sends `login NAME PASSWORD CLIENT SECONDS` and is answered `welcome ADDRESS new` or
`welcome ADDRESS resumed`: its state is kept for so many seconds after it has lost its connection.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from edge.config.load import Address
from edge.engine.dispatch.encoding import encode as encode_message
from edge.engine.dispatch.outputs import EndReason
from edge.engine.sessions.session_lifecycle import Bound
from edge.engine.store.database import SentMessage
from edge.errors import StoreError
from edge.server.connection import Connection
from edge.server.listener import Listen, Listener
from edge.server.login import BindRefusal, Login
from edge.server.registry import Registry
from edge.server.server_context import ServerContext
from edge.server.session import Session
from edge.server.wire import Wire
from tests.toy import requests
from tests.toy import sockets as toy_sockets
from tests.toy.codec import encode


class ToySession(Session[list[bytes]]):
    protocol = requests.PROTOCOL

    __slots__ = ()

    def handle(self, request: list[bytes]) -> None:
        try:
            work = requests.work(self._context.engine, request)
        except (KeyError, TypeError, ValueError):
            self.in_order(partial(self.answer, encode("refused", *request, "malformed")))
        else:
            self.submit(request, work, sum(map(len, request)))

    def refusal(self, request: list[bytes], error: StoreError) -> bytes:
        return encode("refused", *request[:2], str(error))

    def encode(self, message: SentMessage) -> bytes:
        return encode_message(self._context.engine, requests.PROTOCOL, message)


class ToyConnection(Connection[list[bytes], ToySession]):
    def __init__(self, context: ServerContext, wire: Wire, registry: Registry[ToySession]) -> None:
        super().__init__(context, wire, registry)
        self._is_logging_in = False

    def is_waiting(self) -> bool:
        return self._is_logging_in

    def handle(self, item: list[bytes]) -> bool:
        words = [word.decode(errors="replace") for word in item]
        if self._session is not None and item:
            self._session.handle(item)
        elif self._login is not None and len(words) == 5 and words[0] == "login":
            self._is_logging_in = True
            _, name, password, client, seconds = words
            bind = partial(self._bind_session, self._login, name, client, seconds)
            self._login.log_in(name, password, bind, partial(self._refuse, "password"))
        else:
            self._refuse("malformed")
        return True

    def _bind_session(self, login: Login, name: str, client: str, seconds: str) -> None:
        context, registry = self._context, self._registry
        full = f"{name}@{context.settings.gateway.domain}/{client}"
        generation = context.outputs.next_generation()
        session = ToySession(context, registry, generation, name, full, self._source)
        if (exceeded := login.admit(registry, session)) is not None:
            self._refuse(exceeded.name)
        else:
            declared = requests.DECLARED._replace(durable=float(seconds))
            login.bind(session, self, partial(self._start_session, session), declared)

    def _start_session(self, session: ToySession, outcome: Bound | BindRefusal) -> None:
        if not isinstance(outcome, Bound):
            self._refuse(str(outcome))
            return
        self._bind(session)
        self.send(encode("welcome", session.full, "resumed" if outcome.is_resumed else "new"))
        session.attach(self)
        session.submit([], partial(requests.become_available, self._context.engine), 0)
        self._process()

    def _refuse(self, reason: str) -> None:
        self.send(encode("refused", "login", reason))
        self.close()

    def end(self, reason: EndReason) -> None:
        self.send(encode("end", reason.name))
        self.close()


class ToyListener(Listener[ToySession]):
    sockets = toy_sockets.__name__
    alpn = toy_sockets.ALPN

    def __init__(self, context: ServerContext) -> None:
        super().__init__(context, [Listen("toy", "toy", "listen", [Address("127.0.0.1", 0)])])
        requests.register(context.engine.hooks)

    def connect(self, wire: Wire) -> None:
        ToyConnection(self._context, wire, self._registry)

    def decoder(self) -> Callable[[bytes], Sequence[list[bytes]]]:
        return toy_sockets.decode
