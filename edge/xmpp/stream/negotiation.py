"""Stream negotiation, from a new connection to a bound session (RFC 6120, sections 4 to 7).

Theory of operation. `states.TRANSITIONS` holds the machine as a table: for each state and input,
the rule to follow and the states that it may lead to. Each rule is a method of `Negotiation`.
Inputs are the items that the peer sends (`receive`), faults (`fail`), and the results of actions
(`tls_established`, `credentials_found`, `bound` and their like). Each input returns the actions
that the caller carries out, in order. While the result of an action is outstanding (`waiting`), the
caller holds back further items. An item that the table does not allow ends the stream.

With SASL (RFC 6120, section 6) a client authenticates, restarts the stream and then asks to bind or
to resume. With SASL2 (XEP-0388) it asks for all of that in one request, and receives one answer
when its session is resumed or its resource is bound.

The module is pure: it has no socket, clock, store or thread, and the caller sets the time-outs.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from edge import sasl
from edge.credentials import Credentials
from edge.xmpp import serialize
from edge.xmpp.errors import StanzaError, StreamError, UsageError
from edge.xmpp.replies import iq_error
from edge.xmpp.stanza import Item, Stanza, StreamOpen
from edge.xmpp.stream import management, requests, sasl2, sasl_attempt, stream_header
from edge.xmpp.stream.actions import (
    Action,
    Bind,
    Close,
    FindCredentials,
    LoginFailure,
    LoginSuccess,
    ManageStream,
    RestartStream,
    Resume,
    Route,
    Send,
    StartTls,
    VerifyPassword,
)
from edge.xmpp.stream.sasl_attempt import Profile, SaslAttempt
from edge.xmpp.stream.states import FROM_PEER, TRANSITIONS, WAITING, Input, Rule, State

MAX_SASL_FAILURES: Final = 3
"""Number of failed authentication attempts after which the stream ends; RFC 6120, section 6.4.5
recommends 2 to 5."""

MAX_BIND_FAILURES: Final = 5
"""Maximum refused bind or resume requests per stream, which then ends; RFC 6120, section 7.7.2.2
recommends 5 to 10."""


class Negotiation:
    """The negotiation of one connection.

    Args:
        domain: the gateway's domain, normalised.
        require_tls: whether authentication needs TLS; if not, SCRAM (never PLAIN) is also offered
            without TLS.
        secure: whether the connection begins under TLS (XEP-0368).
        certificate: whether the peer of a connection that begins under TLS has presented a
            certificate that TLS verified.
        limits: bytes of the largest element accepted before and after authentication, to be
            advertised (XEP-0478).
        features: stream features to offer once the stream is authenticated, as bytes of XML.
        stream_id: returns a new id for each stream; random by default, as RFC 6120, section 4.7.3
            demands.

    Attributes:
        secure: whether the stream is under TLS.
        username: the account, normalised, once it is authenticated; else "".
        mechanism: the SASL mechanism that the peer tried last, or "".
        failures: number of failed authentication attempts.
    """

    __slots__ = (
        "_attempt", "_bind_failures", "_bind_request", "_certificate", "_failure", "_features",
        "_header_sent", "_inline", "_max_bytes", "_more", "_opener", "_pending", "_require_tls",
        "_stream_id", "_verifier", "domain", "failures", "mechanism", "secure", "state", "username",
    )  # fmt: skip

    def __init__(
        self,
        domain: str,
        *,
        require_tls: bool = True,
        secure: bool = False,
        certificate: bool = False,
        limits: tuple[int, int] | None = None,
        features: bytes = b"",
        stream_id: Callable[[], str] = lambda: secrets.token_hex(8),
    ) -> None:
        self.domain = domain
        self.state = State.ENCRYPTED if secure else State.CONNECTED
        self.secure = secure
        self.username = ""
        self.mechanism = ""
        self.failures = 0
        self._require_tls = require_tls
        self._certificate = certificate
        self._max_bytes = limits or (None, None)
        self._features = features
        self._stream_id = stream_id
        self._header_sent = False  # in the present stream
        self._opener: str | None = None  # the address that the peer's stream header is from
        self._more = False  # the peer has sent more than the present input
        self._attempt: SaslAttempt  # the present attempt, or the last that failed
        self._failure = ""  # the SASL condition of the last failed attempt
        self._pending: sasl2.Request | None = None  # a SASL2 request that is not answered yet
        self._verifier = b""  # the mechanism's final message, for the answer to `_pending`
        self._inline = b""  # the result of resuming, for the answer to `_pending`
        self._bind_request: Stanza  # the present request, or the last that was refused
        self._bind_failures = 0

    # Inputs

    @property
    def waiting(self) -> bool:
        """Return whether the peer's further input must wait for the result of an action."""
        state = self.state
        return state is not State.BOUND and state in WAITING

    def receive(self, item: Item, *, more: bool = False) -> list[Action]:
        """Handle an item that the parser has completed.

        Args:
            more: whether anything came after it: further items, or bytes pending in the parser.
                Data sent ahead of a stream restart is refused, because it is not protected by the
                security layer that the restart begins.
        """
        self._more = more
        return self._step(requests.classify(item), item)

    def fail(self, error: StreamError) -> list[Action]:
        """End the stream with an error of the parser or of the caller (time-out, shutdown)."""
        return self._step(Input.FAULT, error)

    def tls_established(self, *, certificate: bool = False) -> list[Action]:
        """Continue after `StartTls`; `certificate` is whether the peer has presented a certificate
        that TLS verified."""
        return self._step(Input.TLS_ESTABLISHED, certificate)

    def credentials_found(self, credentials: Credentials | None) -> list[Action]:
        """Continue after `FindCredentials`; the argument is `None` if the look-up failed."""
        return self._step(Input.NOT_FOUND if credentials is None else Input.FOUND, credentials)

    def owner_found(
        self, name: str | None, *, expired: bool = False, more: bool = False
    ) -> list[Action]:
        """Continue after `FindCertificateOwner`.

        Args:
            name: the account, a normalised local part, or None if the certificate has no owner.
            expired: whether the certificate has expired.
            more: as in `receive`.
        """
        self._more = more
        if name is None:
            return self._step(Input.NOT_IDENTIFIED, "credentials-expired" if expired else None)
        return self._step(Input.IDENTIFIED, name)

    def attempt_refused(self) -> list[Action]:
        """Continue after `FindCredentials` or `FindCertificateOwner`: too many attempts failed
        recently, or the look-up failed."""
        return self._step(Input.REFUSED_ATTEMPT, None)

    def password_verified(self, correct: bool, *, more: bool = False) -> list[Action]:
        """Continue after `VerifyPassword`; `more` is whether further input came (see `receive`)."""
        self._more = more
        return self._step(Input.VERIFIED if correct else Input.NOT_VERIFIED, None)

    def report_failure(self) -> list[Action]:
        """Continue after `LoginFailure`: report the failure to the peer now."""
        return self._step(Input.REPORT_FAILURE, None)

    def resumed(self, full_jid: str, previd: str, h: int) -> list[Action]:
        """Continue after `Resume`: the session continues on this connection.

        Args:
            h: number of the peer's stanzas that the session has handled.
        """
        return self._step(Input.RESUMED, (full_jid, management.resumed(previd, h)))

    def not_resumed(self, h: int | None = None) -> list[Action]:
        """Continue after `Resume`: there is no such session. `h` is the number of the peer's
        stanzas that the ended session had handled, if known."""
        return self._step(Input.NOT_RESUMED, management.failed("item-not-found", h))

    def bound(self, full_jid: str, enabled: bytes = b"") -> list[Action]:
        """Continue after `Bind`: the session is registered under this full JID. `enabled` is the
        answer to `Bind.enable`, the request to enable stream management."""
        return self._step(Input.BIND_DONE, (full_jid, enabled))

    def bind_refused(self, error: StanzaError) -> list[Action]:
        """Continue after `Bind`: the session cannot be registered."""
        return self._step(Input.BIND_REFUSED, error)

    # The machine

    def _step(self, event: Input, value: Any) -> list[Action]:
        before = self.state
        transition = TRANSITIONS.get((before, event))
        if transition is not None:
            try:
                actions = _RULES[transition.rule](self, value)
            except sasl.SaslFailure as failure:
                actions = self._fail_attempt(failure.condition)
            if self.state not in transition.then:
                raise UsageError(f"{event.value} led from {before.value} to {self.state.value}")
            return actions
        if before is State.CLOSED:
            return []
        if event in FROM_PEER:
            return self._refuse(event)
        raise UsageError(f"{event.value} is not allowed in state {before.value}")

    def _refuse(self, event: Input) -> list[Action]:
        if self.state in WAITING:
            return self._fault(
                StreamError("policy-violation", "wait for the answer to the last request")
            )
        if event in (Input.STANZA, Input.BIND, Input.RESUME, Input.MANAGE):
            return self._fault(StreamError("not-authorized", "no session is bound yet"))
        if event is Input.OTHER:
            return self._fault(StreamError("unsupported-stanza-type"))
        return self._fault(StreamError("policy-violation", f"unexpected {event.value}"))

    def _fault(self, error: StreamError) -> list[Action]:
        return self._end(serialize.stream_error(error))

    def _close(self, _item: object) -> list[Action]:
        return self._end(b"")

    def _end(self, last: bytes) -> list[Action]:
        """Send the stream header if it was not sent yet, then `last` and the stream's end, and
        close; during a TLS handshake, only close, because nothing can be sent."""
        handshaking = self.state is State.STARTING_TLS
        self.state = State.CLOSED
        if handshaking:
            return [Close()]
        header = b"" if self._header_sent else self._header(None)
        return [Send(header + last + serialize.STREAM_END), Close()]

    def _end_premature(self) -> list[Action]:
        return self._fault(StreamError("policy-violation", "data was sent before the answer"))

    # Stream headers and TLS

    def _header(self, to: str | None) -> bytes:
        self._header_sent = True
        return serialize.stream_header(self.domain, self._stream_id(), to)

    def _open(self, header: StreamOpen) -> list[Action]:
        self._opener = stream_header.sender(header)
        sent = self._header(self._opener)
        try:
            stream_header.check(header, self.domain)
            if self.state is State.AUTHENTICATED:
                stream_header.check_sender(header, self._account)
        except StreamError as error:
            return [Send(sent), *self._fault(error)]
        if self.state is State.AUTHENTICATED:
            self.state = State.UNBOUND
            return [Send(sent + self._binding_features())]
        self.state = State.SECURE if self.secure else State.CLEAR
        return [Send(sent + self._authentication_features())]

    def _authentication_features(self) -> bytes:
        mechanisms = self._mechanisms()
        return serialize.features(
            starttls=not self.secure,
            required=self._require_tls,
            mechanisms=mechanisms,
            max_bytes=self._max_bytes[0],
            extra=sasl2.feature(mechanisms),
        )

    def _start_tls(self, _item: Stanza) -> list[Action]:
        if self._more:
            return self._end_premature()
        self.state = State.STARTING_TLS
        return [Send(serialize.PROCEED), StartTls()]

    def _refuse_tls(self, _item: Stanza) -> list[Action]:
        return self._end(serialize.TLS_FAILURE)

    def _encrypt(self, certificate: bool) -> list[Action]:
        self.secure = True
        self._certificate = certificate
        self._header_sent = False
        self.state = State.ENCRYPTED
        return []

    # Authentication

    @property
    def _account(self) -> str:
        return f"{self.username}@{self.domain}"

    def _mechanisms(self) -> tuple[str, ...]:
        return sasl_attempt.offered(
            secure=self.secure, certificate=self._certificate, require_tls=self._require_tls
        )

    def _begin(self, item: Stanza) -> list[Action]:
        self._begin_attempt(sasl_attempt.SASL, item, None)
        return self._prompt(requests.sasl_message(item))

    def _begin2(self, item: Stanza) -> list[Action]:
        self._begin_attempt(sasl_attempt.SASL2, item, self._opener)
        self._pending = sasl2.read(item)
        return self._prompt(self._pending.initial)

    def _begin_attempt(self, profile: Profile, item: Stanza, opener: str | None) -> None:
        self.mechanism = item.attrs.get("mechanism", "")
        self._pending = None
        self._attempt = SaslAttempt(profile, self.mechanism, self.domain, opener)
        self._attempt.check_offered(self._mechanisms())

    def _prompt(self, initial: bytes | None) -> list[Action]:
        if initial is not None:
            return self._receive_first(initial)
        self.state = self._attempt.profile.prompted
        return [Send(self._attempt.profile.challenge())]

    def _first(self, item: Stanza) -> list[Action]:
        return self._receive_first(requests.sasl_message(item) or b"")

    def _receive_first(self, initial: bytes) -> list[Action]:
        action = self._attempt.receive_first(initial)
        finds = isinstance(action, FindCredentials)
        self.state = State.LOOKING_UP if finds else State.IDENTIFYING
        return [action]

    def _challenge(self, credentials: Credentials) -> list[Action]:
        challenge = self._attempt.challenge(credentials)
        if isinstance(challenge, VerifyPassword):
            self.state = State.VERIFYING
            return [challenge]
        profile = self._attempt.profile
        self.state = profile.challenged
        return [Send(profile.challenge(sasl.encode(challenge)))]

    def _prove(self, item: Stanza) -> list[Action]:
        return self._succeed(self._attempt.check_proof(requests.sasl_message(item) or b""))

    def _accept(self, _nothing: None) -> list[Action]:
        return self._succeed(b"")

    def _identify(self, name: str) -> list[Action]:
        self._attempt.set_owner(name)
        return self._succeed(b"")

    def _succeed(self, verifier: bytes) -> list[Action]:
        if self._more:
            return self._end_premature()
        self.username = self._attempt.username
        del self._attempt  # it would be kept as long as the session
        success = LoginSuccess(self.username)
        if self._pending is not None:
            self._verifier = verifier
            return [success, *self._continue_inline(self._pending)]
        self._header_sent = False
        self.state = State.AUTHENTICATED
        answer = serialize.sasl_success(sasl.encode(verifier) if verifier else b"")
        return [Send(answer), success, RestartStream()]

    def _reject(self, condition: str | None) -> list[Action]:
        return self._fail_attempt(condition or "not-authorized")

    def _abort(self, _item: Stanza) -> list[Action]:
        return self._fail_attempt("aborted")

    def _unavailable(self, _nothing: None) -> list[Action]:
        return self._fail_attempt("temporary-auth-failure")

    def _fail_attempt(self, condition: str) -> list[Action]:
        """End this attempt; the caller decides when the failure is reported to the peer."""
        self._failure = condition
        self.failures += 1
        self.state = State.DENIED
        return [LoginFailure(self._attempt.username, condition)]

    def _report(self, _nothing: None) -> list[Action]:
        """Report the failure of this attempt; the peer may try again a few times."""
        self.state = State.SECURE if self.secure else State.CLEAR
        failure = Send(self._attempt.profile.failure(self._failure))
        if self.failures < MAX_SASL_FAILURES:
            return [failure]
        return [failure, *self._fault(StreamError("policy-violation", "too many failed logins"))]

    # Binding and resumption, by a request of their own (RFC 6120, section 7; XEP-0198, section 5)

    def _binding_features(self) -> bytes:
        return serialize.features(
            bind=True, session=True, sm=True, max_bytes=self._max_bytes[1], extra=self._features
        )

    def _bind(self, item: Stanza) -> list[Action]:
        self._bind_request = item
        try:
            resource = requests.bind_resource(item)
        except StanzaError as error:
            return self._refuse_bind(error)
        self.state = State.BINDING
        return [Bind(resource)]

    def _bound(self, result: tuple[str, bytes]) -> list[Action]:
        self.state = State.BOUND
        if self._pending is not None:
            return self._bound_inline(self._pending, *result)
        answer = serialize.bind_result(self._bind_request.attrs["id"], result[0])
        del self._bind_request
        return [Send(answer)]

    def _refuse_bind(self, error: StanzaError) -> list[Action]:
        if self._pending is not None:  # authenticated all the same, and may ask to bind again
            return self._succeed_unbound()
        return self._retry(iq_error(self._bind_request, error))

    def _resume(self, item: Stanza) -> list[Action]:
        try:
            wanted = management.read_resume(item)
        except StanzaError as error:
            return self._retry(management.failed(error.condition))
        self.state = State.RESUMING
        return [Resume(*wanted)]

    def _resumed(self, result: tuple[str, bytes]) -> list[Action]:
        full_jid, resumed = result
        self.state = State.BOUND
        return [Send(resumed if self._pending is None else self._success(full_jid, resumed))]

    def _not_resumed(self, failed: bytes) -> list[Action]:
        if self._pending is None:
            return self._retry(failed)
        self._inline = failed
        return self._bind_inline(self._pending)

    def _refuse_management(self, _item: Stanza) -> list[Action]:
        return self._retry(management.failed("unexpected-request"))

    def _retry(self, refusal: bytes) -> list[Action]:
        """Refuse a request of a peer that has no session; the peer may try again a few times."""
        self._bind_failures += 1
        self.state = State.UNBOUND
        if self._bind_failures < MAX_BIND_FAILURES:
            return [Send(refusal)]
        error = StreamError("policy-violation", "too many refused requests")
        return [Send(refusal), *self._fault(error)]

    # Binding and resumption, inline with SASL2 (XEP-0386)

    def _continue_inline(self, wanted: sasl2.Request) -> list[Action]:
        if isinstance(wanted.resume, StanzaError):
            self._inline = management.failed(wanted.resume.condition)
        elif wanted.resume is not None:
            self.state = State.RESUMING
            return [Resume(*wanted.resume)]
        return self._bind_inline(wanted)

    def _bind_inline(self, wanted: sasl2.Request) -> list[Action]:
        if not wanted.bind:
            return self._succeed_unbound()
        self.state = State.BINDING
        resource = requests.bind2_resource(wanted.label, wanted.agent or secrets.token_hex(16))
        enable = None if isinstance(wanted.enable, StanzaError) else wanted.enable
        return [Bind(resource, enable)]

    def _succeed_unbound(self) -> list[Action]:
        self.state = State.UNBOUND
        return [Send(self._success(self._account) + self._binding_features())]

    def _success(self, identity: str, inline: bytes = b"") -> bytes:
        success = sasl2.success(self._verifier, identity, self._inline + inline)
        self._pending = None
        return success

    def _bound_inline(self, wanted: sasl2.Request, full_jid: str, enabled: bytes) -> list[Action]:
        if isinstance(wanted.enable, StanzaError):
            enabled = management.failed(wanted.enable.condition)
        elif wanted.enable is not None and not enabled:
            raise UsageError("stream management was requested and not answered")
        offer = serialize.features(
            sm=not enabled, max_bytes=self._max_bytes[1], extra=self._features
        )
        return [Send(self._success(full_jid, sasl2.bound(enabled)) + offer)]

    # Bound

    def _route(self, item: Stanza) -> list[Action]:
        return [Route(item)]

    def _manage(self, item: Stanza) -> list[Action]:
        return [ManageStream(item)]


_RuleMethod: TypeAlias = "Callable[[Negotiation, Any], list[Action]]"
_RULES: Final[dict[Rule, _RuleMethod]] = {
    rule: getattr(Negotiation, f"_{rule.value}") for rule in Rule
}
