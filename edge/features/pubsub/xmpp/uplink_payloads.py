"""Read the payloads of items that are logged because `[uplink] topics` selects their node."""

from __future__ import annotations

from typing import Final

from edge.engine import event_payloads
from edge.engine.hooks import Contents, Context
from edge.features.pubsub.service import uplink_topics
from edge.xmpp.errors import FragmentError
from edge.xmpp.stanza import parse_fragment

_NOTHING: Final = Contents([])


def read_payload(context: Context, node: str, payload: bytes) -> Contents:
    """Return the events in a payload if its node is selected, or why it cannot be read."""
    if not payload or not uplink_topics.is_shipped(context, node):
        return _NOTHING
    try:
        return event_payloads.decode(context, (parse_fragment(payload),))
    except FragmentError as error:
        return Contents([], str(error)[: event_payloads.MAX_REASON])
