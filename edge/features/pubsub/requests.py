"""The requests of the publish-subscribe service: to whom each goes, and how it is answered.

A request is the first element in `<pubsub/>`; modules name those that they handle as the `verbs` of
their `Feature`. What a request does is theirs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from edge.engine import access, answers
from edge.engine.access import Sender
from edge.engine.database import Transaction
from edge.engine.hooks import Context, Hooks, OffloadedWork, Work
from edge.errors import ServiceError
from edge.xmpp import pubsub, serialize
from edge.xmpp.errors import StanzaError
from edge.xmpp.namespaces import PUBSUB, PUBSUB_OWNER, clark
from edge.xmpp.stanza import Stanza


def request(context: Context, stanza: Stanza) -> Work | OffloadedWork | bytes:
    """Find who handles a request of publish-subscribe; raises `StanzaError`."""
    elements = stanza.children[0].children
    if not elements:
        raise pubsub.refusal("bad-request", text="the request is empty")
    handler = context.hooks.pubsub_requests.get((stanza.attrs["type"], elements[0].name))
    if handler is None:
        raise pubsub.refusal("feature-not-implemented", "unsupported")
    return handler(context, stanza)


def answering(
    context: Context, stanza: Stanza, act: Callable[[Transaction, Sender], bytes]
) -> Work:
    """Make work of what a request does.

    Args:
        context: what handlers know.
        stanza: the request.
        act: does it, and returns the payload of the result, as bytes; it raises `StanzaError`, and
            has changed nothing then: a unit is not undone by a refusal.
    """

    def work(tx: Transaction, sender: Sender) -> bytes:
        to = stanza.attrs.get("to")
        try:
            if not access.may_use_services(sender, context.trusted_domains):
                raise pubsub.refusal("forbidden")
            payload = act(tx, sender)
        except (ServiceError, StanzaError) as error:
            return answers.error(context, stanza, sender, error)
        return serialize.iq_result(stanza.attrs["id"], sender.full, to, payload)

    return work


_NAMES: Final = (clark(PUBSUB, "pubsub"), clark(PUBSUB_OWNER, "pubsub"))

NEEDS_ACCOUNTS: Final = True


def register(hooks: Hooks) -> None:
    """Register with the engine."""
    for type_ in ("get", "set"):
        for name in _NAMES:
            hooks.pubsub_iq(type_, name, request)
    hooks.advertise_pubsub(PUBSUB)
