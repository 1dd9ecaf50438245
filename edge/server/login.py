"""The steps of stream negotiation that need the store, a password hash or a session.

The result of each step goes back into the negotiation, on the event loop. Failures are delayed and
limited by `login_throttle`.
"""

from __future__ import annotations

import asyncio
import secrets
from typing import Final, NamedTuple, Protocol

from edge import credentials
from edge.credentials import Credentials
from edge.engine import access
from edge.engine.database import Transaction
from edge.engine.outputs import EndReason
from edge.errors import StoreError
from edge.features.accounts.store import accounts, certificates, known_logins
from edge.features.accounts.store.accounts import LoginAccount
from edge.features.accounts.store.certificates import IssuedCertificate
from edge.server.login_throttle import ADDRESSES_PER_ACCOUNT, KEYS
from edge.server.registry import Registry
from edge.server.server_context import ServerContext
from edge.server.session import Session, SessionConnection
from edge.server.store_errors import refusal_rule, stanza_error
from edge.server.tls import EXPIRED, PeerCertificate
from edge.xmpp.errors import StanzaError
from edge.xmpp.stream import actions, sasl
from edge.xmpp.stream.actions import Action
from edge.xmpp.stream.negotiation import Negotiation

PLAIN_CREDENTIALS: Final = "SCRAM-SHA-256"
"""The mechanism whose stored credentials verify a password that was sent by PLAIN."""

ATTEMPT_FAILED: Final = "not-authorized"
"""The SASL failure that counts as an attempt to guess a password; others are client errors."""

MAX_TEXT: Final = 64
"""Maximum characters of an account or mechanism name in an event, because peers choose them: as
many as the name of a device may have."""

_LOOKED_UP: Final = frozenset({ATTEMPT_FAILED, "credentials-expired", "temporary-auth-failure"})
"""Failure conditions whose cause the store knows; the event log has it, and the peer seldom."""

LIMIT: Final = "authentication_limit"
"""The rule (see `refusal_counters`) for logins that are refused without a check of the password,
because too many have failed."""

_TOO_MANY: Final = "too many failed logins"


class _CertificateOwner(NamedTuple):
    """The result of looking up a certificate.

    Attributes:
        name: the account that may log in with it, if any.
        grant: the account's login grant.
        holder: the device that the certificate was issued to, if it may not log in.
        fault: why it may not.
    """

    name: str | None = None
    grant: int | None = None
    holder: str = ""
    fault: str = ""


class LoginConnection(SessionConnection, Protocol):
    """The methods of a connection that its login calls."""

    @property
    def has_more(self) -> bool:
        """Return whether the peer has sent more than was handled."""

    def continue_with(self, wanted: list[Action]) -> None:
        """Carry out actions of the negotiation, then handle the input that waited for them."""

    def start_session(self, session: Session, wanted: list[Action]) -> None:
        """Carry out the negotiation's actions `wanted`, then begin or resume a session."""

    def accept_large_stanzas(self) -> None:
        """Raise the limit on the size of stanzas."""


