"""The actions that stream negotiation returns, to be carried out in order.

`FindCredentials`, `FindCertificateOwner`, `VerifyPassword`, `LoginFailure`, `Resume`, `Bind` and
`StartTls` have a result. The caller passes the result to the method of `Negotiation` that the
action's docstring names; until then the caller holds back further items of the stream.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from edge.credentials import Credentials
from edge.xmpp.stanza import Stanza
from edge.xmpp.stream.management import EnableRequest


@dataclass(frozen=True, slots=True)
class Send:
    """Send these bytes."""

    data: bytes


@dataclass(frozen=True, slots=True)
class StartTls:
    """Flush the output, reset the parser, do the server's TLS handshake, then call
    `tls_established`."""


@dataclass(frozen=True, slots=True)
class FindCredentials:
    """Find an account's credentials and call `credentials_found`; if too many attempts have failed,
    call `attempt_refused` instead.

    Pass decoy credentials for an account that does not exist, and None if the look-up failed.

    Attributes:
        username: the normalised local part.
        mechanism: the mechanism to find credentials for: one of SCRAM; or PLAIN, for which any do.
    """

    username: str
    mechanism: str


@dataclass(frozen=True, slots=True)
class FindCertificateOwner:
    """Find the account that owns the peer's certificate and call `owner_found`, with None if there
    is none or it is revoked. If the look-up failed, call `attempt_refused` instead."""


@dataclass(frozen=True, slots=True)
class VerifyPassword:
    """Check a password outside of the event loop (`credentials.verify`) and call
    `password_verified`."""

    password: str
    credentials: Credentials

    def __repr__(self) -> str:
        return "VerifyPassword(...)"


@dataclass(frozen=True, slots=True)
class LoginSuccess:
    """The peer has authenticated as this account (a normalised local part): accept larger
    stanzas."""

    username: str


@dataclass(frozen=True, slots=True)
class LoginFailure:
    """Count a failed attempt and call `report_failure` when the peer may learn of the failure.

    Attributes:
        username: the normalised local part that the attempt named, or "".
        condition: the SASL failure condition (RFC 6120, section 6.5).
    """

    username: str
    condition: str


@dataclass(frozen=True, slots=True)
class RestartStream:
    """Reset the parser: a new stream begins in both directions."""


@dataclass(frozen=True, slots=True)
class Bind:
    """Register a session and call `bound` or `bind_refused`.

    Attributes:
        resource: the resource; None lets the caller choose one.
        enable: a request to enable stream management in the same step (XEP-0386), whose answer is
            passed to `bound`; None if there is no request.
    """

    resource: str | None
    enable: EnableRequest | None = None


@dataclass(frozen=True, slots=True)
class Resume:
    """Resume a session of the account and call `resumed` or `not_resumed` (XEP-0198, section 5).

    Attributes:
        previd: the id of the session for resumption.
        h: number of the gateway's stanzas that the peer has handled.
    """

    previd: str
    h: int


@dataclass(frozen=True, slots=True)
class ManageStream:
    """Handle an element of stream management for the bound session."""

    item: Stanza


@dataclass(frozen=True, slots=True)
class Route:
    """Handle a stanza of the bound session."""

    stanza: Stanza


@dataclass(frozen=True, slots=True)
class Close:
    """Flush the output and close the connection; nothing more is read."""


Action: TypeAlias = (
    Send
    | StartTls
    | FindCredentials
    | FindCertificateOwner
    | VerifyPassword
    | LoginSuccess
    | LoginFailure
    | RestartStream
    | Bind
    | Resume
    | ManageStream
    | Route
    | Close
)
