"""The steps of stream negotiation that need the store, a hash or a session.

The result of each step goes back into the negotiation, on the event loop. Failures are delayed and
limited by `login_throttle`.
"""

from __future__ import annotations

import asyncio
import secrets
from typing import Final, Protocol

from edge import credentials
from edge.credentials import Credentials
from edge.engine import access
from edge.engine.database import Transaction
from edge.errors import StoreError
from edge.features.accounts.store import accounts, certificates
from edge.server.registry import Registry
from edge.server.server_context import ServerContext
from edge.server.session import Session, SessionConnection
from edge.server.store_errors import stanza_error
from edge.xmpp.errors import StanzaError
from edge.xmpp.stream import actions, sasl
from edge.xmpp.stream.actions import Action
from edge.xmpp.stream.negotiation import Negotiation

PLAIN_CREDENTIALS: Final = "SCRAM-SHA-256"
"""The mechanism whose credentials a password of PLAIN is checked against."""

ATTEMPT_FAILED: Final = "not-authorized"
"""The failure condition that counts as an attempt on a password; others are client errors."""


class LoginConnection(SessionConnection, Protocol):
    """A login's view of its connection."""

    @property
    def has_more(self) -> bool:
        """Whether the peer has sent more than was handled."""

    def continue_with(self, wanted: list[Action]) -> None:
        """Carry out actions, and handle the items held back meanwhile."""

    def start_session(self, session: Session, wanted: list[Action]) -> None:
        """Carry out actions and continue with a session."""

    def accept_large_stanzas(self) -> None:
        """Raise the limit on the size of stanzas."""


class Login:
    """The login of one connection.

    Args:
        source: its source, as `login_throttle.source_of` returns it.
        fingerprint: the fingerprint of the peer's certificate, if TLS verified one.
    """

    def __init__(
        self,
        context: ServerContext,
        registry: Registry,
        connection: LoginConnection,
        negotiation: Negotiation,
        source: str,
        fingerprint: bytes | None = None,
    ) -> None:
        self._context = context
        self._registry = registry
        self._connection = connection
        self._negotiation = negotiation
        self._source = source
        self._fingerprint = fingerprint
        self._received_at = 0.0
        self._failure_timer: asyncio.TimerHandle | None = None
        self._grant: int | None = None  # of the account, when its credentials were looked up

    def note_input(self) -> None:
        """Note that the peer has sent something: the delay of a failure counts from here."""
        self._received_at = self._context.loop.time()

    def stop(self) -> None:
        """Cancel the report of a failure, because the connection is closed."""
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
            context.refusals.add("authentication_limit", source=self._source)
            self._connection.continue_with(negotiation.attempt_refused())
            return
        wanted = PLAIN_CREDENTIALS if mechanism == "PLAIN" else mechanism

        def unit(tx: Transaction) -> tuple[Credentials | None, int | None]:
            return accounts.credentials(tx, username, wanted), accounts.login_grant(tx, username)

        def answer(outcome: tuple[Credentials | None, int | None] | StoreError) -> None:
            if isinstance(outcome, StoreError):
                self._connection.continue_with(negotiation.credentials_found(None))
                return
            keys, self._grant = outcome
            keys = credentials.or_decoy(keys, username, context.decoy_secret, wanted)
            self._connection.continue_with(negotiation.credentials_found(keys))

        context.store.submit(unit, answer)

    def _find_certificate_owner(self) -> None:
        """Find the owner of the peer's certificate; not throttled, because it cannot be guessed."""
        negotiation, fingerprint = self._negotiation, self._fingerprint

        def unit(tx: Transaction) -> tuple[str | None, int | None]:
            name = None if fingerprint is None else certificates.find_owner(tx, fingerprint)
            return name, None if name is None else accounts.login_grant(tx, name)

        def answer(outcome: tuple[str | None, int | None] | StoreError) -> None:
            if isinstance(outcome, StoreError):
                self._connection.continue_with(negotiation.attempt_refused())
                return
            name, self._grant = outcome
            more = self._connection.has_more
            self._connection.continue_with(negotiation.owner_found(name, more=more))

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
        """Report a failure after the throttle's delay, which is the same for unknown accounts."""
        context, now = self._context, self._context.loop.time()
        throttle = context.throttle
        if condition == ATTEMPT_FAILED and self._negotiation.mechanism != sasl.EXTERNAL:
            delay = throttle.add_failure(self._source, username, now)
        else:
            delay = throttle.delay(self._source, username, now)
        wait = max(self._received_at + delay - now, 0.0)
        self._failure_timer = context.loop.call_later(wait, self._report_failure)

    def _report_failure(self) -> None:
        self._connection.continue_with(self._negotiation.report_failure())

    def _accept(self, username: str) -> None:
        context = self._context
        if self._negotiation.mechanism != sasl.EXTERNAL:
            context.throttle.add_success(self._source, username, context.loop.time())
        self._connection.accept_large_stanzas()

    # Sessions

    def _bind(self, wanted: actions.Bind) -> None:
        """Bind a new session; it replaces the one with the same address."""
        context, registry, negotiation = self._context, self._registry, self._negotiation
        account = negotiation.username
        resource = wanted.resource or secrets.token_hex(8)
        full = f"{account}@{negotiation.domain}/{resource}"
        generation = registry.next_generation()
        session = Session(context, registry, generation, account, full, self._source)
        if (exceeded := registry.admit(session)) is not None:
            source = session.bare if exceeded.name == "sessions_per_account" else self._source
            context.refusal_log.log(source, exceeded.name, exceeded.value)
            text = f"the limit {exceeded.name} = {exceeded.value} is reached"
            error = StanzaError("resource-constraint", text)
            self._connection.continue_with(negotiation.bind_refused(error))
            return
        registry.replace_others(session)
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
                registry.replace(outcome)
            if self._connection.closed or session.ended:  # while the unit of work was waiting
                session.finish()
                self._connection.end("resource-constraint")
                return
            self._connection.start_session(session, negotiation.bound(session.full, enabled))

        context.store.submit(unit, answer)

    def _resume(self, previd: str, h: int) -> None:
        """Resume a session of this account."""
        registry, negotiation = self._registry, self._negotiation
        session = registry.find_resumable(previd)
        if session is None or not access.may_resume(negotiation.username, session.account):
            handled = registry.handled_by_ended(previd, negotiation.username)
            self._connection.continue_with(negotiation.not_resumed(handled))
            return
        if not registry.move(session, self._source):
            limit = self._context.settings.limits.sessions_per_address
            self._context.refusal_log.log(self._source, "sessions_per_address", limit)
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
