"""Read the events in messages to the gateway itself."""

from __future__ import annotations

from typing import Final
from xml.etree.ElementTree import Element

from edge.engine.dispatch.addresses import AddressKind
from edge.engine.dispatch.hooks import Contents, Context, Hooks, Message, unreadable
from edge.routing.xmpp import event_payloads
from edge.xmpp import CONTENT_TYPE
from edge.xmpp.errors import FragmentError
from edge.xmpp.stanza import has_text, parse_fragment

NO_EVENTS: Final = "the message has no log event, no sensor data and no JSON container"
_TEXT: Final = "the message has text outside of its elements"


def read_message(context: Context, message: Message, parsed: Element | None) -> Contents:
    """Decode the events of a message, and ignore its other payloads."""
    try:
        payloads = parse_fragment(message.body) if parsed is None else parsed
    except FragmentError as error:
        return unreadable(error)
    found = event_payloads.decode(context, payloads)
    if found.events:
        return Contents([], _TEXT) if has_text(payloads) else found
    return found if found.unreadable else Contents([], NO_EVENTS)


def register(hooks: Hooks) -> None:
    """Register the hooks of this module with the engine."""
    hooks.add(hooks.readers, (CONTENT_TYPE, AddressKind.GATEWAY), read_message)
