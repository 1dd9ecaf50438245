"""From a connection to a bound session: TLS, authentication, binding (RFC 6120, sections 4 to 7).

Theory of operation. `wire.states` holds the machine as a table; its rules are here, for the stream
and TLS, and in `wire.authentication` and `wire.binding`. Inputs are what the peer sends
(`receive`), what fails (`fail`), and the results of work that was asked for (`tls_established`,
`found`, `verified`, `bound` and their like). Each returns the actions for the session to carry out,
in order. While the result of one is outstanding (`waiting`), the session holds back what the peer
sends. What the peer sends out of place ends the stream with the error that `_refuse` chooses.

By SASL2 (XEP-0388) the client says at once what is to be done when it is known: a session is
resumed, or else a resource bound, and success is told when that is done, without a new stream.

This module knows no socket, no clock, no store and no thread, and sets no time-outs: the session
does. After binding, stanzas are none of its business, and neither is stream management.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

from edge.credentials import Credentials
from edge.xmpp import serialize
from edge.xmpp.errors import StanzaError, StreamError, UsageError
from edge.xmpp.stanza import Item, Stanza, StreamOpen
from edge.xmpp.stream import management, requests, sasl, sasl2, stream_header
from edge.xmpp.stream.actions import Action, Manage, Route, Send, StartTls
from edge.xmpp.stream.authentication import Authentication
from edge.xmpp.stream.states import FROM_PEER, TRANSITIONS, WAITING, Input, Rule, State


class Negotiation(Authentication):
    """Negotiates one connection.

    Args:
        domain: ours, normalised.
        tls: whether TLS can be started.
        require_tls: whether it must be; if not, SCRAM (never PLAIN) is offered in the clear.
        secure: whether the stream begins under TLS (XEP-0368).
        certificate: whether, then, the peer has shown a certificate that TLS verified.
        limits: bytes of the largest element that is accepted before log-in and after, to be
            advertised (XEP-0478).
        features: offered once the stream is authenticated, as bytes of XML.
        stream_id: makes the id of each stream; by default random, as RFC 6120, section 4.7.3
            demands.

    Attributes:
        state: where the stream is.
        secure: whether it is under TLS.
        username: the account, normalised, once it is authenticated; else "".
        mechanism: the SASL mechanism that was tried last, or "".
        failures: how many attempts to authenticate have failed.
    """

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

    def tls_established(self, *, certificate: bool = False) -> list[Action]:
        """Go on after `StartTls`: the handshake is done, and the peer has shown a certificate that
        TLS verified, or has not."""
        return self._step(Input.TLS_ESTABLISHED, certificate)

    def found(self, credentials: Credentials | None) -> list[Action]:
        """Go on after `LookUp`: with the credentials, or with None if the look-up failed."""
        return self._step(Input.NOT_FOUND if credentials is None else Input.FOUND, credentials)

    def identified(self, name: str | None, *, more: bool = False) -> list[Action]:
        """Go on after `Identify`: with the account, a normalised local part, or with None if the
        certificate is nobody's; `more` as in `receive`."""
        self._more = more
        return self._step(Input.NOT_IDENTIFIED if name is None else Input.IDENTIFIED, name)

    def refused_attempt(self) -> list[Action]:
        """Go on after `LookUp` or `Identify`: there were too many attempts lately, or the look-up
        failed."""
        return self._step(Input.REFUSED_ATTEMPT, None)

    def verified(self, right: bool, *, more: bool = False) -> list[Action]:
        """Go on after `Verify`; `more` as in `receive`."""
        self._more = more
        return self._step(Input.VERIFIED if right else Input.NOT_VERIFIED, None)

    def tell_failure(self) -> list[Action]:
        """Go on after `Denied`: tell the peer now."""
        return self._step(Input.TELL_FAILURE, None)

    def resumed(self, full_jid: str, previd: str, h: int) -> list[Action]:
        """Go on after `Resume`: the session of this full JID goes on, on this connection.

        Args:
            full_jid: the session's.
            previd: its id.
            h: how many of the peer's stanzas it has handled.
        """
        return self._step(Input.RESUMED, (full_jid, management.resumed(previd, h)))

    def not_resumed(self, h: int | None = None) -> list[Action]:
        """Go on after `Resume`: there is no such session. `h` tells how many of the peer's stanzas
        it had handled, if that is known."""
        return self._step(Input.NOT_RESUMED, management.failed("item-not-found", h))

    def bound(self, full_jid: str, enabled: bytes = b"") -> list[Action]:
        """Go on after `Bind`: the session is registered under this full JID. `enabled` is the
        answer of `wire.management` to the action's `enable`."""
        return self._step(Input.BIND_DONE, (full_jid, enabled))

    def refused(self, error: StanzaError) -> list[Action]:
        """Go on after `Bind`: the session cannot be registered."""
        return self._step(Input.BIND_REFUSED, error)

    def _step(self, event: Input, thing: Any) -> list[Action]:
        before = self.state
        transition = TRANSITIONS.get((before, event))
        if transition is not None:
            try:
                actions = _RULES[transition.rule](self, thing)
            except sasl.SaslFailure as failure:
                actions = self._deny(failure.condition)
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
        if event in (Input.STANZA, Input.BIND, Input.RESUME, Input.MANAGE):
            return self._fault(StreamError("not-authorized", "no session is bound yet"))
        if event is Input.OTHER:
            return self._fault(StreamError("unsupported-stanza-type"))
        return self._fault(StreamError("policy-violation", f"{event.value} has no place here"))

    # Streams and TLS

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
            return [Send(sent + self._offer_binding())]
        self.state = State.SECURE if self.secure else State.CLEAR
        return [Send(sent + self._offer_authentication())]

    def _offer_authentication(self) -> bytes:
        mechanisms = self._mechanisms()
        return serialize.features(
            starttls=self._tls and not self.secure,
            required=self._require_tls,
            mechanisms=mechanisms,
            max_bytes=self._max_bytes[0],
            extra=sasl2.feature(mechanisms),
        )

    def _start_tls(self, _item: Stanza) -> list[Action]:
        if not self._tls:
            return self._no_tls(_item)
        if self._more:
            return self._too_soon()
        self.state = State.STARTING_TLS
        return [Send(serialize.PROCEED), StartTls()]

    def _no_tls(self, _item: Stanza) -> list[Action]:
        return self._end(serialize.TLS_FAILURE)

    def _encrypt(self, certificate: bool) -> list[Action]:
        self.secure = True
        self._certificate = certificate
        self._opened = False
        self.state = State.ENCRYPTED
        return []

    # Bound

    def _route(self, item: Stanza) -> list[Action]:
        return [Route(item)]

    def _manage(self, item: Stanza) -> list[Action]:
        return [Manage(item)]


_Step: TypeAlias = "Callable[[Negotiation, Any], list[Action]]"
_RULES: Final[dict[Rule, _Step]] = {rule: getattr(Negotiation, f"_{rule.value}") for rule in Rule}
