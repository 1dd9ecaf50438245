"""Decode the payloads of messages and items into events with the decoders of the features."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final
from xml.etree.ElementTree import Element

from edge.engine.dispatch.hooks import Contents, Context, UnreadablePayload, unreadable
from edge.engine.store.events import NewEvent
from edge.routing.xmpp.hooks import XmppHooks

MAX_EVENTS: Final = 1000
"""Maximum events of one message or item, because a few bytes of JSON make one event. A message with
more is refused as unreadable."""


def decode(context: Context, payloads: Iterable[Element]) -> Contents:
    """Decode all payloads that have a decoder into events; ignore the others."""
    found: list[tuple[str, NewEvent]] = []
    decoders = context.hooks.of(XmppHooks).event_payloads
    try:
        for payload in payloads:
            decoder = decoders.get(payload.tag)
            if decoder is not None:
                found += decoder(payload)
            if len(found) > MAX_EVENTS:
                raise UnreadablePayload(f"the message has more than {MAX_EVENTS} events")
    except UnreadablePayload as error:
        return unreadable(error)
    return Contents(found)
