"""A device's connection by MQTT: CONNECT and the log-in, keep alive, and the end.

The first packet must be a CONNECT. Until its session is bound, nothing else is handled; after that,
all packets but PINGREQ and DISCONNECT go to the session. Source: MQTT 5.0, sections 3.1, 3.2, 3.12
to 3.14 and 4.13.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Sequence
from functools import partial
from typing import Any, Final, TypeAlias

from edge import jid
from edge.engine.dispatch.hooks import Context
from edge.engine.dispatch.outputs import EndReason
from edge.engine.rules.access import Sender
from edge.engine.sessions import sessions
from edge.engine.sessions.session_lifecycle import Bound
from edge.engine.sessions.sessions import Declaration
from edge.engine.store.database import Transaction
from edge.errors import ServiceError, StoreError
from edge.jid import JidError
from edge.mqtt.codec import PacketParser, encode
from edge.mqtt.packets import (
    MAX_ID,
    NO_PROPERTIES,
    V5,
    V311,
    ConnAck,
    Connect,
    Disconnect,
    Fault,
    Packet,
    PingReq,
    PingResp,
    Property,
)
from edge.mqtt.reasons import Reason
from edge.routing.mqtt import MqttHooks, answers
from edge.server.connection import Connection
from edge.server.login import CERTIFICATE, PLAIN, BindRefusal, CertificateOwner, Login
from edge.server.mqtt import aliases
from edge.server.mqtt.ends import bind_reason, end_reason, store_reason
from edge.server.mqtt.session import MqttSession, receive_maximum
from edge.server.mqtt.traffic import Traffic
from edge.server.registry import Registry
from edge.server.server_context import ServerContext
from edge.server.tls import TlsServer

Input: TypeAlias = Packet | Fault

CONNECT_BYTES: Final = 80 * 1024
"""Maximum bytes of a CONNECT, which has room for the longest client identifier. The number of
connections that have not logged in is limited, too."""

KEEP_ALIVE_FACTOR: Final = 1.5
"""Factor of the keep alive after which a silent client is lost (section 3.1.2.10)."""


class MqttConnection(Connection[Input, MqttSession]):
    """A connection of MQTT."""

    __slots__ = (
        "_connect", "_is_connecting", "_keep_alive", "_keep_alive_timer", "_parser", "_traffic",
    )  # fmt: skip

    def __init__(
        self,
        context: ServerContext,
        tls_server: TlsServer,
        registry: Registry[MqttSession],
        traffic: Traffic,
    ) -> None:
        super().__init__(context, tls_server, registry)
        self._traffic = traffic
        self._parser = PacketParser(CONNECT_BYTES)
        self._connect: Connect | None = None
        self._is_connecting = False
        self._keep_alive = 0.0  # seconds without input after which the client is lost
        self._keep_alive_timer: asyncio.TimerHandle | None = None

    # Input

    def is_waiting(self) -> bool:
        """Return whether the log-in waits for a result."""
        return self._is_connecting

    def parse(self, data: bytes | memoryview) -> Sequence[Input]:
        """Return the packets that end in this part of the input, and a fault if there is one."""
        items = self._parser.feed(data)
        self._traffic.bytes_received += len(data)
        self._traffic.received += len(items)
        return items

    def handle(self, item: Input) -> bool:
        """Handle a packet, if it has not to wait for the rate limit or, a DISCONNECT, for the
        answers to earlier packets."""
        session = self._session
        if session is None:
            self._handle_before_session(item)
        elif isinstance(item, Fault):
            self._context.refusals.add(item.reason.name.lower(), source=self.peer)
            self.fail(item.reason, item.text)
        elif isinstance(item, PingReq):
            self.send(encode(PingResp(), self._version))
        elif isinstance(item, Disconnect):
            if session.in_flight:
                return False
            self._disconnect(session, item)
        elif self._rate_limiter.is_paused():
            return False
        else:
            self._rate_limiter.count_request()
            session.handle(item)
        return True

    @property
    def _version(self) -> int:
        return V5 if self._connect is None else self._connect.version

    def _handle_before_session(self, item: Input) -> None:
        if isinstance(item, Connect) and self._login is not None and self._connect is None:
            self._begin_login(self._login, item)
            return
        if isinstance(item, Fault):
            self._context.refusals.add(item.reason.name.lower(), source=self.peer)
        if isinstance(item, Fault) and item.reason is Reason.UNSUPPORTED_PROTOCOL_VERSION:
            self.send(encode(ConnAck(False, item.reason), self._parser.version))
        self.close()

    # Log-in

    def _begin_login(self, login: Login, connect: Connect) -> None:
        self._connect = connect
        self._is_connecting = True
        settings = self._context.settings
        if settings.mqtt.require_tls and not self.secure:
            self._refuse(Reason.NOT_AUTHORIZED, "TLS is required")
        elif Property.AUTHENTICATION_METHOD in connect.properties:
            self._refuse(Reason.BAD_AUTHENTICATION_METHOD)
        elif not connect.client_id and connect.version == V311 and not connect.clean:
            self._refuse(Reason.CLIENT_IDENTIFIER_NOT_VALID)
        elif connect.password is not None and connect.user_name is not None:
            self._check_password(login, connect.user_name, connect.password)
        elif login.certificate is not None:
            login.note_input()
            login.find_certificate_owner(partial(self._continue_with_owner, login))
        elif connect.user_name is None and settings.mqtt.anonymous:
            account = settings.mqtt.anonymous
            bind = partial(self._bind_session, login, account)
            login.trust(account, bind, self._refuse_login)
        else:
            login.note_input()
            name = connect.user_name or ""
            login.fail(name, PLAIN, "no password", self._refuse_login, is_guess=False)

    def _check_password(self, login: Login, user_name: str, password: bytes) -> None:
        account, text = _account(user_name, self._context.settings.gateway.domain), ""
        try:
            text = password.decode()
        except UnicodeDecodeError:
            account = ""
        bind = partial(self._bind_session, login, account)
        if account:
            login.log_in(account, text, bind, self._refuse_login)
        else:
            login.note_input()
            login.fail(user_name, PLAIN, "", self._refuse_login, is_guess=True)

    def _continue_with_owner(self, login: Login, owner: CertificateOwner | None) -> None:
        if self._connect is None:
            return
        name = None if owner is None else owner.name
        wanted = self._connect.user_name
        domain = self._context.settings.gateway.domain
        if name is not None and (wanted is None or _account(wanted, domain) == name):
            self._bind_session(login, name)
            return
        reason = "" if name is None else "the certificate belongs to another device"
        login.fail(name or "", CERTIFICATE, reason, self._refuse_login, is_guess=False)

    def _refuse_login(self) -> None:
        self._refuse(Reason.BAD_USER_NAME_OR_PASSWORD)

    def _refuse(self, reason: Reason, text: str = "") -> None:
        """Refuse the CONNECT, and close."""
        properties = {Property.REASON_STRING: text} if text else NO_PROPERTIES
        self.send(encode(ConnAck(False, reason, properties), self._version))
        self.close()

    # Session

    def _bind_session(self, login: Login, account: str) -> None:
        connect, context, registry = self._connect, self._context, self._registry
        if connect is None or self.closed:
            return
        client = connect.client_id or secrets.token_hex(8)
        full = f"{account}@{context.settings.gateway.domain}/{client}"
        generation = context.outputs.next_generation()
        session = MqttSession(
            context, registry, generation, account, full, self._source, connect, self.fail
        )
        if (exceeded := login.admit(registry, session)) is not None:
            self._refuse(Reason.QUOTA_EXCEEDED, exceeded.text)
        else:
            done = partial(self._start_session, session, connect)
            login.bind(session, self, done, self._declare(connect))

    def _declare(self, connect: Connect) -> Declaration:
        most = connect.properties.get(Property.RECEIVE_MAXIMUM, MAX_ID)
        return Declaration(
            qos="mqtt",
            adopts=False,
            resends=False,
            ordered=True,
            window=min(most, self._limits.outbox_window),
            ids=MAX_ID,
            durable=float(connect.session_expiry),
            clean=connect.clean,
        )

    def _start_session(
        self, session: MqttSession, connect: Connect, outcome: Bound | BindRefusal
    ) -> None:
        if not isinstance(outcome, Bound):
            self._refuse(bind_reason(outcome))
            return
        hooks = self._context.engine.hooks.of(MqttHooks)
        begin = partial(_run_connect_hooks, self._context.engine, hooks, connect)
        unit = sessions.guarded(begin, session.generation)
        acknowledge = partial(self._acknowledge, session, connect, outcome)
        self._context.store.submit(unit, acknowledge)

    def _acknowledge(
        self, session: MqttSession, connect: Connect, bound: Bound, outcome: bytes | StoreError
    ) -> None:
        """Answer the CONNECT; then let the session get what waits for it."""
        if isinstance(outcome, StoreError):
            outcome = encode(ConnAck(False, store_reason(outcome)), connect.version)
        if outcome or session.ended or self.closed:
            session.finish()
            self.send(outcome)
            self.close()
            return
        self._bind(session)
        self._parser.max_bytes = self._limits.stanza_bytes
        properties = self._connack_properties(session, connect)
        self.send(encode(ConnAck(bound.is_resumed, Reason.SUCCESS, properties), self._version))
        session.attach(self)
        session.submit(PingReq(), partial(_become_available, self._context.engine), 0)
        self._start_keep_alive(connect)
        self._is_connecting = False
        self._process()

    def _connack_properties(self, session: MqttSession, connect: Connect) -> dict[Property, Any]:
        if connect.version != V5:
            return {}
        limits, settings = self._limits, self._context.settings
        found: dict[Property, Any] = {
            Property.RECEIVE_MAXIMUM: receive_maximum(limits),
            Property.MAXIMUM_PACKET_SIZE: limits.stanza_bytes,
            Property.TOPIC_ALIAS_MAXIMUM: aliases.MOST,
        }
        if connect.session_expiry > limits.durable_session_time:
            found[Property.SESSION_EXPIRY] = int(limits.durable_session_time)
        if not connect.client_id:
            found[Property.ASSIGNED_CLIENT_ID] = session.full.partition("/")[2]
        if not settings.pubsub.shares:
            found[Property.SHARED_SUBSCRIPTIONS] = 0
        return found

    def _disconnect(self, session: MqttSession, packet: Disconnect) -> None:
        """Run the hooks of a client that leaves, then close without a will."""
        connect = self._connect
        expiry = packet.properties.get(Property.SESSION_EXPIRY)
        if expiry and connect is not None and not connect.session_expiry:
            self.fail(Reason.PROTOCOL_ERROR, "a session that ends with its connection expires")
            return
        engine = self._context.engine
        work = partial(_run_disconnect_hooks, engine, engine.hooks.of(MqttHooks), packet)
        session.submit(packet, work, 0)
        session.set_end_name("closed")
        session.in_order(self.close)

    # Keep alive

    def _start_keep_alive(self, connect: Connect) -> None:
        self._keep_alive = connect.keep_alive * KEEP_ALIVE_FACTOR
        if self._keep_alive:
            self._set_keep_alive_timer(self._keep_alive)

    def _set_keep_alive_timer(self, seconds: float) -> None:
        timer = self._context.loop.call_later(seconds, self._check_keep_alive)
        self._keep_alive_timer = timer

    def _check_keep_alive(self) -> None:
        if self.closed:
            return
        left = self._keep_alive - (self._context.loop.time() - self.last_input)
        if left > 0 or not self._reading:  # what is not read may be waiting in the socket
            self._set_keep_alive_timer(max(left, 1.0))
        else:
            self._context.refusals.add("keep_alive", source=self.peer)
            self.fail(Reason.KEEP_ALIVE_TIMEOUT)

    # Output

    def flush(self) -> None:
        """Write the output now."""
        packets, before = len(self._output), self.written
        super().flush()
        if self.written > before:
            self._traffic.sent += packets
            self._traffic.bytes_sent += self.written - before

    # The end

    def end(self, reason: EndReason) -> None:
        """Send the reason code, and close."""
        self.fail(end_reason(reason))

    def fail(self, reason: Reason, text: str = "") -> None:
        """Send a DISCONNECT with a reason, as far as the client's version has one, and close."""
        self._items.clear()
        self._unparsed = b""
        if self._session is not None:
            self._session.set_end_name(reason.name.lower())
        if self._session is not None and self._version == V5:
            properties = {Property.REASON_STRING: text} if text else NO_PROPERTIES
            self.send(encode(Disconnect(reason, properties), V5))
        elif self._session is None and self._connect is not None and not self._handshaking:
            self.send(encode(ConnAck(False, reason), self._version))
        self.close()

    def _stop(self) -> None:
        if self._keep_alive_timer is not None:
            self._keep_alive_timer.cancel()
        super()._stop()


