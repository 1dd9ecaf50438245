"""Values to the bytes of XMPP: stream headers, features, answers and errors.

Everything is escaped here, and a character that XML cannot carry is never emitted: it becomes
U+FFFD. Payloads given as bytes are put in as they are: they come from this module, or were accepted
by the parser. Nothing here sends anything.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from edge.xmpp.errors import STREAM_CONDITIONS, StanzaError, UsageError
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

if TYPE_CHECKING:
    from edge.xmpp.stanza import Stanza

STREAM_END = b"</stream:stream>"
PROCEED = f"<proceed xmlns='{TLS}'/>".encode()
TLS_FAILURE = f"<failure xmlns='{TLS}'/>".encode()

_ILLEGAL = "\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff"
_TEXT_SPECIAL = re.compile(f"[&<>\r{_ILLEGAL}]")
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


def escape(text: str) -> bytes:
    """Escape text that stands between tags."""
    return _TEXT_SPECIAL.sub(_replace, text).encode()


def escape_attribute(value: str) -> bytes:
    """Escape an attribute's value, whichever quotes surround it."""
    return _ATTRIBUTE_SPECIAL.sub(_replace, value).encode()


def attribute(name: str, value: str | None) -> bytes:
    """Make ` name='value'` with its leading space, or nothing if the value is None."""
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
    """Make an element; attributes that are None are left out, the content is put in as it is."""
    parts = [_attribute(key, value) for key, value in (attrs or {}).items()]
    return _element(name, _attribute("xmlns", xmlns) + "".join(parts), content)


# Streams (RFC 6120, section 4)


def stream_header(domain: str, stream_id: str, lang: str = "en", to: str | None = None) -> bytes:
    """Open our side of a stream (RFC 6120, section 4.7), XML declaration and all."""
    attrs = {"from": domain, "id": stream_id, "to": to, "version": "1.0", "xml:lang": lang}
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
    """List what the stream offers now (RFC 6120, section 4.3.2).

    Args:
        starttls: TLS; `required` says that nothing goes on without.
        required: see there.
        mechanisms: of SASL, best first.
        bind: resource binding.
        session: the legacy session of RFC 3921, marked optional.
        sm: stream management (XEP-0198).
        max_bytes: the largest element that is accepted now (XEP-0478).
        extra: put in as it is.
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


def stream_error(condition: str, text: str = "", application: bytes = b"") -> bytes:
    """Make the error that ends a stream (RFC 6120, section 4.9), without the closing tag.

    `application` is an application's own condition, put in after the text.
    """
    if condition not in STREAM_CONDITIONS:
        raise UsageError(f"no such stream error condition: {condition}")
    content = tag(condition, xmlns=STREAM_ERRORS)
    if text:
        content += tag("text", {"xml:lang": "en"}, escape(text), xmlns=STREAM_ERRORS)
    return tag("stream:error", content=content + application)


# Stanzas (RFC 6120, section 8)


def iq_result(
    id: str | None, to: str | None = None, from_: str | None = None, payload: bytes = b""
) -> bytes:
    """Answer an iq with success."""
    return _stanza("iq", "result", id, to, from_, payload)


def iq_get(id: str, to: str | None, from_: str | None, payload: bytes) -> bytes:
    """Ask for something."""
    return _stanza("iq", "get", id, to, from_, payload)


def iq_set(id: str, to: str | None, from_: str | None, payload: bytes) -> bytes:
    """Ask for a change, or push one."""
    return _stanza("iq", "set", id, to, from_, payload)


def message(
    kind: str | None, from_: str | None, to: str | None, content: bytes, id: str | None = None
) -> bytes:
    """Make a message of a type; None is `normal` (RFC 6121, section 5.2.2)."""
    return _stanza("message", kind, id, to, from_, content)


def presence(
    kind: str | None = None,
    from_: str | None = None,
    to: str | None = None,
    content: bytes = b"",
    id: str | None = None,
) -> bytes:
    """Make a presence stanza of a type; None is available (RFC 6121, section 4.7.1)."""
    return _stanza("presence", kind, id, to, from_, content)


def timestamp(wall: int) -> str:
    """Write a moment as XEP-0082 has it, in UTC. `wall` is in milliseconds since 1970."""
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=wall)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def delay(from_: str, wall: int) -> bytes:
    """Tell that `from_`, a JID, has had a stanza since `wall`, milliseconds since 1970
    (XEP-0203)."""
    return tag("delay", {"from": from_, "stamp": timestamp(wall)}, xmlns=DELAY)


def iq_error(
    request: Stanza,
    error: StanzaError,
    *,
    to: str | None = None,
    from_: str | None = None,
) -> bytes:
    """Answer an iq with an error.

    Args:
        request: the iq that is refused; its id is taken.
        error: what is wrong.
        to: whom the answer goes to, a JID.
        from_: whom the request was sent to, a JID.
    """
    payload = request.payload
    content = error.instead
    if not content and error.echo and payload is not None:
        content = payload.raw
    content += stanza_error(error)
    return _stanza("iq", "error", request.attrs.get("id"), to, from_, content)


def message_error(
    request: Stanza,
    error: StanzaError,
    *,
    to: str | None = None,
    from_: str | None = None,
) -> bytes:
    """Answer a message with an error; its content is not repeated."""
    content = stanza_error(error)
    return _stanza("message", "error", request.attrs.get("id"), to, from_, content)


def stanza_error(error: StanzaError) -> bytes:
    """Make the `<error/>` of an error stanza (RFC 6120, section 8.3)."""
    content = tag(error.condition, xmlns=STANZA_ERRORS)
    if error.text:
        content += tag("text", {"xml:lang": "en"}, escape(error.text), xmlns=STANZA_ERRORS)
    return tag("error", {"type": error.type}, content + error.application)


def _stanza(
    name: str, kind: str | None, id: str | None, to: str | None, from_: str | None, content: bytes
) -> bytes:
    what = _attribute("type", kind) + _attribute("id", id)
    return _element(name, what + _attribute("to", to) + _attribute("from", from_), content)


def _element(name: str, attributes: str, content: bytes) -> bytes:
    head = f"<{name}{attributes}".encode()
    return b"%b>%b</%b>" % (head, content, name.encode()) if content else head + b"/>"


# SASL (RFC 6120, section 6.4)


def sasl_challenge(encoded: bytes = b"") -> bytes:
    """Make a challenge from base64; an empty one asks for the mechanism's first message."""
    return tag("challenge", content=encoded, xmlns=SASL)


def sasl_success(encoded: bytes = b"") -> bytes:
    """Tell success, with the mechanism's last words in base64, if it has any."""
    return tag("success", content=encoded, xmlns=SASL)


def sasl_failure(condition: str) -> bytes:
    """Tell a failure by its condition (RFC 6120, section 6.5), and no more: it is no oracle."""
    return tag("failure", content=tag(condition), xmlns=SASL)


def bind_result(id: str | None, jid: str) -> bytes:
    """Tell a client the full JID that it is bound to (RFC 6120, section 7.6)."""
    return iq_result(id, payload=tag("bind", content=tag("jid", content=escape(jid)), xmlns=BIND))
