"""One attempt of a client to authenticate, by either profile of SASL (RFC 6120, section 6;
XEP-0388).

An attempt says what is to be looked up, checks what the client answers, and raises `SaslFailure`
where it fails. The two profiles differ in their XML and in the states that they lead to, and in
nothing else. What follows success or failure, how many attempts there may be and what is sent when
is told by `wire.negotiation`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from edge.credentials import Credentials
from edge.xmpp import jid, serialize
from edge.xmpp.errors import UsageError
from edge.xmpp.stanza import Stanza
from edge.xmpp.stream import requests, sasl, sasl2
from edge.xmpp.stream.actions import Identify, LookUp, Verify
from edge.xmpp.stream.states import State

KNOWN = frozenset({sasl.EXTERNAL, *sasl.SCRAM, sasl.PLAIN})
"""The mechanisms that are spoken here, though not each on every stream."""


class Profile(NamedTuple):
    """A profile of SASL: its XML, and the states in which its client has to answer."""

    prompted: State
    challenged: State
    message: Callable[[Stanza], bytes | None]
    challenge: Callable[[bytes], bytes]
    failure: Callable[[str], bytes]


FIRST = Profile(
    State.PROMPTED,
    State.CHALLENGED,
    requests.message,
    serialize.sasl_challenge,
    serialize.sasl_failure,
)
SECOND = Profile(State.PROMPTED2, State.CHALLENGED2, sasl2.message, sasl2.challenge, sasl2.failure)


def offered(*, secure: bool, certificate: bool, require_tls: bool) -> tuple[str, ...]:
    """List the mechanisms of a stream, best first.

    Args:
        secure: it is under TLS.
        certificate: the peer has shown a certificate that TLS verified.
        require_tls: without TLS, nothing is offered; else SCRAM.
    """
    if not secure:
        return () if require_tls else sasl.SCRAM
    own = (sasl.EXTERNAL,) if certificate else ()
    return (*own, *sasl.SCRAM, sasl.PLAIN)


class Attempt:
    """One attempt.

    Args:
        profile: how it is spoken.
        mechanism: which one the client chose.
        domain: ours.
        opener: the address that the stream was opened from, where the profile holds an identity to
            act as to that; else None.

    Attributes:
        profile: see above.
        username: the normalised local part of the account, "" until it is named.
    """

    __slots__ = (
        "_authzid", "_domain", "_mechanism", "_opener", "_password", "_scram", "profile", "username"
    )  # fmt: skip

    def __init__(self, profile: Profile, mechanism: str, domain: str, opener: str | None) -> None:
        self.profile = profile
        self.username = ""
        self._mechanism = mechanism
        self._domain = domain
        self._opener = opener
        self._authzid = ""
        self._password = ""
        self._scram: sasl.ScramExchange | None = None

    def choose(self, mechanisms: tuple[str, ...]) -> None:
        """Check that the mechanism is one of those that are offered.

        Raises:
            SaslFailure: `encryption-required`, or `invalid-mechanism`.
        """
        if self._mechanism in mechanisms:
            return
        beneath_tls = self._mechanism in KNOWN - {sasl.EXTERNAL} and sasl.PLAIN not in mechanisms
        raise sasl.SaslFailure("encryption-required" if beneath_tls else "invalid-mechanism")

    def first(self, message: bytes) -> LookUp | Identify:
        """Take the mechanism's first message, and say what has to be found out.

        Raises:
            SaslFailure: it is malformed, or the client must not act as whom it wants to.
        """
        exchange = sasl.begin(self._mechanism, message)
        self._authzid = exchange.authzid
        if isinstance(exchange, sasl.ExternalExchange):
            return Identify()
        try:
            self.username = jid.prepare_local(exchange.username)
        except jid.JidError as error:
            raise sasl.SaslFailure("not-authorized") from error
        self._authorise()
        if isinstance(exchange, sasl.ScramExchange):
            self._scram = exchange
        else:
            self._password = exchange.password
        return LookUp(self.username, self._mechanism)

    def identified(self, name: str) -> None:
        """Take the account that the client's certificate was issued to.

        Raises:
            SaslFailure: `invalid-authzid`: the client wants to act as another.
        """
        self.username = name
        self._authorise()

    def challenge(self, credentials: Credentials) -> bytes | Verify:
        """Take the account's credentials: make the challenge, or have the password checked."""
        if self._scram is not None:
            return self._scram.challenge(credentials)
        password, self._password = self._password, ""
        return Verify(password, credentials)

    def prove(self, message: bytes) -> bytes:
        """Check the client's proof; returns ours.

        Raises:
            SaslFailure: `malformed-request` or `not-authorized`.
        """
        if self._scram is None:
            raise UsageError("nothing but SCRAM is challenged")
        return self._scram.finish(message)

    def _authorise(self) -> None:
        """Accept the identity to act as: none, or the account itself (RFC 6120, section 6.3.8), and
        that which the stream was opened from (XEP-0388, section 3.4).

        A resource is passed over: with EXTERNAL, libstrophe gives its full JID.
        """
        if not self._authzid:
            return
        own = f"{self.username}@{self._domain}"
        try:
            wanted = jid.parse(self._authzid).bare
        except jid.JidError as error:
            raise sasl.SaslFailure("invalid-authzid") from error
        opener = own if self._opener is None else jid.parse(self._opener).bare
        if wanted not in (self.username, own) or opener != own:
            raise sasl.SaslFailure("invalid-authzid")
