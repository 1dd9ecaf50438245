"""Errors of the XMPP layer: stream errors, stanza errors and invalid fragments.

A `WireError` is the peer's fault and carries the condition that RFC 6120 defines for it. Misuse of
this package by the gateway itself raises `UsageError`.
"""

from __future__ import annotations

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
"""The stream error conditions of RFC 6120, section 4.9.3, except `see-other-host`, which the
gateway does not use."""

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
"""The stanza error conditions of RFC 6120, section 8.3.3, each with the type recommended there."""

STANZA_TYPES = frozenset({"auth", "cancel", "continue", "modify", "wait"})
"""The stanza error types of RFC 6120, section 8.3.2."""


class UsageError(RuntimeError):
    """The gateway called this package in a way that its contract forbids."""


class WireError(Exception):
    """The peer sent something that cannot be accepted."""


class StreamError(WireError):
    """The stream must end (RFC 6120, section 4.9): answer with this error, then close.

    Attributes:
        condition: one of `STREAM_CONDITIONS`.
        application: an application-specific condition, as bytes of XML (RFC 6120, section 4.9.4).
    """

    def __init__(self, condition: str, text: str = "", *, application: bytes = b"") -> None:
        if condition not in STREAM_CONDITIONS:
            raise UsageError(f"unknown stream error condition: {condition}")
        super().__init__(f"{condition}: {text}" if text else condition)
        self.condition = condition
        self.text = text
        self.application = application


class StanzaError(WireError):
    """A stanza is refused (RFC 6120, section 8.3): answer with an error; the stream continues.

    Attributes:
        condition: one of `STANZA_CONDITIONS`.
        type: one of `STANZA_TYPES`; by default the one recommended for the condition.
        application: an application-specific condition, as bytes of XML (RFC 6120, section 8.3.4).
        echo: whether to repeat the payload of the refused iq before the error.
        instead: bytes of XML to send in place of that payload.
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
            raise UsageError(f"unknown stanza error condition: {condition}")
        kind = STANZA_CONDITIONS[condition] if type is None else type
        if kind not in STANZA_TYPES:
            raise UsageError(f"unknown stanza error type: {kind}")
        super().__init__(f"{kind}/{condition}: {text}" if text else f"{kind}/{condition}")
        self.type = kind
        self.condition = condition
        self.text = text
        self.application = application
        self.echo = echo
        self.instead = instead


class UnexpectedText(WireError):
    """There is text in an element that may contain elements only."""


class FragmentError(WireError):
    """Stored bytes are not exactly one well-formed element."""
