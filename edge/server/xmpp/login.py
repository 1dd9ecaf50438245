"""The steps of stream negotiation that need the store, a password hash or a session.

The result of each step goes back into the negotiation, on the event loop.
"""

from __future__ import annotations

import secrets
from functools import partial
from typing import Final, Protocol

from edge.credentials import Credentials
from edge.engine import access
from edge.engine.outputs import EndReason
from edge.server.login import CERTIFICATE, BindRefusal, CertificateOwner, Login
from edge.server.registry import Registry
from edge.server.server_context import ServerContext
from edge.server.xmpp.errors import stanza_error
from edge.server.xmpp.session import StreamConnection, Streams, XmppSession
from edge.xmpp.errors import StanzaError
from edge.xmpp.stream import actions
from edge.xmpp.stream.actions import Action
from edge.xmpp.stream.negotiation import Negotiation

PLAIN_CREDENTIALS: Final = "SCRAM-SHA-256"
"""The mechanism whose stored credentials verify a password that was sent by PLAIN."""

ATTEMPT_FAILED: Final = "not-authorized"
"""The SASL failure that counts as an attempt to guess a password; others are client errors."""

_LOOKED_UP: Final = frozenset({ATTEMPT_FAILED, "credentials-expired", "temporary-auth-failure"})
"""Failure conditions whose cause the store knows; the event log has it, and the peer seldom."""


class LoginConnection(StreamConnection, Protocol):
    """The methods of a connection that its login calls."""

    @property
    def has_more(self) -> bool:
        """Return whether the peer has sent more than was handled."""

    def continue_with(self, wanted: list[Action]) -> None:
        """Carry out actions of the negotiation, then handle the input that waited for them."""

    def start_session(self, session: XmppSession, wanted: list[Action]) -> None:
        """Carry out the negotiation's actions `wanted`, then begin or resume a session."""

    def accept_large_stanzas(self) -> None:
        """Raise the limit on the size of stanzas."""


class LoginSteps:
    """The steps of one connection's negotiation."""

    def __init__(
        self,
        context: ServerContext,
        streams: Streams,
        registry: Registry[XmppSession],
        connection: LoginConnection,
        negotiation: Negotiation,
        login: Login,
    ) -> None:
        self._context = context
        self._streams = streams
        self._registry = registry
        self._connection = connection
        self._negotiation = negotiation
        self._login = login

    def perform(self, action: Action) -> None:
        """Carry out an action of the negotiation."""
        match action:
            case actions.FindCredentials(username, mechanism):
                self._find_credentials(username, mechanism)
            case actions.FindCertificateOwner():
                self._login.find_certificate_owner(self._continue_with_owner)
            case actions.VerifyPassword(password, keys):
                self._login.verify_password(password, keys, self._continue_verified)
            case actions.LoginFailure(username, condition):
                self._delay_failure(username, condition)
            case actions.LoginSuccess(username):
                if self._negotiation.mechanism != CERTIFICATE:
                    self._login.accept(username)
                self._connection.accept_large_stanzas()
            case actions.Resume(previd, h):
                self._resume(previd, h)
            case actions.Bind():
                self._bind(action)

    # Authentication

    def _find_credentials(self, username: str, mechanism: str) -> None:
        connection, negotiation = self._connection, self._negotiation
        if not self._login.may_try(username):
            connection.continue_with(negotiation.attempt_refused())
            return

        def done(keys: Credentials | None) -> None:
            connection.continue_with(negotiation.credentials_found(keys))

        wanted = PLAIN_CREDENTIALS if mechanism == "PLAIN" else mechanism
        self._login.find_credentials(username, wanted, done)

    def _continue_with_owner(self, owner: CertificateOwner | None) -> None:
        connection, negotiation = self._connection, self._negotiation
        if owner is None:
            connection.continue_with(negotiation.attempt_refused())
        else:
            more, expired = connection.has_more, owner.is_expired
            connection.continue_with(
                negotiation.owner_found(owner.name, expired=expired, more=more)
            )

    def _continue_verified(self, correct: bool) -> None:
        more = self._connection.has_more
        self._connection.continue_with(self._negotiation.password_verified(correct, more=more))

    def _delay_failure(self, username: str, condition: str) -> None:
        mechanism = self._negotiation.mechanism
        reason = "" if condition in _LOOKED_UP else condition.replace("-", " ")
        is_guess = condition == ATTEMPT_FAILED and mechanism != CERTIFICATE
        self._login.fail(username, mechanism, reason, self._report_failure, is_guess=is_guess)

    def _report_failure(self) -> None:
        self._connection.continue_with(self._negotiation.report_failure())

    # Sessions

    def _bind(self, wanted: actions.Bind) -> None:
        """Bind a new session; it replaces the session with the same full JID."""
        context, negotiation = self._context, self._negotiation
        account = negotiation.username
        resource = wanted.resource or secrets.token_hex(8)
        full = f"{account}@{negotiation.domain}/{resource}"
        generation = context.outputs.next_generation()
        session = XmppSession(
            context, self._streams, self._registry, generation, account, full, self._login.source
        )
        if (exceeded := self._login.admit(self._registry, session)) is not None:
            text = f"the limit {exceeded.name} = {exceeded.value} is reached"
            error = StanzaError("resource-constraint", text)
            self._connection.continue_with(negotiation.bind_refused(error))
            return
        enabled = b"" if wanted.enable is None else session.enable_management(wanted.enable)
        self._login.bind(session, self._connection, partial(self._finish_binding, session, enabled))

    def _finish_binding(
        self, session: XmppSession, enabled: bytes, refusal: BindRefusal | None
    ) -> None:
        negotiation = self._negotiation
        if refusal is None:
            self._connection.start_session(session, negotiation.bound(session.full, enabled))
        elif isinstance(refusal, EndReason):
            error = StanzaError("not-allowed", "the account was revoked during the login")
            self._connection.continue_with(negotiation.bind_refused(error))
        else:
            self._connection.continue_with(negotiation.bind_refused(stanza_error(refusal)))

    def _resume(self, previd: str, h: int) -> None:
        context, resumable, negotiation = self._context, self._streams.resumable, self._negotiation
        session = resumable.find(previd)
        if session is None or not access.may_resume(negotiation.username, session.account):
            handled = resumable.handled_by_ended(previd, negotiation.username)
            self._connection.continue_with(negotiation.not_resumed(handled))
            return
        if not context.admission.move(session, self._login.source):
            limit = context.settings.limits.sessions_per_address
            context.refusal_log.log(self._login.source, "sessions_per_address", limit)
            self._connection.continue_with(negotiation.not_resumed(None))
            return

        def on_done(is_resumed: bool) -> None:
            if is_resumed:
                wanted = negotiation.resumed(session.full, previd, session.handled)
                self._connection.start_session(session, wanted)
            else:
                handled = resumable.handled_by_ended(previd, negotiation.username)
                self._connection.continue_with(negotiation.not_resumed(handled))

        session.resume(self._connection, h, on_done)
