"""Whose a stanza is that is about to be sent: read from its bytes, without parsing them.

It is for stanzas that the gateway has stamped or made, and for counting alone: what the text means
is for `jid` to say.
"""

from __future__ import annotations

import re
from typing import Final

from edge.xmpp.stanza import TAG

_STAMPED = re.compile(rb"<[a-z]+ from='([^'/]*)")
_ATTRIBUTE = re.compile(rb"""\s([^\s=]+)\s*=\s*(?:'([^']*)'|"([^"]*)")""")


_SHOWS: Final = (b"", b"unavailable")
"""The types of a presence that tells whether its sender is there."""


def source(stanza: bytes) -> bytes:
    """Return the bare JID that a stanza is from, as it is written; nothing where it names none."""
    stamped = _STAMPED.match(stanza)
    if stamped is not None:
        return stamped[1]
    return _attributes(stanza).get(b"from", b"").partition(b"/")[0]


def shown(presence: bytes) -> bytes:
    """Return a key for a presence: another one of the same key takes its place.

    Of those that show whether somebody is there it is the full JID that they are from; one of
    another type, such as a request to subscribe, has that type beside it.
    """
    found = _attributes(presence)
    type_ = found.get(b"type", b"")
    return found.get(b"from", b"") + (b"" if type_ in _SHOWS else b" " + type_)


def _attributes(stanza: bytes) -> dict[bytes, bytes]:
    first = TAG.match(stanza)
    found = _ATTRIBUTE.findall(first[0] if first is not None else b"")
    return {name: one or other for name, one, other in found}
