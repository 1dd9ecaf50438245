"""The log-in of a connection, whatever its protocol: look-ups, checks of passwords, and binding.

A failure is logged with its reason, which the peer does not learn, and reported to the peer after a
delay; `login_throttle` limits how many there are. All results come back on the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

from edge import credentials
from edge.credentials import Credentials
from edge.engine.dispatch.outputs import EndReason
from edge.engine.rules.quota import ExceededLimit
from edge.engine.sessions.session_lifecycle import Bound
from edge.engine.sessions.sessions import DEFAULT, Declaration
from edge.engine.store.database import Transaction
from edge.errors import StoreError
from edge.features.accounts.store import accounts, certificates, known_logins
from edge.features.accounts.store.accounts import LoginAccount
from edge.features.accounts.store.certificates import IssuedCertificate
from edge.server.login_throttle import ADDRESSES_PER_ACCOUNT, KEYS
from edge.server.registry import Registry
from edge.server.server_context import ServerContext
from edge.server.session import Session, SessionConnection
from edge.server.tls import EXPIRED, PeerCertificate

CERTIFICATE: Final = "EXTERNAL"
"""The mechanism of log-ins by certificate, under which they are logged, as SASL names it."""

PLAIN: Final = "PLAIN"
"""The mechanism of log-ins by a password that the peer sends, as SASL names it."""

ANONYMOUS: Final = "ANONYMOUS"
"""The mechanism of log-ins without a user name, as SASL names it."""

PLAIN_KEYS: Final = "SCRAM-SHA-256"
"""The mechanism whose stored keys check such a password."""

MAX_TEXT: Final = 64
"""Maximum characters of an account or mechanism name in an event, because peers choose them: as
many as the name of a device may have."""

LIMIT: Final = "authentication_limit"
"""The rule (see `refusal_counters`) for logins that are refused without a check of the password,
because too many have failed."""

_TOO_MANY: Final = "too many failed logins"

BindRefusal: TypeAlias = EndReason | ExceededLimit | StoreError
"""Why a session could not be bound: its account was revoked, or the store failed."""


class CertificateOwner(NamedTuple):
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

    @property
    def is_expired(self) -> bool:
        """Return whether the certificate has expired."""
        return self.fault == EXPIRED


class Login:
    """The log-in of one connection.

    Args:
        address: the IP address of the peer.

    Attributes:
        source: the source address of the connection, as `login_throttle.source_of` returns it.
        certificate: the peer's certificate, if TLS verified one.
        protocol_tags: the tags by which failures are logged with the protocol; none for XMPP.
    """

    def __init__(
        self,
        context: ServerContext,
        source: str,
        address: str | None,
        certificate: PeerCertificate | None = None,
    ) -> None:
        self._context = context
        self.source = source
        self._address = address
        self.certificate = certificate
        self.protocol_tags: Mapping[str, str] = {}
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

    # Authentication

    def may_try(self, account: str) -> bool:
        """Return whether the peer may try to log in by password; too many attempts may have
        failed."""
        if self._context.throttle.may_try(self.source, account, self._context.loop.time()):
            return True
        self._fault = _TOO_MANY
        return False

    def find_credentials(
        self, account: str, mechanism: str, done: Callable[[Credentials | None], None]
    ) -> None:
        """Find the credentials of an account for a mechanism of SCRAM.

        `done` gets decoys if the account has none, and None if the look-up failed.
        """
        context = self._context

        def unit(tx: Transaction) -> tuple[Credentials | None, LoginAccount | None]:
            return accounts.credentials(tx, account, mechanism), accounts.login_account(tx, account)

        def answer(outcome: tuple[Credentials | None, LoginAccount | None] | StoreError) -> None:
            if isinstance(outcome, StoreError):
                self._fault = str(outcome)
                done(None)
                return
            keys, found = outcome
            self._grant = None if found is None or found.is_revoked else found.grant
            self._fault = _password_fault(keys, found)
            done(credentials.or_decoy(keys, account, context.decoy_secret, mechanism))

        context.store.submit(unit, answer)

    def find_certificate_owner(self, done: Callable[[CertificateOwner | None], None]) -> None:
        """Find the owner of the peer's certificate, and check its dates.

        `done` gets None if the look-up failed. Attempts are not throttled, because a certificate's
        key cannot be guessed.
        """
        certificate = self.certificate

        def unit(tx: Transaction) -> CertificateOwner:
            if certificate is None:
                return CertificateOwner(fault=_certificate_fault(None))
            fingerprint = certificate.fingerprint
            name, fault = certificates.find_owner(tx, fingerprint), certificate.fault(tx.now.wall)
            if name is not None and not fault:
                return CertificateOwner(name, accounts.login_grant(tx, name))
            issued = certificates.find_issued(tx, fingerprint)
            holder = "" if issued is None else issued.name
            return CertificateOwner(holder=holder, fault=fault or _certificate_fault(issued))

        def answer(outcome: CertificateOwner | StoreError) -> None:
            if isinstance(outcome, StoreError):
                self._fault = str(outcome)
                done(None)
            else:
                _, self._grant, self._holder, self._fault = outcome
                done(outcome)

        self._context.store.submit(unit, answer)

    def verify_password(
        self, password: str, keys: Credentials, done: Callable[[bool], None]
    ) -> None:
        """Check a password outside of the event loop, because hashing takes milliseconds."""

        def answer(checked: asyncio.Future[bool]) -> None:
            is_checked = not checked.cancelled() and checked.exception() is None
            done(is_checked and checked.result())

        context = self._context
        checked = context.loop.run_in_executor(context.hashing, credentials.verify, password, keys)
        checked.add_done_callback(answer)

    def log_in(
        self, account: str, password: str, done: Callable[[], None], refused: Callable[[], None]
    ) -> None:
        """Log in by a password that the peer has sent. Call `done` if it is correct, else
        `refused`."""

        def found(keys: Credentials | None) -> None:
            if keys is None:
                verified(False)
            else:
                self.verify_password(password, keys, verified)

        def verified(is_correct: bool) -> None:
            if is_correct:
                self.accept(account)
                done()
            else:
                self.fail(account, PLAIN, "", refused, is_guess=True)

        self.note_input()
        if self.may_try(account):
            self.find_credentials(account, PLAIN_KEYS, found)
        else:
            verified(False)

    def trust(self, account: str, done: Callable[[], None], refused: Callable[[], None]) -> None:
        """Log in without a password, as the configuration allows for one account. Call `done`, or
        `refused` if there is no such account."""

        def answer(grant: int | StoreError | None) -> None:
            if isinstance(grant, int):
                self._grant = grant
                done()
            else:
                self._fault = "" if grant is None else str(grant)
                self.fail(account, ANONYMOUS, "unknown account", refused, is_guess=False)

        self.note_input()
        self._context.store.submit(lambda tx: accounts.login_grant(tx, account), answer)

    def fail(
        self,
        account: str,
        mechanism: str,
        reason: str,
        report: Callable[[], None],
        *,
        is_guess: bool,
    ) -> None:
        """Log a failed attempt, and call `report` after the throttle's delay, which does not depend
        on whether the account exists.

        Args:
            account: the account that the peer named, perhaps empty.
            reason: why the attempt failed; empty if that is what the look-up found.
            is_guess: whether the attempt counts as one to guess a password.
        """
        context, now = self._context, self._context.loop.time()
        self._log_failure(account or self._holder, mechanism, reason)
        count = context.throttle.add_failure if is_guess else context.throttle.delay
        delay = count(self.source, account, now)
        wait = max(self._received_at + delay - now, 0.0)
        self._failure_timer = context.loop.call_later(wait, report)

    def _log_failure(self, account: str, mechanism: str, reason: str) -> None:
        rule = LIMIT if self._fault == _TOO_MANY else "authentication"
        reason = reason or self._fault or "invalid account name"
        self._holder = self._fault = ""
        tried = self._logged.setdefault((rule, account, reason), set())
        if tried and mechanism not in tried:  # the client tries the same password another way
            tried.add(mechanism)
            return
        tried.add(mechanism)
        certificate = self.certificate if mechanism == CERTIFICATE else None
        log_failure(
            self._context,
            rule,
            self.source,
            self._address,
            reason,
            mechanism=mechanism,
            account=account,
            serial="" if certificate is None else certificate.serial,
            protocol_tags=self.protocol_tags,
        )

    def accept(self, account: str) -> None:
        """Record that the peer has logged in by password, for the throttle, also after a
        restart."""
        context, source = self._context, self.source
        if not context.throttle.add_success(source, account, context.loop.time()):
            return

        def unit(tx: Transaction) -> None:
            known_logins.add(tx, source, account, ADDRESSES_PER_ACCOUNT, KEYS)

        def answer(outcome: StoreError | None) -> None:
            if isinstance(outcome, StoreError):
                context.refusals.add_store_error(outcome)

        context.store.submit(unit, answer)

    # Sessions

    def admit(self, registry: Registry[Any], session: Session[Any]) -> ExceededLimit | None:
        """Add a session that is about to be bound, in place of others with the same full address;
        return the limit that prevents it, if any."""
        context = self._context
        if (exceeded := registry.admit(session)) is not None:
            source = session.bare if exceeded.name == "sessions_per_account" else self.source
            context.refusal_log.log(source, exceeded.name, exceeded.value)
            return exceeded
        context.admission.replace_others(session)
        return None

    def bind(
        self,
        session: Session[Any],
        connection: SessionConnection,
        done: Callable[[Bound | BindRefusal], None],
        declared: Declaration = DEFAULT,
    ) -> None:
        """Bind an admitted session, with its declaration, in the store. Call `done` with the
        outcome, unless the session or the connection has ended meanwhile."""
        context, account = self._context, session.account

        def unit(tx: Transaction) -> Bound | EndReason | ExceededLimit:
            if self._grant is None or accounts.login_grant(tx, account) != self._grant:
                return EndReason.REVOKED
            names = account, session.bare, session.full
            return context.lifecycle.bind(tx, session.generation, *names, self._grant, declared)

        def answer(outcome: Bound | BindRefusal) -> None:
            if not isinstance(outcome, Bound):
                session.finish()
                done(outcome)
                return
            if outcome.replaced is not None:
                context.outputs.end(outcome.replaced, EndReason.REPLACED)
            if connection.closed or session.ended:  # while the unit of work was waiting
                session.finish()
                if session.ended_by is not None:
                    connection.end(session.ended_by)
                return
            done(outcome)

        context.store.submit(unit, answer)


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
    protocol_tags: Mapping[str, str],
) -> None:
    """Log a failed login or handshake, with the reason, which the peer does not learn.

    Args:
        rule: the rule (see `refusal_counters`), such as `authentication`.
        source: the source address, as `login_throttle.source_of` returns it.
        address: the IP address, if it is known.
        serial: the serial number of the peer's certificate.
        protocol_tags: the tags that name the protocol (`Connection.protocol_tags`).
    """
    tags = {
        "account": account[:MAX_TEXT],
        "mechanism": mechanism[:MAX_TEXT],
        "serial": serial[:MAX_TEXT],
        **protocol_tags,
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
