"""From a connection to a bound session: TLS, authentication, binding (RFC 6120, sections 4 to 7).

Theory of operation. `wire.states` holds the machine as a table; here are its rules. Inputs are what
the peer sends (`receive`), what fails (`fail`), and the results of work that was asked for
(`tls_established`, `found`, `verified`, `bound`, `refused`). Each returns the actions for the
session to carry out, in order. While the result of one is outstanding (`waiting`), the session
holds back what the peer sends. What the peer sends out of place ends the stream with the error that
`_refuse` chooses.

This module knows no socket, no clock, no store and no thread, and sets no time-outs: the session
does. After binding, stanzas are none of its business.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

from edge.wire import jid, opening, requests, sasl, serialize
from edge.wire.actions import (
    Action,
    Authenticated,
    Bind,
    Close,
    LookUp,
    Restart,
    Route,
    Send,
    StartTls,
    Verify,
)
from edge.wire.errors import StanzaError, StreamError, UsageError
from edge.wire.stanza import Stanza, StreamOpen
from edge.wire.states import FROM_PEER, TRANSITIONS, WAITING, Input, Rule, State

if TYPE_CHECKING:
    from collections.abc import Callable

    from edge.credentials import Credentials
    from edge.wire.stanza import Item

MAX_SASL_FAILURES = 3
"""Failed attempts to authenticate on one stream; RFC 6120, section 6.4.5 recommends 2 to 5."""
MAX_BIND_FAILURES = 5
"""Refused requests to bind on one stream; RFC 6120, section 7.7.2.2 recommends 5 to 10."""


class Negotiation:
    """Negotiates one connection.

    Args:
        domain: ours, normalised.
        tls: whether TLS can be started.
        require_tls: whether it must be; if not, SCRAM (never PLAIN) is offered in the clear.
        features: offered beside binding once the stream is authenticated, as bytes of XML.
        stream_id: makes the id of each stream; by default random, as RFC 6120, section 4.7.3
        demands.

    Attributes:
        state: where the stream is.
        secure: whether it is under TLS.
        username: the account, normalised, once it is authenticated; else "".
        mechanism: the SASL mechanism that was tried last, or "".
        failures: how many attempts to authenticate have failed.
    """

    def __init__(
        self,
        domain: str,
        *,
        tls: bool = True,
        require_tls: bool = True,
        features: bytes = b"",
        stream_id: Callable[[], str] = lambda: secrets.token_hex(8),
    ) -> None:
        if require_tls and not tls:
            raise UsageError("TLS is required, and cannot be started")
        self.domain = domain
        self.state = State.CONNECTED
        self.secure = False
        self.username = ""
        self.mechanism = ""
        self.failures = 0
        self._tls = tls
        self._require_tls = require_tls
        self._features = features
        self._stream_id = stream_id
        self._opened = False  # our header of this stream has been sent
        self._more = False  # the peer has sent more than the present input
        self._scram: sasl.ScramExchange | None = None
        self._password = ""
        self._candidate = ""
        self._request: Stanza  # to bind
        self._bind_failures = 0

    @property
    def waiting(self) -> bool:
        """Whether the result of an action is outstanding: hold back what the peer sends."""
        state = self.state
        return state is not State.BOUND and state in WAITING

    def receive(self, item: Item, *, more: bool = False) -> list[Action]:
        """Take what the parser has completed.

        Args:
            item: the next one.
            more: whether anything came after it: further items, or bytes pending in the parser.
                What is sent ahead of a restart of the stream is refused: it was not protected by
                what the restart brings.
        """
        self._more = more
        return self._step(requests.classify(item), item)

    def fail(self, error: StreamError) -> list[Action]:
        """End the stream with an error: the parser's, or the session's own (time-out, shutdown)."""
        return self._step(Input.FAULT, error)

    def tls_established(self) -> list[Action]:
        """Go on after `StartTls`: the handshake is done."""
        return self._step(Input.TLS_ESTABLISHED, None)

    def found(self, credentials: Credentials | None) -> list[Action]:
        """Go on after `LookUp`: with the credentials, or with None if the look-up failed."""
        return self._step(Input.NOT_FOUND if credentials is None else Input.FOUND, credentials)

    def verified(self, right: bool, *, more: bool = False) -> list[Action]:
        """Go on after `Verify`; `more` as in `receive`."""
        self._more = more
        return self._step(Input.VERIFIED if right else Input.NOT_VERIFIED, b"")

    def bound(self, full_jid: str) -> list[Action]:
        """Go on after `Bind`: the session is registered under this full JID."""
        return self._step(Input.BIND_DONE, full_jid)

    def refused(self, error: StanzaError) -> list[Action]:
        """Go on after `Bind`: the session cannot be registered."""
        return self._step(Input.BIND_REFUSED, error)

    def _step(self, event: Input, thing: Any) -> list[Action]:
        before = self.state
        transition = TRANSITIONS.get((before, event))
        if transition is not None:
            actions = _RULES[transition.rule](self, thing)
            if self.state not in transition.then:
                raise UsageError(f"{event.value} led from {before.value} to {self.state.value}")
            return actions
        if before is State.CLOSED:
            return []
        if event in FROM_PEER:
            return self._refuse(event)
        raise UsageError(f"{event.value} in state {before.value}")

    def _refuse(self, event: Input) -> list[Action]:
        """End the stream: the peer sent what has no place here."""
        if self.state in WAITING:
            return self._fault(StreamError("policy-violation", "wait for the answer"))
        if event in (Input.STANZA, Input.BIND):
            return self._fault(StreamError("not-authorized", "no session is bound yet"))
        if event is Input.OTHER:
            return self._fault(StreamError("unsupported-stanza-type"))
        return self._fault(StreamError("policy-violation", f"{event.value} has no place here"))

    # What any state may come to

    def _fault(self, error: StreamError) -> list[Action]:
        return self._end(serialize.stream_error(error.condition, error.text))

    def _close(self, _item: object) -> list[Action]:
        return self._end(b"")

    def _end(self, last: bytes) -> list[Action]:
        """Say the last words, in a stream of ours; during a handshake nothing can be said."""
        mute = self.state is State.STARTING_TLS
        self.state = State.CLOSED
        if mute:
            return [Close()]
        header = b"" if self._opened else self._header(None)
        return [Send(header + last + serialize.STREAM_END), Close()]

    def _too_soon(self) -> list[Action]:
        return self._fault(StreamError("policy-violation", "sent ahead of a restart of the stream"))

    def _header(self, to: str | None) -> bytes:
        self._opened = True
        return serialize.stream_header(self.domain, self._stream_id(), to=to)

    # Streams and TLS

    def _open(self, header: StreamOpen) -> list[Action]:
        sent = self._header(opening.sender(header))
        try:
            opening.check(header, self.domain)
        except StreamError as error:
            return [Send(sent), *self._fault(error)]
        if self.state is State.AUTHENTICATED:
            self.state = State.UNBOUND
            offer = serialize.features(bind=True, session=True, extra=self._features)
        else:
            offer = serialize.features(
                starttls=self._tls and not self.secure,
                required=self._require_tls,
                mechanisms=self._mechanisms(),
            )
            self.state = State.SECURE if self.secure else State.CLEAR
        return [Send(sent + offer)]

    def _mechanisms(self) -> tuple[str, ...]:
        if self.secure:
            return (*sasl.SCRAM, sasl.PLAIN)
        return () if self._require_tls else sasl.SCRAM

    def _start_tls(self, _item: Stanza) -> list[Action]:
        if not self._tls:
            return self._no_tls(_item)
        if self._more:
            return self._too_soon()
        self.state = State.STARTING_TLS
        return [Send(serialize.PROCEED), StartTls()]

    def _no_tls(self, _item: Stanza) -> list[Action]:
        return self._end(serialize.TLS_FAILURE)

    def _encrypt(self, _nothing: None) -> list[Action]:
        self.secure = True
        self._opened = False
        self.state = State.ENCRYPTED
        return []

    # Authentication

    def _begin(self, item: Stanza) -> list[Action]:
        self.mechanism = item.attrs.get("mechanism", "")
        if self.mechanism not in self._mechanisms():
            known = self.mechanism in (*sasl.SCRAM, sasl.PLAIN)
            return self._deny("encryption-required" if known else "invalid-mechanism")
        try:
            initial = requests.message(item)
        except sasl.SaslFailure as failure:
            return self._deny(failure.condition)
        if initial is None:
            self.state = State.PROMPTED
            return [Send(serialize.sasl_challenge())]
        return self._identify(initial)

    def _first(self, item: Stanza) -> list[Action]:
        try:
            initial = requests.message(item)
        except sasl.SaslFailure as failure:
            return self._deny(failure.condition)
        return self._identify(initial or b"")

    def _identify(self, initial: bytes) -> list[Action]:
        try:
            exchange = sasl.begin(self.mechanism, initial)
            self._candidate = jid.prepare_local(exchange.username)
            self._authorise(exchange.authzid)
        except sasl.SaslFailure as failure:
            return self._deny(failure.condition)
        except jid.JidError:
            return self._deny("not-authorized")
        if isinstance(exchange, sasl.ScramExchange):
            self._scram = exchange
        else:
            self._password = exchange.password
        self.state = State.LOOKING_UP
        return [LookUp(self._candidate, self.mechanism)]

    def _authorise(self, authzid: str) -> None:
        """Accept the identity to act as: none, or the account itself (RFC 6120, section 6.3.8)."""
        if not authzid:
            return
        own = (self._candidate, f"{self._candidate}@{self.domain}")
        try:
            if jid.parse(authzid).full in own:
                return
        except jid.JidError as error:
            raise sasl.SaslFailure("invalid-authzid") from error
        raise sasl.SaslFailure("invalid-authzid")

    def _challenge(self, credentials: Credentials) -> list[Action]:
        if self._scram is None:
            password, self._password = self._password, ""
            self.state = State.VERIFYING
            return [Verify(password, credentials)]
        self.state = State.CHALLENGED
        challenge = sasl.encode(self._scram.challenge(credentials))
        return [Send(serialize.sasl_challenge(challenge))]

    def _unavailable(self, _nothing: None) -> list[Action]:
        return self._deny("temporary-auth-failure")

    def _prove(self, item: Stanza) -> list[Action]:
        scram = cast(sasl.ScramExchange, self._scram)  # nothing else is challenged
        try:
            verifier = scram.finish(requests.message(item) or b"")
        except sasl.SaslFailure as failure:
            return self._deny(failure.condition)
        return self._accept(verifier)

    def _accept(self, verifier: bytes) -> list[Action]:
        if self._more:
            return self._too_soon()
        self._scram = None
        self._opened = False
        self.username = self._candidate
        self.state = State.AUTHENTICATED
        success = serialize.sasl_success(sasl.encode(verifier) if verifier else b"")
        return [Send(success), Authenticated(self.username), Restart()]

    def _reject(self, _nothing: object) -> list[Action]:
        return self._deny("not-authorized")

    def _abort(self, _item: Stanza) -> list[Action]:
        return self._deny("aborted")

    def _deny(self, condition: str) -> list[Action]:
        """Tell that this attempt failed; the peer may try again, a few times."""
        self._scram = None
        self._password = ""
        self.failures += 1
        self.state = State.SECURE if self.secure else State.CLEAR
        told = Send(serialize.sasl_failure(condition))
        if self.failures < MAX_SASL_FAILURES:
            return [told]
        return [told, *self._fault(StreamError("policy-violation", "too many failures"))]

    # Binding

    def _bind(self, item: Stanza) -> list[Action]:
        self._request = item
        try:
            resource = requests.resource(item)
        except StanzaError as error:
            return self._unbound(error)
        self.state = State.BINDING
        return [Bind(resource)]

    def _bound(self, full_jid: str) -> list[Action]:
        self.state = State.BOUND
        return [Send(serialize.bind_result(self._request.attrs["id"], full_jid))]

    def _unbound(self, error: StanzaError) -> list[Action]:
        self._bind_failures += 1
        self.state = State.UNBOUND
        told = Send(serialize.iq_error(self._request, error))
        if self._bind_failures < MAX_BIND_FAILURES:
            return [told]
        return [told, *self._fault(StreamError("policy-violation", "too many requests to bind"))]

    def _route(self, item: Stanza) -> list[Action]:
        return [Route(item)]


_Step: TypeAlias = "Callable[[Negotiation, Any], list[Action]]"
_RULES: Final[dict[Rule, _Step]] = {rule: getattr(Negotiation, f"_{rule.value}") for rule in Rule}
