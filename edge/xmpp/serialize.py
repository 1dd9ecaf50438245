"""Building of XMPP bytes: stream headers, features, stanzas and errors.

Text is escaped; a character that XML cannot carry becomes U+FFFD. Payloads given as bytes are
inserted unchanged: they come from this module, or were accepted by the parser.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta

from edge.xmpp.errors import StanzaError, StreamError
from edge.xmpp.namespaces import (
    BIND,
    CLIENT,
    DELAY,
    LIMITS,
    SASL,
    SESSION,
    SM,
    STANZA_ERRORS,
    STREAM_ERRORS,
    STREAMS,
    TLS,
)

STREAM_END = b"</stream:stream>"
PROCEED = f"<proceed xmlns='{TLS}'/>".encode()
TLS_FAILURE = f"<failure xmlns='{TLS}'/>".encode()

_ILLEGAL = r"\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff"
_TEXT_SPECIAL = re.compile(f"[&<>\r{_ILLEGAL}]")
_NOT_XML = re.compile(f"[{_ILLEGAL}]")
_ATTRIBUTE_SPECIAL = re.compile(f"[&<>'\"\t\n\r{_ILLEGAL}]")
_ESCAPES = {
    "&": "&amp;",
    "<": "&lt;",
    ">": "&gt;",
    "'": "&apos;",
    '"': "&quot;",
    "\t": "&#9;",
    "\n": "&#10;",
    "\r": "&#13;",
}


def _replace(match: re.Match[str]) -> str:
    return _ESCAPES.get(match[0], "\ufffd")


def is_text(text: str) -> bool:
    """Return whether XML can have all characters of a text."""
    return _NOT_XML.search(text) is None


def escape(text: str) -> bytes:
    """Escape the text of an element."""
    return _TEXT_SPECIAL.sub(_replace, text).encode()


def attribute(name: str, value: str | None) -> bytes:
    """Build ` name='value'` with its leading space, or nothing if the value is None."""
    return _attribute(name, value).encode()


def _attribute(name: str, value: str | None) -> str:
    return "" if value is None else f" {name}='{_ATTRIBUTE_SPECIAL.sub(_replace, value)}'"


def tag(
    name: str,
    attrs: Mapping[str, str | None] | None = None,
    content: bytes = b"",
    *,
    xmlns: str | None = None,
) -> bytes:
    """Build an element; attributes that are None are omitted, the content is inserted unchanged."""
    attributes = "" if xmlns is None else _attribute("xmlns", xmlns)
    if attrs:
        for key, value in attrs.items():
            if value is not None:
                if _ATTRIBUTE_SPECIAL.search(value) is not None:
                    value = _ATTRIBUTE_SPECIAL.sub(_replace, value)
                attributes += f" {key}='{value}'"
    return _element(name, attributes, content)


# Streams (RFC 6120, section 4)


def stream_header(domain: str, stream_id: str, to: str | None) -> bytes:
    """Build the gateway's stream header with its XML declaration (RFC 6120, section 4.7)."""
    attrs = {"from": domain, "id": stream_id, "to": to, "version": "1.0", "xml:lang": "en"}
    return b"<?xml version='1.0'?><stream:stream%b%b%b>" % (
        attribute("xmlns", CLIENT),
        attribute("xmlns:stream", STREAMS),
        b"".join(attribute(name, value) for name, value in attrs.items()),
    )


def features(
    *,
    starttls: bool = False,
    required: bool = False,
    mechanisms: Iterable[str] = (),
    bind: bool = False,
    session: bool = False,
    sm: bool = False,
    max_bytes: int | None = None,
    extra: bytes = b"",
) -> bytes:
    """Build the stream features (RFC 6120, section 4.3.2).

    Args:
        required: mark STARTTLS as required.
        mechanisms: SASL mechanisms, best first.
        session: offer the legacy session of RFC 3921, marked optional.
        sm: offer stream management (XEP-0198).
        max_bytes: bytes of the largest element accepted now (XEP-0478).
        extra: further features, inserted unchanged.
    """
    parts: list[bytes] = []
    if starttls:
        parts.append(tag("starttls", content=b"<required/>" if required else b"", xmlns=TLS))
    names = b"".join(tag("mechanism", content=escape(name)) for name in mechanisms)
    if names:
        parts.append(tag("mechanisms", content=names, xmlns=SASL))
    if bind:
        parts.append(tag("bind", xmlns=BIND))
    if session:
        parts.append(tag("session", content=b"<optional/>", xmlns=SESSION))
    if sm:
        parts.append(tag("sm", xmlns=SM))
    if max_bytes is not None:
        parts.append(
            tag("limits", content=tag("max-bytes", content=b"%d" % max_bytes), xmlns=LIMITS)
        )
    return tag("stream:features", content=b"".join(parts) + extra)


