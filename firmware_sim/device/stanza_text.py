"""The text of a stanza, to tell it from other text that slixmpp sends."""

from __future__ import annotations


class StanzaText(str):
    """A stanza that is sent as this text; stream management counts it (XEP-0198)."""

    __slots__ = ()