class Login:
    """The login of one connection.

    Args:
        source: the source address of the connection, as `login_throttle.source_of` returns it.
        address: the IP address of the peer.
        certificate: the peer's certificate, if TLS verified one.
    """

    def __init__(
        self,
        context: ServerContext,
        registry: Registry,
        connection: LoginConnection,
        negotiation: Negotiation,
        source: str,
        address: str | None,
        certificate: PeerCertificate | None = None,
    ) -> None:
        self._context = context
        self._registry = registry
        self._connection = connection
        self._negotiation = negotiation
        self._source = source
        self._address = address
        self._certificate = certificate
        self._received_at = 0.0
        self._failure_timer: asyncio.TimerHandle | None = None
        self._grant: int | None = None  # of the account, when its credentials were looked up
        self._holder = ""  # the device that the peer's certificate was issued to
        self._fault = ""  # why the present attempt fails, if it does
        self._logged: dict[tuple[str, str, str], set[str]] = {}  # mechanisms of logged failures

    def note_input(self) -> None:
        """Record the time of input: if the login fails, the answer's delay counts from it."""
        self._received_at = self._context.loop.time()

    def stop(self) -> None:
        """Do not report a failure that is being delayed, because the connection is closed."""
        if self._failure_timer is not None:
            self._failure_timer.cancel()

    def perform(self, action: Action) -> None:
        """Carry out an action of the negotiation."""
        match action:
            case actions.FindCredentials(username, mechanism):
                self._find_credentials(username, mechanism)
            case actions.FindCertificateOwner():
                self._find_certificate_owner()
            case actions.VerifyPassword(password, keys):
                self._verify_password(password, keys)
            case actions.LoginFailure(username, condition):
                self._delay_failure(username, condition)
            case actions.LoginSuccess(username):
                self._accept(username)
            case actions.Resume(previd, h):
                self._resume(previd, h)
            case actions.Bind():
                self._bind(action)

    # Authentication

    def _find_credentials(self, username: str, mechanism: str) -> None:
        context, negotiation = self._context, self._negotiation
        if not context.throttle.may_try(self._source, username, context.loop.time()):
            self._fault = _TOO_MANY
            self._connection.continue_with(negotiation.attempt_refused())
            return
        wanted = PLAIN_CREDENTIALS if mechanism == "PLAIN" else mechanism

        def unit(tx: Transaction) -> tuple[Credentials | None, LoginAccount | None]:
            return accounts.credentials(tx, username, wanted), accounts.login_account(tx, username)

        def answer(outcome: tuple[Credentials | None, LoginAccount | None] | StoreError) -> None:
            if isinstance(outcome, StoreError):
                self._fault = str(outcome)
                self._connection.continue_with(negotiation.credentials_found(None))
                return
            keys, account = outcome
            self._grant = None if account is None or account.is_revoked else account.grant
            self._fault = _password_fault(keys, account)
            keys = credentials.or_decoy(keys, username, context.decoy_secret, wanted)
            self._connection.continue_with(negotiation.credentials_found(keys))

        context.store.submit(unit, answer)

    def _find_certificate_owner(self) -> None:
        """Find the owner of the peer's certificate, and check its dates.

        Attempts are not throttled, because a certificate's key cannot be guessed.
        """
        negotiation, certificate = self._negotiation, self._certificate

        def unit(tx: Transaction) -> _CertificateOwner:
            if certificate is None:
                return _CertificateOwner(fault=_certificate_fault(None))
            fingerprint = certificate.fingerprint
            name, fault = certificates.find_owner(tx, fingerprint), certificate.fault(tx.now.wall)
            if name is not None and not fault:
                return _CertificateOwner(name, accounts.login_grant(tx, name))
            issued = certificates.find_issued(tx, fingerprint)
            holder = "" if issued is None else issued.name
            return _CertificateOwner(holder=holder, fault=fault or _certificate_fault(issued))

        def answer(outcome: _CertificateOwner | StoreError) -> None:
            if isinstance(outcome, StoreError):
                self._fault = str(outcome)
                self._connection.continue_with(negotiation.attempt_refused())
                return
            name, self._grant, self._holder, self._fault = outcome
            more, expired = self._connection.has_more, self._fault == EXPIRED
            found = negotiation.owner_found(name, expired=expired, more=more)
            self._connection.continue_with(found)

        self._context.store.submit(unit, answer)

    def _verify_password(self, password: str, keys: Credentials) -> None:
        """Check a password outside of the event loop, because hashing takes milliseconds."""

        def answer(done: asyncio.Future[bool]) -> None:
            correct = not done.cancelled() and done.exception() is None and done.result()
            more = self._connection.has_more
            wanted = self._negotiation.password_verified(correct, more=more)
            self._connection.continue_with(wanted)

        context = self._context
        checked = context.loop.run_in_executor(context.hashing, credentials.verify, password, keys)
        checked.add_done_callback(answer)

    def _delay_failure(self, username: str, condition: str) -> None:
        """Report a failure after the throttle's delay, which does not depend on whether the account
        exists."""
        context, now = self._context, self._context.loop.time()
        throttle = context.throttle
        self._log_failure(username or self._holder, condition)
        if condition == ATTEMPT_FAILED and self._negotiation.mechanism != sasl.EXTERNAL:
            delay = throttle.add_failure(self._source, username, now)
        else:
            delay = throttle.delay(self._source, username, now)
        wait = max(self._received_at + delay - now, 0.0)
        self._failure_timer = context.loop.call_later(wait, self._report_failure)

    def _log_failure(self, account: str, condition: str) -> None:
        context, fault = self._context, self._fault
        rule = LIMIT if fault == _TOO_MANY else "authentication"
        reason = condition.replace("-", " ")
        if condition in _LOOKED_UP:
            reason = fault or "invalid account name"
        self._holder = self._fault = ""
        mechanism = self._negotiation.mechanism
        tried = self._logged.setdefault((rule, account, reason), set())
        if tried and mechanism not in tried:  # the client tries the same password another way
            tried.add(mechanism)
            return
        tried.add(mechanism)
        certificate = self._certificate if mechanism == sasl.EXTERNAL else None
        log_failure(
            context,
            rule,
            self._source,
            self._address,
            reason,
            mechanism=mechanism,
            account=account,
            serial="" if certificate is None else certificate.serial,
        )

    def _report_failure(self) -> None:
        self._connection.continue_with(self._negotiation.report_failure())

    def _accept(self, username: str) -> None:
        context, source = self._context, self._source
        if self._negotiation.mechanism != sasl.EXTERNAL and context.throttle.add_success(
            source, username, context.loop.time()
        ):
            self._save_known(source, username)
        self._connection.accept_large_stanzas()

    def _save_known(self, source: str, username: str) -> None:
        """Store that an account has logged in from an address, for the throttle after a restart."""
        context = self._context

        def unit(tx: Transaction) -> None:
            known_logins.add(tx, source, username, ADDRESSES_PER_ACCOUNT, KEYS)

        def answer(outcome: StoreError | None) -> None:
            if isinstance(outcome, StoreError):
                context.refusals.add(refusal_rule(outcome))

        context.store.submit(unit, answer)

    # Sessions

    def _bind(self, wanted: actions.Bind) -> None:
        """Bind a new session; it replaces the session with the same full JID."""
        context, registry, negotiation = self._context, self._registry, self._negotiation
        account = negotiation.username
        resource = wanted.resource or secrets.token_hex(8)
        full = f"{account}@{negotiation.domain}/{resource}"
        generation = context.outputs.next_generation()
        session = Session(context, registry, generation, account, full, self._source)
        if (exceeded := registry.admit(session)) is not None:
            source = session.bare if exceeded.name == "sessions_per_account" else self._source
            context.refusal_log.log(source, exceeded.name, exceeded.value)
            text = f"the limit {exceeded.name} = {exceeded.value} is reached"
            error = StanzaError("resource-constraint", text)
            self._connection.continue_with(negotiation.bind_refused(error))
            return
        context.admission.replace_others(session)
        enabled = b"" if wanted.enable is None else session.enable_management(wanted.enable)

        def unit(tx: Transaction) -> int | StanzaError | None:
            if self._grant is None or accounts.login_grant(tx, account) != self._grant:
                return StanzaError("not-allowed", "the account was revoked during the login")
            return context.lifecycle.bind(
                tx, generation, account, session.bare, session.full, self._grant
            )

        def answer(outcome: int | StanzaError | StoreError | None) -> None:
            if isinstance(outcome, StanzaError | StoreError):
                session.finish()
                refused = stanza_error(outcome) if isinstance(outcome, StoreError) else outcome
                self._connection.continue_with(negotiation.bind_refused(refused))
                return
            if outcome is not None:
                context.outputs.end(outcome, EndReason.REPLACED)
            if self._connection.closed or session.ended:  # while the unit of work was waiting
                session.finish()
                if session.end_error is not None:
                    self._connection.fail(session.end_error)
                return
            self._connection.start_session(session, negotiation.bound(session.full, enabled))

        context.store.submit(unit, answer)

    def _resume(self, previd: str, h: int) -> None:
        context, registry, negotiation = self._context, self._registry, self._negotiation
        session = registry.find_resumable(previd)
        if session is None or not access.may_resume(negotiation.username, session.account):
            handled = registry.handled_by_ended(previd, negotiation.username)
            self._connection.continue_with(negotiation.not_resumed(handled))
            return
        if not context.admission.move(session, self._source):
            limit = context.settings.limits.sessions_per_address
            context.refusal_log.log(self._source, "sessions_per_address", limit)
            self._connection.continue_with(negotiation.not_resumed(None))
            return

        def on_done(is_resumed: bool) -> None:
            if is_resumed:
                wanted = negotiation.resumed(session.full, previd, session.handled)
                self._connection.start_session(session, wanted)
            else:
                handled = registry.handled_by_ended(previd, negotiation.username)
                self._connection.continue_with(negotiation.not_resumed(handled))

        session.resume(self._connection, h, on_done)


