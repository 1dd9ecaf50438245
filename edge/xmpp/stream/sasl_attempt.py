"""One authentication attempt, by SASL (RFC 6120, section 6) or SASL2 (XEP-0388).

The two profiles differ only in their XML and in the states that they lead to. A method that raises
`SaslFailure` ends the attempt.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from edge import jid, sasl
from edge.credentials import Credentials
from edge.xmpp import namespaces
from edge.xmpp.errors import UsageError
from edge.xmpp.serialize import tag
from edge.xmpp.stream.actions import FindCertificateOwner, FindCredentials, VerifyPassword
from edge.xmpp.stream.states import State


class Profile(NamedTuple):
    """A SASL profile: its namespace, and the states that await a first message or a proof."""

    namespace: str
    prompted: State
    challenged: State

    def challenge(self, encoded: bytes = b"") -> bytes:
        """Build a challenge from base64; an empty one asks for the mechanism's first message."""
        return tag("challenge", content=encoded, xmlns=self.namespace)

    def failure(self, condition: str) -> bytes:
        """Build a failure (RFC 6120, section 6.5); without a text, so that it reveals no more than
        its condition."""
        inherits = self.namespace == namespaces.SASL
        content = tag(condition, xmlns=None if inherits else namespaces.SASL)
        return tag("failure", content=content, xmlns=self.namespace)


SASL: Final = Profile(namespaces.SASL, State.PROMPTED, State.CHALLENGED)
SASL2: Final = Profile(namespaces.SASL2, State.PROMPTED2, State.CHALLENGED2)


def offered(*, secure: bool, certificate: bool, require_tls: bool) -> tuple[str, ...]:
    """List the mechanisms of a stream, best first.

    Args:
        secure: whether the stream is under TLS.
        certificate: whether the peer has presented a certificate that TLS verified.
        require_tls: whether TLS is required; if not, SCRAM is offered without TLS, too.
    """
    if not secure:
        return () if require_tls else sasl.SCRAM
    external = (sasl.EXTERNAL,) if certificate else ()
    return (*external, *sasl.SCRAM, sasl.PLAIN)


class SaslAttempt:
    """The state of one authentication attempt.

    Args:
        opener: with SASL2, the `from` of the stream header, which an authorization identity must
            match; None with SASL, or if there is no `from`.

    Attributes:
        username: the normalised local part of the account, "" until it is known.
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

    def check_offered(self, mechanisms: tuple[str, ...]) -> None:
        """Check that the mechanism is one of those offered.

        Raises:
            SaslFailure: `encryption-required` if it is offered only under TLS, or
                `invalid-mechanism`.
        """
        if self._mechanism in mechanisms:
            return
        needs_tls = self._mechanism in (*sasl.SCRAM, sasl.PLAIN) and sasl.PLAIN not in mechanisms
        raise sasl.SaslFailure("encryption-required" if needs_tls else "invalid-mechanism")

    def receive_first(self, message: bytes) -> FindCredentials | FindCertificateOwner:
        """Read the mechanism's first message; return the action that finds the account.

        Raises:
            SaslFailure: the message is malformed, or the authorization identity is not allowed.
        """
        exchange = sasl.begin(self._mechanism, message)
        self._authzid = exchange.authzid
        if isinstance(exchange, sasl.ExternalExchange):
            return FindCertificateOwner()
        try:
            self.username = jid.prepare_local(exchange.username)
        except jid.JidError as error:
            raise sasl.SaslFailure("not-authorized") from error
        self._check_authzid()
        if isinstance(exchange, sasl.ScramExchange):
            self._scram = exchange
        else:
            self._password = exchange.password
        return FindCredentials(self.username, self._mechanism)

    def set_owner(self, name: str) -> None:
        """Set the certificate's owner as the account; raises `SaslFailure` if `authzid` differs."""
        self.username = name
        self._check_authzid()

    def challenge(self, credentials: Credentials) -> bytes | VerifyPassword:
        """Return the challenge for an account's credentials, or the action that checks the
        password."""
        if self._scram is not None:
            return self._scram.challenge(credentials)
        password, self._password = self._password, ""
        return VerifyPassword(password, credentials)

    def check_proof(self, message: bytes) -> bytes:
        """Check the client's proof and return the server's proof.

        Raises:
            SaslFailure: `malformed-request` or `not-authorized`.
        """
        if self._scram is None:
            raise UsageError("only SCRAM has a challenge")
        return self._scram.finish(message)

    def _check_authzid(self) -> None:
        """Check that the authorization identity, if there is one, is the account itself (RFC 6120,
        section 6.3.8), and, with SASL2, the `from` of the stream header (XEP-0388, section 3.4).

        A resource is ignored: with EXTERNAL, libstrophe sends its full JID.
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
