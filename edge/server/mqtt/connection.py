"""A device's connection by MQTT: CONNECT and the log-in, keep alive, and the end.

The first packet must be a CONNECT. Until its session is bound, only AUTH is handled, if the log-in
waits for it; after that, all packets but PINGREQ, DISCONNECT and AUTH go to the session. Source:
MQTT 5.0, sections 3.1, 3.2, 3.12 to 3.15, 4.12 and 4.13.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, TypeGuard

from edge import sasl
from edge.engine.dispatch.hooks import Context
from edge.engine.dispatch.outputs import EndReason
from edge.engine.rules.access import Sender
from edge.engine.sessions import durable_sessions, sessions
from edge.engine.sessions.session_lifecycle import Bound
from edge.engine.store.database import Transaction
from edge.errors import ServiceError, StoreError
from edge.mqtt import PROTOCOL
from edge.mqtt.codec import encode, encode_within
from edge.mqtt.packets import (
    MAX_PACKET,
    NO_PROPERTIES,
    V5,
    VERSION_NAMES,
    Auth,
    ConnAck,
    Connect,
    Disconnect,
    Fault,
    Packet,
    PingReq,
    PingResp,
    Properties,
    Property,
    Subscribe,
    Unsubscribe,
)
from edge.mqtt.reasons import Reason
from edge.routing.mqtt import MqttHooks, answers
from edge.server.connection import Connection
from edge.server.login import CERTIFICATE, PLAIN, BindRefusal, CertificateOwner, Login
from edge.server.mqtt import terms
from edge.server.mqtt.authentication import Authentication
from edge.server.mqtt.ends import bind_reason, end_reason, refusal_reason, store_reason
from edge.server.mqtt.packet_input import Input
from edge.server.mqtt.session import MqttSession
from edge.server.mqtt.traffic import Traffic
from edge.server.registry import Registry
from edge.server.server_context import ServerContext
from edge.server.wire import Wire

KEEP_ALIVE_FACTOR: Final = 1.5
"""Factor of the keep alive after which a silent client is lost (section 3.1.2.10)."""


class MqttConnection(Connection[Input, MqttSession]):
    """A connection of MQTT."""

    __slots__ = (
        "_authentication", "_connect", "_is_connecting", "_keep_alive", "_keep_alive_timer",
        "_max_packet", "_traffic",
    )  # fmt: skip

    def __init__(
        self,
        context: ServerContext,
        wire: Wire,
        registry: Registry[MqttSession],
        traffic: Traffic,
    ) -> None:
        super().__init__(context, wire, registry)
        self._traffic = traffic
        traffic.connections += 1
        self._connect: Connect | None = None
        self._authentication: Authentication | None = None
        self._is_connecting = False
        self._max_packet = MAX_PACKET  # that the client accepts
        self._keep_alive = 0.0  # seconds without input after which the client is lost
        self._keep_alive_timer: asyncio.TimerHandle | None = None

    # Input

    def is_waiting(self) -> bool:
        """Return whether the log-in waits for a result."""
        authentication = self._authentication
        return self._is_connecting and (authentication is None or not authentication.is_prompted)

    def receive(self, items: Sequence[Input], size: int) -> None:
        """Handle the packets that ended in `size` bytes of input, and a fault if there is one."""
        self._traffic.bytes_received += size
        self._traffic.received += len(items)
        super().receive(items, size)

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
        elif self._rate_limiter.is_paused(self):
            return False
        else:
            filters = 1
            if isinstance(item, Subscribe):
                filters = len(item.subscriptions)
            elif isinstance(item, Unsubscribe):
                filters = len(item.filters)
            self._rate_limiter.count_request(filters)
            if isinstance(item, Auth):
                self._authenticate_again(session, item)
            else:
                session.handle(item)
        return True

    @property
    def _version(self) -> int:
        return V5 if self._connect is None else self._connect.version

    def _handle_before_session(self, item: Input) -> None:
        exchange = self._authentication
        if isinstance(item, Connect) and self._login is not None and self._connect is None:
            self._begin_login(self._login, item)
        elif isinstance(item, Auth) and _continues(exchange, item):
            exchange.receive(item.properties.get(Property.AUTHENTICATION_DATA, b""))
        elif isinstance(item, Fault):
            self._context.refusals.add(item.reason.name.lower(), source=self.peer)
            self._refuse_malformed(item)
        elif exchange is not None and not isinstance(item, Disconnect):
            self._refuse(Reason.PROTOCOL_ERROR, "only AUTH or DISCONNECT may be sent now")
        else:
            self.close()

    def _refuse_malformed(self, fault: Fault) -> None:
        """Close the connection. A client of 5.0, or of a version that is not supported, is told why
        (section 3.1.4; MQTT 3.1.1, section 3.1.4)."""
        version = fault.version
        if version == V5 or fault.reason is Reason.UNSUPPORTED_PROTOCOL_VERSION:
            self.send(encode(ConnAck(False, refusal_reason(fault.reason)), version))
        self.close()

    # Log-in

    @property
    def protocol_tags(self) -> dict[str, str]:
        """The tags by which the event log names the protocol, with the version once it is known."""
        tags = {"protocol": PROTOCOL}
        if self._connect is not None:
            tags["version"] = VERSION_NAMES[self._connect.version]
        return tags | ({"transport": self.transport} if self.transport else {})

    def _begin_login(self, login: Login, connect: Connect) -> None:
        self._connect = connect
        login.protocol_tags = self.protocol_tags
        self._is_connecting = True
        self._max_packet = connect.properties.get(Property.MAXIMUM_PACKET_SIZE, MAX_PACKET)
        settings = self._context.settings
        method = connect.properties.get(Property.AUTHENTICATION_METHOD)
        if settings.mqtt.require_tls and not self.secure:
            self._refuse(Reason.NOT_AUTHORIZED, "TLS is required")
        elif not terms.may_have_id(connect):
            self._refuse(Reason.CLIENT_IDENTIFIER_NOT_VALID)
        elif method is not None:
            self._authenticate(login, connect, method)
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

    def _authenticate(self, login: Login, connect: Connect, method: str) -> None:
        if method not in sasl.SCRAM:
            self._refuse(Reason.BAD_AUTHENTICATION_METHOD)
            return
        name, domain = connect.user_name, self._context.settings.gateway.domain
        account = None if name is None else terms.account_of(name, domain)
        bind = partial(self._bind_session, login)
        self._begin_exchange(login, connect.properties, bind, self._refuse_login, account)

    def _begin_exchange(
        self,
        login: Login,
        properties: Properties,
        done: Callable[[str], None],
        refused: Callable[[], None],
        account: str | None,
    ) -> None:
        method = properties[Property.AUTHENTICATION_METHOD]
        domain = self._context.settings.gateway.domain
        exchange = Authentication(login, method, domain, self._challenge, done, refused)
        self._authentication = exchange
        exchange.begin(properties.get(Property.AUTHENTICATION_DATA, b""), account)

    def _challenge(self, properties: Properties) -> None:
        self._send_within(Auth(Reason.CONTINUE_AUTHENTICATION, properties))
        self._process()

    def _authenticate_again(self, session: MqttSession, packet: Auth) -> None:
        """Continue an authentication in a session, or begin a new one, which must be by the method
        of the log-in (section 4.12.1)."""
        exchange, connect = self._authentication, self._connect
        method = packet.properties.get(Property.AUTHENTICATION_METHOD)
        if _continues(exchange, packet):
            exchange.receive(packet.properties.get(Property.AUTHENTICATION_DATA, b""))
        elif (
            exchange is None
            and connect is not None
            and packet.reason == Reason.REAUTHENTICATE
            and method == connect.properties.get(Property.AUTHENTICATION_METHOD)
        ):
            self._login = Login(self._context, self._source, self.address)
            self._login.protocol_tags = self.protocol_tags
            self._begin_exchange(
                self._login,
                packet.properties,
                self._acknowledge_authentication,
                partial(self.fail, Reason.NOT_AUTHORIZED),
                session.account,
            )
        else:
            self.fail(Reason.PROTOCOL_ERROR, "this AUTH is not expected")

    def _acknowledge_authentication(self, _account: str) -> None:
        if self._authentication is not None:
            self._send_within(Auth(Reason.SUCCESS, self._authentication.verifier))
        self._authentication = self._login = None

    def _check_password(self, login: Login, user_name: str, password: bytes) -> None:
        account, text = terms.account_of(user_name, self._context.settings.gateway.domain), ""
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
        if name is not None and (wanted is None or terms.account_of(wanted, domain) == name):
            self._bind_session(login, name)
            return
        reason = "" if name is None else "the certificate belongs to another device"
        login.fail(name or "", CERTIFICATE, reason, self._refuse_login, is_guess=False)

    def _refuse_login(self) -> None:
        self._refuse(Reason.BAD_USER_NAME_OR_PASSWORD)

    def _refuse(self, reason: Reason, text: str = "") -> None:
        """Refuse the CONNECT, and close."""
        self._send_within(ConnAck(False, refusal_reason(reason), _explanation(text)))
        self.close()

    def _send_within(self, packet: Packet) -> None:
        """Send a packet unless it is larger than the client accepts (section 3.1.2.11.4)."""
        self.send(encode_within(packet, self._version, self._max_packet))

    # Session

    def _bind_session(self, login: Login, account: str) -> None:
        connect, context, registry = self._connect, self._context, self._registry
        if connect is None or self.closed:
            return
        client = terms.resource(connect.client_id) or secrets.token_hex(8)
        full = f"{account}@{context.settings.gateway.domain}/{client}"
        generation = context.outputs.next_generation()
        session = MqttSession(
            context,
            registry,
            generation,
            account,
            full,
            self._source,
            connect,
            self._traffic,
            self.fail,
        )
        if (exceeded := login.admit(registry, session)) is not None:
            self._refuse(Reason.QUOTA_EXCEEDED, exceeded.text)
        else:
            done = partial(self._start_session, session, connect)
            declared = terms.declaration(connect, self._limits, self.transport)
            login.bind(session, self, done, declared)

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
        self._wire.set_limit(self._limits.stanza_bytes)
        self._bind(session)
        settings = self._context.settings
        properties = terms.granted(connect, settings, session.full.partition("/")[2])
        if self._authentication is not None:
            properties |= self._authentication.verifier
            self._authentication = None
        self._send_within(ConnAck(bound.is_resumed, Reason.SUCCESS, properties))
        session.attach(self)
        self._traffic.note_session()
        session.submit(PingReq(), partial(_become_available, self._context.engine), 0)
        self._start_keep_alive(terms.keep_alive(connect, settings.mqtt.keep_alive))
        self._connect = terms.lasting(connect)
        self._is_connecting = False
        self._process()

    def _disconnect(self, session: MqttSession, packet: Disconnect) -> None:
        """Run the hooks of a client that leaves, then close. The client may change how long its
        session is kept (section 3.14.2.2.2)."""
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

    def _start_keep_alive(self, seconds: int) -> None:
        self._keep_alive = seconds * KEEP_ALIVE_FACTOR
        if self._keep_alive:
            self._set_keep_alive_timer(self._keep_alive)

    def _set_keep_alive_timer(self, seconds: float) -> None:
        timer = self._context.loop.call_later(seconds, self._check_keep_alive)
        self._keep_alive_timer = timer

    def _check_keep_alive(self) -> None:
        if self.closed:
            return
        left = self._keep_alive - (self._context.loop.time() - self.last_input)
        if left > 0 or not self._wire.wanted:  # what is not read may be waiting in the socket
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
        if self._session is not None:
            self._session.set_end_name(reason.name.lower())
        if self._session is not None and self._version == V5:
            self._send_within(Disconnect(reason, _explanation(text)))
        elif self._session is None and self._connect is not None:
            self._send_within(ConnAck(False, refusal_reason(reason), _explanation(text)))
        self.close()

    def _stop(self) -> None:
        if self._keep_alive_timer is not None:
            self._keep_alive_timer.cancel()
        super()._stop()


def _continues(exchange: Authentication | None, packet: Auth) -> TypeGuard[Authentication]:
    """Return whether an AUTH is the next message of an exchange."""
    return (
        exchange is not None
        and exchange.is_prompted
        and packet.reason == Reason.CONTINUE_AUTHENTICATION
        and packet.properties.get(Property.AUTHENTICATION_METHOD) == exchange.method
    )


def _explanation(text: str) -> Properties:
    return {Property.REASON_STRING: text} if text else NO_PROPERTIES


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
    if (expiry := packet.properties.get(Property.SESSION_EXPIRY)) is not None:
        durable_sessions.set_time(context, tx, sender.full, expiry)
    return b""


def _become_available(context: Context, tx: Transaction, sender: Sender) -> bytes:
    """Let a session get items and what waits for it, but no messages of its account, for which MQTT
    has no topic."""
    sessions.set_available(context, tx, sender, accepts=False)
    sessions.run_ready_hooks(context, tx, sender)
    return b""