def stream_error(error: StreamError) -> bytes:
    """Build a stream error (RFC 6120, section 4.9), without the stream's closing tag."""
    content = tag(error.condition, xmlns=STREAM_ERRORS)
    if error.text:
        content += tag("text", {"xml:lang": "en"}, escape(error.text), xmlns=STREAM_ERRORS)
    return tag("stream:error", content=content + error.application)


# Stanzas (RFC 6120, section 8)


def iq_result(
    id: str | None, to: str | None = None, from_: str | None = None, payload: bytes = b""
) -> bytes:
    """Build an iq result."""
    if to is None or from_ is None or _ATTRIBUTE_SPECIAL.search(f"{id}{to}{from_}") or id is None:
        return stanza("iq", "result", id, to, from_, payload)
    start = f"<iq type='result' id='{id}' to='{to}' from='{from_}'"  # most answers
    return f"{start}>".encode() + payload + b"</iq>" if payload else f"{start}/>".encode()


def iq_get(id: str, to: str | None, from_: str | None, payload: bytes) -> bytes:
    """Build an iq of type get."""
    return stanza("iq", "get", id, to, from_, payload)


def iq_set(id: str, to: str | None, from_: str | None, payload: bytes) -> bytes:
    """Build an iq of type set."""
    return stanza("iq", "set", id, to, from_, payload)


def message(
    kind: str | None, from_: str | None, to: str | None, content: bytes, id: str | None = None
) -> bytes:
    """Build a message; a `kind` of None is `normal` (RFC 6121, section 5.2.2)."""
    return stanza("message", kind, id, to, from_, content)


def presence(
    kind: str | None = None,
    from_: str | None = None,
    to: str | None = None,
    content: bytes = b"",
    id: str | None = None,
) -> bytes:
    """Build a presence; a `kind` of None is available (RFC 6121, section 4.7.1)."""
    return stanza("presence", kind, id, to, from_, content)


def timestamp(wall: int) -> str:
    """Format a time as in XEP-0082, in UTC; `wall` is in milliseconds since 1970."""
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=wall)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def delay(from_: str, wall: int) -> bytes:
    """Build the element that says that `from_`, a JID, has held a stanza since `wall`, in
    milliseconds since 1970 (XEP-0203)."""
    return tag("delay", {"from": from_, "stamp": timestamp(wall)}, xmlns=DELAY)


def stanza_error(error: StanzaError) -> bytes:
    """Build the `<error/>` of an error stanza (RFC 6120, section 8.3)."""
    content = tag(error.condition, xmlns=STANZA_ERRORS)
    if error.text:
        content += tag("text", {"xml:lang": "en"}, escape(error.text), xmlns=STANZA_ERRORS)
    return tag("error", {"type": error.type}, content + error.application)


def stanza(
    name: str, kind: str | None, id: str | None, to: str | None, from_: str | None, content: bytes
) -> bytes:
    """Build a stanza; attributes that are None are omitted."""
    if _ATTRIBUTE_SPECIAL.search(f"{kind}{id}{to}{from_}") is None:  # most stanzas
        attributes = "" if kind is None else f" type='{kind}'"
        if id is not None:
            attributes += f" id='{id}'"
        if to is not None:
            attributes += f" to='{to}'"
        if from_ is not None:
            attributes += f" from='{from_}'"
    else:
        attributes = _attribute("type", kind) + _attribute("id", id)
        attributes += _attribute("to", to) + _attribute("from", from_)
    return _element(name, attributes, content)


def _element(name: str, attributes: str, content: bytes) -> bytes:
    if not content:
        return f"<{name}{attributes}/>".encode()
    return f"<{name}{attributes}>".encode() + content + f"</{name}>".encode()


# SASL (RFC 6120, section 6.4)


def sasl_success(encoded: bytes = b"") -> bytes:
    """Build a success, with the mechanism's final message in base64, if any."""
    return tag("success", content=encoded, xmlns=SASL)


def bind_result(id: str | None, jid: str) -> bytes:
    """Build the answer to a bind request, with the full JID (RFC 6120, section 7.6)."""
    return iq_result(id, payload=tag("bind", content=tag("jid", content=escape(jid)), xmlns=BIND))
