"""What can be wrong with a peer's XML: stream errors, stanza errors, and stored fragments that do
not parse.

These are the peer's faults, and each carries the condition that RFC 6120 names for it. Nothing is
sent here: `wire.serialize` makes the bytes, the session sends them. Our own misuse of this package
raises `UsageError`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from edge.xmpp.stanza import Item

STREAM_CONDITIONS = frozenset(
    {
        "bad-format",
        "bad-namespace-prefix",
        "conflict",
        "connection-timeout",
        "host-gone",
        "host-unknown",
        "improper-addressing",
        "internal-server-error",
        "invalid-from",
        "invalid-namespace",
        "invalid-xml",
        "not-authorized",
        "not-well-formed",
        "policy-violation",
        "remote-connection-failed",
        "reset",
        "resource-constraint",
        "restricted-xml",
        "system-shutdown",
        "undefined-condition",
        "unsupported-encoding",
        "unsupported-feature",
        "unsupported-stanza-type",
        "unsupported-version",
    }
)
"""The stream error conditions of RFC 6120, section 4.9.3, but for `see-other-host`: no client is
ever sent elsewhere."""

STANZA_CONDITIONS = {
    "bad-request": "modify",
    "conflict": "cancel",
    "feature-not-implemented": "cancel",
    "forbidden": "auth",
    "gone": "cancel",
    "internal-server-error": "cancel",
    "item-not-found": "cancel",
    "jid-malformed": "modify",
    "not-acceptable": "modify",
    "not-allowed": "cancel",
    "not-authorized": "auth",
    "policy-violation": "modify",
    "recipient-unavailable": "wait",
    "redirect": "modify",
    "registration-required": "auth",
    "remote-server-not-found": "cancel",
    "remote-server-timeout": "wait",
    "resource-constraint": "wait",
    "service-unavailable": "cancel",
    "subscription-required": "auth",
    "undefined-condition": "cancel",
    "unexpected-request": "wait",
}
"""The stanza error conditions of RFC 6120, section 8.3.3, each with the type that it recommends
first."""

STANZA_TYPES = frozenset({"auth", "cancel", "continue", "modify", "wait"})
"""The types of a stanza error, RFC 6120, section 8.3.2."""


class UsageError(RuntimeError):
    """This package was called in a way that its contract forbids: our fault, never the peer's."""


class WireError(Exception):
    """The peer sent what cannot be accepted."""


class StreamError(WireError):
    """The stream cannot go on (RFC 6120, section 4.9): answer with the condition, then close.

    `condition` is one of `STREAM_CONDITIONS`, `text` says what was wrong, for people. `items` are
    those that the parser had completed in the same `feed`, before the fault: they count, and are
    handled before the stream is closed. `application` is an application's own condition, as bytes
    of XML (RFC 6120, section 4.9.4).
    """

    def __init__(
        self,
        condition: str,
        text: str = "",
        items: Sequence[Item] = (),
        *,
        application: bytes = b"",
    ) -> None:
        if condition not in STREAM_CONDITIONS:
            raise UsageError(f"no such stream error condition: {condition}")
        super().__init__(f"{condition}: {text}" if text else condition)
        self.condition = condition
        self.text = text
        self.items: list[Item] = list(items)
        self.application = application


class StanzaError(WireError):
    """A stanza is refused (RFC 6120, section 8.3): answer with an error stanza; the stream goes on.

    `condition` is one of `STANZA_CONDITIONS`; `type` is taken from there if it is not given; `text`
    is for people. `application` is an application's own condition, as bytes of XML (RFC 6120,
    section 8.3.4); `echo` has the payload of the iq that is refused repeated before the error.
    `instead`, bytes of XML, is what stands there then, where more is said than was asked.
    """

    def __init__(
        self,
        condition: str,
        text: str = "",
        *,
        type: str | None = None,
        application: bytes = b"",
        echo: bool = False,
        instead: bytes = b"",
    ) -> None:
        if condition not in STANZA_CONDITIONS:
            raise UsageError(f"no such stanza error condition: {condition}")
        kind = STANZA_CONDITIONS[condition] if type is None else type
        if kind not in STANZA_TYPES:
            raise UsageError(f"no such stanza error type: {kind}")
        super().__init__(f"{kind}/{condition}: {text}" if text else f"{kind}/{condition}")
        self.type = kind
        self.condition = condition
        self.text = text
        self.application = application
        self.echo = echo
        self.instead = instead


class FragmentError(WireError):
    """Bytes that should be exactly one well-formed element are not."""
