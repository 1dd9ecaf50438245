"""Checks of the header of a client's stream (RFC 6120, section 4.7)."""

from __future__ import annotations

import re
from typing import Final

from edge import jid
from edge.xmpp.errors import StreamError
from edge.xmpp.namespaces import CLIENT, STREAMS, clark
from edge.xmpp.stanza import StreamOpen

_VERSION = re.compile(r"0*([0-9]{1,4})\.[0-9]{1,4}", re.ASCII)

MAX_SHOWN: Final = 64
"""Maximum characters of a wrong domain that the error repeats."""


def check(header: StreamOpen, domain: str) -> None:
    """Check that a stream with this header can be served for `domain`.

    Raises:
        StreamError: `invalid-namespace`, `bad-namespace-prefix`, `bad-format`,
            `improper-addressing`, `host-unknown` or `unsupported-version`.
    """
    if not header.name.startswith(clark(STREAMS, "")):
        raise StreamError("invalid-namespace", f"the stream's namespace must be {STREAMS}")
    if header.name != clark(STREAMS, "stream"):
        raise StreamError("bad-format", "the first element must be `stream`")
    if not header.prefixed:
        raise StreamError("bad-namespace-prefix", "the stream's namespace needs a prefix")
    if header.namespace != CLIENT:
        raise StreamError("invalid-namespace", f"{CLIENT} must be the default namespace")
    version = _VERSION.fullmatch(header.attrs.get("version", ""))
    if version is None or int(version[1]) < 1:
        raise StreamError("unsupported-version", "XMPP 1.0 is required")
    to = header.attrs.get("to")
    if not to:
        raise StreamError("improper-addressing", "the stream header needs a `to`")
    if _normalise(to) != domain:
        text = f"{to[:MAX_SHOWN]!r} is not served here; this gateway's domain is {domain}"
        raise StreamError("host-unknown", text)


def check_sender(header: StreamOpen, account: str) -> None:
    """Check that a client authenticated as `account`, a bare JID, may open this stream: its `from`
    is absent, a domain, or the account (RFC 6120, sections 4.7.1 and 4.9.3.9).

    A domain claims no account: XML::Stream, which sendxmpp uses, sends its own host's name.

    Raises:
        StreamError: `invalid-from`.
    """
    if "from" not in header.attrs:
        return
    address = sender(header)
    named = None if address is None else jid.parse(address)
    if named is None or (named.local and named.bare != account):
        raise StreamError("invalid-from")


def sender(header: StreamOpen) -> str | None:
    """Return the header's `from`, normalised, or None if it is absent or malformed."""
    return _normalise(header.attrs.get("from", ""))


def _normalise(address: str) -> str | None:
    try:
        return jid.parse(address).full
    except jid.JidError:
        return None
