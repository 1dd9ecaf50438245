"""A device's connection by XMPP: the negotiation of its stream, and its log-in.

Until a session is bound, the connection carries out the actions of the stream negotiation, whose
results go back into the negotiation; after that it passes stanzas to the session. White space that
keeps a connection alive is accepted.
"""

from __future__ import annotations

import secrets
from functools import partial
from typing import Final

from edge import jid
from edge.credentials import Credentials
from edge.engine.dispatch.outputs import EndReason
from edge.engine.rules import access
from edge.engine.rules.quota import ExceededLimit
from edge.engine.sessions.session_lifecycle import Bound
from edge.server.connection import Connection
from edge.server.login import CERTIFICATE, PLAIN_KEYS, BindRefusal, CertificateOwner, Login
from edge.server.registry import Registry
from edge.server.server_context import ServerContext
from edge.server.wire import Wire
from edge.server.xmpp.errors import stanza_error, stream_error
from edge.server.xmpp.session import Streams, XmppSession
from edge.server.xmpp.stream_input import Input
from edge.xmpp.errors import StanzaError, StreamError
from edge.xmpp.stanza import STANZA_NAMES, Stanza
from edge.xmpp.stream import actions, management
from edge.xmpp.stream.actions import Action
from edge.xmpp.stream.negotiation import Negotiation

OUT_OF_ORDER: Final = frozenset((management.REQUEST, management.ACK))
"""The elements, other than stanzas, that are handled while stanzas are in flight; all others wait
for the answers to these stanzas."""

ATTEMPT_FAILED: Final = "not-authorized"
"""The SASL failure that counts as an attempt to guess a password; others are client errors."""

_LOOKED_UP: Final = frozenset({ATTEMPT_FAILED, "credentials-expired", "temporary-auth-failure"})
"""Failure conditions whose cause the store knows; the event log has it, and the peer seldom."""