def _account(user_name: str, domain: str) -> str:
    """Return the account of a user name, `NAME` or `NAME@DOMAIN`; "" if it can have none."""
    name, at, host = user_name.partition("@")
    try:
        return "" if at and host.lower() != domain else jid.prepare_local(name)
    except JidError:
        return ""


def _run_connect_hooks(
    context: Context, hooks: MqttHooks, packet: Connect, tx: Transaction, sender: Sender
) -> bytes:
    """Run the hooks of a session that begins; return the answer if one refuses it."""
    try:
        for hook in hooks.on_connect:
            hook(context, tx, sender, packet)
    except ServiceError as error:
        return encode(ConnAck(False, answers.reason(context, error)), packet.version)
    return b""


def _run_disconnect_hooks(
    context: Context, hooks: MqttHooks, packet: Disconnect, tx: Transaction, sender: Sender
) -> bytes:
    for hook in hooks.on_disconnect:
        hook(context, tx, sender, packet)
    return b""


def _become_available(context: Context, tx: Transaction, sender: Sender) -> bytes:
    """Let a session get items and what waits for it, but no messages of its account, for which MQTT
    has no topic."""
    sessions.set_available(context, tx, sender, accepts=False)
    sessions.run_ready_hooks(context, tx, sender)
    return b""
