"""What stream negotiation asks the session to do; in the order of the list that they come in.

`LookUp`, `Identify`, `Verify`, `Denied`, `Resume` and `Bind` ask for work outside: its result goes
back into `wire.negotiation`, and until then no further item of the stream is given to it.
`StartTls` does too, when the handshake is done.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from edge.credentials import Credentials
from edge.xmpp.stanza import Stanza
from edge.xmpp.stream.management import EnableRequest


@dataclass(frozen=True, slots=True)
class Send:
    """Write these bytes."""

    data: bytes


@dataclass(frozen=True, slots=True)
class StartTls:
    """Write what was to be sent, reset the parser, begin TLS as its server, then call
    `tls_established`."""


@dataclass(frozen=True, slots=True)
class LookUp:
    """Find the credentials of an account, and call `found` with them, with made-up ones, or with
    None if that failed; or call `refused_attempt` if there were too many attempts lately.

    `username` is a normalised local part. `mechanism` is that of SCRAM that the credentials must be
    for; PLAIN takes those of any.
    """

    username: str
    mechanism: str


@dataclass(frozen=True, slots=True)
class Identify:
    """Find the account that the peer's certificate was issued to, and call `identified` with its
    normalised local part, or with None if there is none or it is revoked; or call
    `refused_attempt`."""


@dataclass(frozen=True, slots=True)
class Verify:
    """Check a password outside of the event loop (`credentials.verify`), and call `verified`."""

    password: str
    credentials: Credentials

    def __repr__(self) -> str:
        return "Verify(...)"


@dataclass(frozen=True, slots=True)
class Authenticated:
    """The peer has proved that it is this account: a normalised local part.

    Larger stanzas may be accepted now.
    """

    username: str


@dataclass(frozen=True, slots=True)
class Denied:
    """An attempt to authenticate has failed: call `tell_failure` when the peer may hear of it.

    `username` is the normalised local part that it was for, "" if it named none; `condition` is
    that of the SASL failure (RFC 6120, section 6.5).
    """

    username: str
    condition: str


@dataclass(frozen=True, slots=True)
class Restart:
    """Reset the parser: a new stream begins in both directions."""


@dataclass(frozen=True, slots=True)
class Bind:
    """Bind the account to this resource, or to one of your own if it is None; then call `bound` or
    `refused`.

    With `enable`, turn on stream management for the session in the same step, and give `bound` the
    answer to it (XEP-0386).
    """

    resource: str | None
    enable: EnableRequest | None = None


@dataclass(frozen=True, slots=True)
class Resume:
    """Resume the account's session that waits under this id, whose peer has handled `h` stanzas;
    then call `resumed` or `not_resumed` (XEP-0198, section 5)."""

    previd: str
    h: int


@dataclass(frozen=True, slots=True)
class Manage:
    """The stream is bound, and this element is one of stream management: see `wire.management`."""

    item: Stanza


@dataclass(frozen=True, slots=True)
class Route:
    """The stream is bound, and this stanza is not a matter of negotiation."""

    stanza: Stanza


@dataclass(frozen=True, slots=True)
class Close:
    """Write what was to be sent, and close the connection; nothing more is read."""


Action: TypeAlias = (
    Send
    | StartTls
    | LookUp
    | Identify
    | Verify
    | Denied
    | Authenticated
    | Restart
    | Bind
    | Resume
    | Manage
    | Route
    | Close
)
