"""What negotiation asks for, done: credentials, a hash, a certificate's owner, a session.

Each answer goes back into the negotiation on the event loop, in whichever order of steps
`states` allows. Failures are delayed and limited by `rules.throttle`. What is bound then is
`session`'s.
"""

from __future__ import annotations

import asyncio
import secrets
from typing import TYPE_CHECKING, Final

from edge import credentials
from edge.credentials import Credentials
from edge.engine import access
from edge.engine.database import Transaction
from edge.errors import StoreError
from edge.features.accounts.store import accounts, certificates
from edge.server.session import Session
from edge.server.shared import Shared
from edge.server.store_errors import stanza_error
from edge.xmpp.errors import StanzaError
from edge.xmpp.stream import actions, sasl
from edge.xmpp.stream.actions import Action
from edge.xmpp.stream.negotiation import Negotiation

if TYPE_CHECKING:
    from edge.server.connection import Connection

FINGERPRINT: Final = "SCRAM-SHA-256"
"""The credentials that PLAIN is checked against."""

TRIED: Final = "not-authorized"
"""The failure that counts as an attempt on a password; others are a client's mistakes."""


class Login:
    """One connection's way to a session.

    Args:
        shared: what all share.
        connection: whose way it is.
        negotiation: the connection's.
        source: its address, as `throttle.source` gives it.
        fingerprint: of the certificate that its peer has shown and TLS verified.
    """

    def __init__(
        self,
        shared: Shared,
        connection: Connection,
        negotiation: Negotiation,
        source: str,
        fingerprint: bytes | None = None,
    ) -> None:
        self._shared = shared
        self._connection = connection
        self._negotiation = negotiation
        self._source = source
        self._began = 0.0
        self._telling: asyncio.TimerHandle | None = None
        self._fingerprint = fingerprint
        self._grant: int | None = None  # the account's, when its credentials were looked up

    def heard(self) -> None:
        """Note that the peer has sent something: the time to its answer counts from here."""
        self._began = self._shared.loop.time()

    def stop(self) -> None:
        """Tell nothing more: the connection is over."""
        if self._telling is not None:
            self._telling.cancel()

    def do(self, action: Action) -> None:
        """Do what negotiation needs the result of, or tells."""
        match action:
            case actions.FindCredentials(username, mechanism):
                self._look_up(username, mechanism)
            case actions.FindCertificateOwner():
                self._identify()
            case actions.VerifyPassword(password, keys):
                self._verify(password, keys)
            case actions.LoginFailure(username, condition):
                self._deny(username, condition)
            case actions.LoginSuccess(username):
                self._welcome(username)
            case actions.Resume(previd, h):
                self._resume(previd, h)
            case actions.Bind():
                self._bind(action)

    def _go_on(self, wanted: list[Action]) -> None:
        self._connection.go_on(wanted)

    # Who it is

    def _look_up(self, username: str, mechanism: str) -> None:
        """Find the credentials of an account, or make some up."""
        shared, negotiation = self._shared, self._negotiation
        if not shared.throttle.allows(self._source, username, shared.loop.time()):
            shared.tally.add("authentication_limit", source=self._source)
            self._go_on(negotiation.attempt_refused())
            return
        wanted = FINGERPRINT if mechanism == "PLAIN" else mechanism

        def unit(tx: Transaction) -> tuple[Credentials | None, int | None]:
            return accounts.credentials(tx, username, wanted), accounts.login_grant(tx, username)

        def answer(outcome: tuple[Credentials | None, int | None] | StoreError) -> None:
            if isinstance(outcome, StoreError):
                self._go_on(negotiation.credentials_found(None))
                return
            keys, self._grant = outcome
            chosen = credentials.or_decoy(keys, username, shared.decoy, wanted)
            self._go_on(negotiation.credentials_found(chosen))

        shared.store.submit(unit, answer)

    def _identify(self) -> None:
        """Find whose certificate it is: not limited, since none can be guessed."""
        shared, negotiation, fingerprint = self._shared, self._negotiation, self._fingerprint

        def unit(tx: Transaction) -> tuple[str | None, int | None]:
            name = None if fingerprint is None else certificates.find_owner(tx, fingerprint)
            return name, None if name is None else accounts.login_grant(tx, name)

        def answer(outcome: tuple[str | None, int | None] | StoreError) -> None:
            if isinstance(outcome, StoreError):
                self._go_on(negotiation.attempt_refused())
                return
            name, self._grant = outcome
            self._go_on(negotiation.owner_found(name, more=self._connection.more))

        shared.store.submit(unit, answer)

    def _verify(self, password: str, keys: Credentials) -> None:
        """Check a password beside the event loop: hashing it takes milliseconds."""

        def answer(done: asyncio.Future[bool]) -> None:
            right = not done.cancelled() and done.exception() is None and done.result()
            self._go_on(self._negotiation.password_verified(right, more=self._connection.more))

        shared = self._shared
        checked = shared.loop.run_in_executor(shared.hashing, credentials.verify, password, keys)
        checked.add_done_callback(answer)

    def _deny(self, username: str, condition: str) -> None:
        """Tell a failure when it is time, by the throttle: not sooner for who is unknown."""
        shared, now = self._shared, self._shared.loop.time()
        throttle = shared.throttle
        if condition == TRIED and self._negotiation.mechanism != sasl.EXTERNAL:
            delay = throttle.failed(self._source, username, now)
        else:
            delay = throttle.delay(self._source, username, now)
        wait = max(self._began + delay - now, 0.0)
        self._telling = shared.loop.call_later(wait, self._tell)

    def _tell(self) -> None:
        self._go_on(self._negotiation.report_failure())

    def _welcome(self, username: str) -> None:
        shared = self._shared
        if self._negotiation.mechanism != sasl.EXTERNAL:
            shared.throttle.succeeded(self._source, username, shared.loop.time())
        self._connection.logged_in()

    # Which session

    def _bind(self, wanted: actions.Bind) -> None:
        """Bind a session; the one that had its address before is ended."""
        shared, negotiation, account = self._shared, self._negotiation, self._negotiation.username
        resource = wanted.resource or secrets.token_hex(8)
        full = f"{account}@{negotiation.domain}/{resource}"
        session = Session(shared, account, full, self._source)
        if (over := shared.registry.admit(session)) is not None:
            source = session.bare if over.name == "sessions_per_account" else self._source
            shared.refused.tell(source, over.name, over.value)
            error = StanzaError("resource-constraint", f"{over.name} is {over.value}")
            self._go_on(negotiation.bind_refused(error))
            return
        shared.registry.vacate(session)
        enabled = b"" if wanted.enable is None else session.enable(wanted.enable)

        def unit(tx: Transaction) -> int | StanzaError | None:
            if self._grant is None or accounts.login_grant(tx, account) != self._grant:
                return StanzaError("not-allowed", "the account was revoked meanwhile")
            return shared.lifecycle.enter(
                tx, session.generation, account, session.bare, session.full, self._grant
            )

        def answer(outcome: int | StanzaError | StoreError | None) -> None:
            if isinstance(outcome, StanzaError | StoreError):
                session.finish()
                refused = stanza_error(outcome) if isinstance(outcome, StoreError) else outcome
                self._go_on(negotiation.bind_refused(refused))
                return
            if outcome is not None:
                shared.registry.replaced(outcome)
            if self._connection.over or session.over:  # lost, or ended, meanwhile
                session.finish()
                self._connection.end("resource-constraint")
                return
            self._connection.begin(session, negotiation.bound(session.full, enabled))

        shared.store.submit(unit, answer)

    def _resume(self, previd: str, h: int) -> None:
        """Resume a session of this account."""
        registry, negotiation = self._shared.registry, self._negotiation
        session = registry.find(previd)
        if session is None or not access.may_resume(negotiation.username, session.account):
            handled = registry.handled_before(previd, negotiation.username)
            self._go_on(negotiation.not_resumed(handled))
            return
        if not registry.moves(session, self._source):
            figure = self._shared.settings.limits.sessions_per_address
            self._shared.refused.tell(self._source, "sessions_per_address", figure)
            self._go_on(negotiation.not_resumed(None))  # it goes on waiting
            return

        def then(found: bool) -> None:
            if found:
                wanted = negotiation.resumed(session.full, previd, session.handled)
                self._connection.begin(session, wanted)
            else:
                handled = registry.handled_before(previd, negotiation.username)
                self._go_on(negotiation.not_resumed(handled))

        session.resume(self._connection, h, then)
