"""Reading of the sender's address of an outgoing stanza without parsing it.

The functions are for stanzas whose `from` the gateway has set. They return addresses as written,
not normalised, so use these only to group stanzas by sender.
"""

from __future__ import annotations

import re

from edge.xmpp.stanza import TAG

_STAMPED = re.compile(rb"<[a-z]+ from='([^'/]*)")
_ATTRIBUTE = re.compile(rb"""\s([^\s=]+)\s*=\s*(?:'([^']*)'|"([^"]*)")""")


def bare_sender(stanza: bytes) -> bytes:
    """Return the bare JID in a stanza's `from`, as written, or empty if there is no `from`."""
    stamped = _STAMPED.match(stanza)
    if stamped is not None:
        return stamped[1]
    return _attributes(stanza).get(b"from", b"").partition(b"/")[0]


def presence_key(presence: bytes) -> bytes:
    """Return a presence's key: a later presence with the same key replaces this one.

    The key is the sender's full JID; types other than available and unavailable, such as a request
    to subscribe, are added to it.
    """
    found = _attributes(presence)
    type_ = found.get(b"type", b"")
    return found.get(b"from", b"") + (b"" if type_ in (b"", b"unavailable") else b" " + type_)


def _attributes(stanza: bytes) -> dict[bytes, bytes]:
    first = TAG.match(stanza)
    found = _ATTRIBUTE.findall(first[0] if first is not None else b"")
    return {name: one or other for name, one, other in found}