def log_failure(
    context: ServerContext,
    rule: str,
    source: str,
    address: str | None,
    reason: str,
    *,
    mechanism: str,
    account: str = "",
    serial: str = "",
) -> None:
    """Log a failed login or handshake, with the reason, which the peer does not learn.

    Args:
        rule: the rule (see `refusal_counters`), such as `authentication`.
        source: the source address, as `login_throttle.source_of` returns it.
        address: the IP address, if it is known.
        serial: the serial number of the peer's certificate.
    """
    tags = {
        "account": account[:MAX_TEXT],
        "mechanism": mechanism[:MAX_TEXT],
        "serial": serial[:MAX_TEXT],
    }
    if address is not None and address != source:
        tags["address"] = address
    tags = {name: value for name, value in tags.items() if value}
    limit = context.settings.limits.authenticate_failures if rule == LIMIT else None
    now = context.loop.time()
    context.refusal_log.log_failed_login(source, rule, reason, tags, now, limit)


def _password_fault(keys: Credentials | None, account: LoginAccount | None) -> str:
    if account is None:
        return "unknown account"
    if account.is_revoked:
        return "account revoked"
    return "account without password" if keys is None else "wrong password"


def _certificate_fault(issued: IssuedCertificate | None) -> str:
    """Return the reason to log for a login by a certificate without an owner.

    `issued` is the gateway's record of the certificate, if there is one.
    """
    if issued is None:
        return "certificate unknown"
    if issued.is_removed:
        return "account removed"
    return "certificate revoked" if issued.is_revoked else "account revoked"
