"""Dispatch requests to the publish-subscribe service by the element in `<pubsub/>`."""

from __future__ import annotations

from edge.engine.hooks import Context, OffloadedWork, Work
from edge.xmpp import pubsub
from edge.xmpp.stanza import Stanza


def dispatch(context: Context, stanza: Stanza) -> Work | OffloadedWork | bytes:
    """Pass a request to its handler; raises `StanzaError` if there is none."""
    elements = stanza.children[0].children
    if not elements:
        raise pubsub.refusal("bad-request", text="the request is empty")
    handler = context.hooks.pubsub_requests.get((stanza.attrs["type"], elements[0].name))
    if handler is None:
        raise pubsub.refusal("feature-not-implemented", "unsupported")
    return handler(context, stanza)
