"""A string type for stanzas, to distinguish them from other text that slixmpp sends."""

from __future__ import annotations


class StanzaText(str):
    """The text of a complete stanza, which stream management (XEP-0198) must count."""

    __slots__ = ()