class XmppConnection(Connection[Input, XmppSession]):
    """A connection of XMPP."""

    __slots__ = ("_negotiation", "_streams")

    def __init__(
        self,
        context: ServerContext,
        streams: Streams,
        wire: Wire,
        registry: Registry[XmppSession],
    ) -> None:
        super().__init__(context, wire, registry)
        self._streams = streams
        self._negotiation = self._new_negotiation()

    def _new_negotiation(self, *, certificate: bool = False) -> Negotiation:
        settings, limits = self._context.settings, self._limits
        return Negotiation(
            settings.gateway.domain,
            require_tls=settings.xmpp.require_tls,
            secure=self.secure,
            certificate=certificate,
            limits=(limits.stranger_stanza_bytes, limits.stanza_bytes),
            features=self._streams.router.stream_features,
        )

    def begin(self, login: Login) -> None:
        """Begin the negotiation, or continue it after STARTTLS."""
        certificate = login.certificate is not None
        wanted: list[Action] = []
        if self._wire.direct:
            self._negotiation = self._new_negotiation(certificate=certificate)
        elif self.secure:
            wanted = self._negotiation.tls_established(certificate=certificate)
        self._perform(wanted)

    # Input

    def _has_more(self) -> bool:
        """Return whether the peer has sent more than was handled."""
        return bool(self._items or self._wire.pending)

    def is_waiting(self) -> bool:
        """Return whether the negotiation waits for a result."""
        return self._negotiation.waiting

    def handle(self, item: Input) -> bool:
        """Handle an item, if it has not to wait: a stanza for the rate limit, and others for the
        answers to earlier stanzas."""
        session = self._session
        if session is None:
            self._negotiate(item)
        elif isinstance(item, Stanza) and item.name in STANZA_NAMES:
            if self._rate_limiter.is_paused(self):
                return False
            sender = item.attrs.get("from")
            if sender is None or _is_own_address(session, sender):
                self._rate_limiter.count_request()
                session.handle(item)
            else:
                self._items.insert(0, StreamError("invalid-from"))
        elif session.in_flight and not (isinstance(item, Stanza) and item.name in OUT_OF_ORDER):
            return False  # the end of the stream comes after the answers to earlier stanzas
        else:
            self._negotiate(item)
        return True

    # Negotiation

    def _negotiate(self, item: Input) -> None:
        if self._login is not None:
            self._login.note_input()
        if isinstance(item, StreamError):
            self._context.refusals.add(item.condition, source=self.peer)
            self.fail(item)
        else:
            self._perform(self._negotiation.receive(item, more=self._has_more()))

    def _continue_with(self, wanted: list[Action]) -> None:
        """Carry out actions of the negotiation, then handle the input that waited for them."""
        self._perform(wanted)
        self._process()

    def _perform(self, wanted: list[Action]) -> None:
        for action in wanted:
            match action:
                case actions.Send(data):
                    self.send(data)
                case actions.RestartStream():
                    self._wire.reset_parser()
                case actions.StartTls():
                    self.flush()
                    self._context.refresh_certificates()
                    self._wire.start_tls()
                case actions.Close():
                    self.close()
                case actions.Route(stanza) if self._session is not None:
                    self._session.handle(stanza)
                case actions.ManageStream(item) if self._session is not None:
                    self._manage_stream(self._session, item)
                case _ if self._login is not None:
                    self._log_in(self._login, action)

    def _manage_stream(self, session: XmppSession, item: Stanza) -> None:
        try:
            session.handle_management(item)
        except StreamError as error:
            self._negotiate(error)

    def _start_session(self, session: XmppSession, wanted: list[Action]) -> None:
        """Carry out the negotiation's actions `wanted`, then begin or resume a session."""
        self._bind(session)
        self._perform(wanted)
        session.attach(self)
        self._process()
        self._wire.release()  # most devices send little

    # Log-in

    def _log_in(self, login: Login, action: Action) -> None:
        negotiation = self._negotiation
        match action:
            case actions.FindCredentials(username, mechanism):
                self._find_credentials(login, username, mechanism)
            case actions.FindCertificateOwner():
                login.find_certificate_owner(self._continue_with_owner)
            case actions.VerifyPassword(password, keys):
                login.verify_password(password, keys, self._continue_verified)
            case actions.LoginFailure(username, condition):
                reason = "" if condition in _LOOKED_UP else condition.replace("-", " ")
                is_guess = condition == ATTEMPT_FAILED and negotiation.mechanism != CERTIFICATE
                report = self._report_failure
                login.fail(username, negotiation.mechanism, reason, report, is_guess=is_guess)
            case actions.LoginSuccess(username):
                if negotiation.mechanism != CERTIFICATE:
                    login.accept(username)
                self._wire.set_limit(self._limits.stanza_bytes)
            case actions.Resume(previd, h):
                self._resume(previd, h)
            case actions.Bind():
                self._bind_session(login, action)

    def _find_credentials(self, login: Login, username: str, mechanism: str) -> None:
        negotiation = self._negotiation
        if not login.may_try(username):
            self._continue_with(negotiation.attempt_refused())
            return

        def done(keys: Credentials | None) -> None:
            self._continue_with(negotiation.credentials_found(keys))

        wanted = PLAIN_KEYS if mechanism == "PLAIN" else mechanism
        login.find_credentials(username, wanted, done)

    def _continue_with_owner(self, owner: CertificateOwner | None) -> None:
        negotiation, more = self._negotiation, self._has_more()
        if owner is None:
            self._continue_with(negotiation.attempt_refused())
        else:
            expired = owner.is_expired
            self._continue_with(negotiation.owner_found(owner.name, expired=expired, more=more))

    def _continue_verified(self, correct: bool) -> None:
        wanted = self._negotiation.password_verified(correct, more=self._has_more())
        self._continue_with(wanted)

    def _report_failure(self) -> None:
        self._continue_with(self._negotiation.report_failure())

    def _bind_session(self, login: Login, wanted: actions.Bind) -> None:
        """Bind a new session; it replaces the session with the same full JID."""
        context, negotiation, registry = self._context, self._negotiation, self._registry
        account = negotiation.username
        full = f"{account}@{negotiation.domain}/{wanted.resource or secrets.token_hex(8)}"
        generation = context.outputs.next_generation()
        session = XmppSession(
            context, self._streams, registry, generation, account, full, self._source
        )
        if (exceeded := login.admit(registry, session)) is not None:
            self._continue_with(negotiation.bind_refused(_bind_error(exceeded)))
            return
        enabled = b"" if wanted.enable is None else session.enable_management(wanted.enable)
        login.bind(session, self, partial(self._finish_bind, session, enabled))

    def _finish_bind(
        self, session: XmppSession, enabled: bytes, outcome: Bound | BindRefusal
    ) -> None:
        negotiation = self._negotiation
        if isinstance(outcome, Bound):
            self._start_session(session, negotiation.bound(session.full, enabled))
        else:
            self._continue_with(negotiation.bind_refused(_bind_error(outcome)))

    def _resume(self, previd: str, h: int) -> None:
        resumable, negotiation = self._streams.resumable, self._negotiation
        session = resumable.find(previd)
        if session is None or not access.may_resume(negotiation.username, session.account):
            handled = resumable.handled_by_ended(previd, negotiation.username)
            self._continue_with(negotiation.not_resumed(handled))
            return
        if not self._context.admission.move(session, self._source):
            limit = self._limits.sessions_per_address
            self._context.refusal_log.log(self._source, "sessions_per_address", limit)
            self._continue_with(negotiation.not_resumed(None))
            return
        session.resume(self, h, partial(self._finish_resume, session, previd))

    def _finish_resume(
        self, session: XmppSession, previd: str, outcome: bool | StreamError
    ) -> None:
        negotiation = self._negotiation
        if isinstance(outcome, StreamError):
            self.fail(outcome)
        elif outcome:
            wanted = negotiation.resumed(session.full, previd, session.handled)
            self._start_session(session, wanted)
        else:
            handled = self._streams.resumable.handled_by_ended(previd, negotiation.username)
            self._continue_with(negotiation.not_resumed(handled))

    # The end

    def end(self, reason: EndReason) -> None:
        """Send the stream error of the reason, and close."""
        self.fail(stream_error(reason))

    def fail(self, error: StreamError) -> None:
        """Send a stream error and close."""
        self._items.clear()
        if self._session is not None:
            self._session.set_end_name(error.condition)
        self._perform(self._negotiation.fail(error))


def _bind_error(refusal: BindRefusal) -> StanzaError:
    if isinstance(refusal, ExceededLimit):
        return StanzaError("resource-constraint", refusal.text)
    if isinstance(refusal, EndReason):
        return StanzaError("not-allowed", "the account was revoked during the login")
    return stanza_error(refusal)


def _is_own_address(session: XmppSession, address: str) -> bool:
    """Return whether a stanza's `from` is the session's full or bare JID (RFC 6120, section
    8.1.2.1)."""
    try:
        return jid.parse(address).full in (session.full, session.bare)
    except jid.JidError:
        return False
