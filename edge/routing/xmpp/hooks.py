"""XMPP's own hooks: handlers of stanzas, decoders of payloads, and what is advertised.

The `xmpp` modules of features register them: `hooks.of(XmppHooks)` is their registry.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias
from xml.etree.ElementTree import Element

from edge.engine.dispatch.hooks import Context, OffloadedWork, Registry, Work
from edge.engine.store.events import NewEvent
from edge.xmpp.stanza import Stanza

Handler: TypeAlias = Callable[[Context, Stanza], Work | OffloadedWork | bytes]
"""Turns a stanza into work, or into an answer that needs no transaction.

Raises `StanzaError` to refuse the stanza.
"""

AnswerHandler: TypeAlias = Callable[[Context, Stanza], Work | bytes]
"""A handler of iqs of type result or error."""

DiscoHandler: TypeAlias = Callable[[Context, Stanza], Work | None]
"""Answers service discovery queries about the nodes that its feature serves. Returns `None` for
other nodes."""

StreamFeature: TypeAlias = Callable[[Context], bytes]
"""Returns one element for the features of an authenticated stream (RFC 6120, section 4.3.2)."""

PayloadDecoder: TypeAlias = Callable[[Element], list[tuple[str, NewEvent]]]
"""Decodes a message's payload into events with their lanes; raises `UnreadablePayload`."""


@dataclass(eq=False)
class XmppHooks(Registry):
    """The registry of XMPP's hooks, which features add to and the router and handlers read."""

    server_iqs: dict[tuple[str, str], Handler] = field(default_factory=dict)
    """Handlers of iqs to the gateway's own address, or without an address, by type and payload."""
    own_account_iqs: dict[tuple[str, str], Handler] = field(default_factory=dict)
    """Handlers of iqs to the sender's own account, by type and payload."""
    account_iqs: dict[tuple[str, str], Handler] = field(default_factory=dict)
    """Handlers of iqs to the bare JID of another account, by type and payload."""
    any_iqs: dict[tuple[str, str], Handler] = field(default_factory=dict)
    """Handlers of iqs to any address but a session's, by type and payload; they check the
    address."""
    pubsub_iqs: dict[tuple[str, str], Handler] = field(default_factory=dict)
    """Handlers of iqs to the publish-subscribe service, by type and payload."""
    pubsub_requests: dict[tuple[str, str], Handler] = field(default_factory=dict)
    """Handlers of publish-subscribe requests, by type of the iq and element in `<pubsub/>`."""
    stanza_handlers: dict[str, Handler] = field(default_factory=dict)
    """Handlers of stanzas by kind: `message`, `presence`, `iq` (of type get or set, to a session)
    and `answer` (of type result or error, but not to an iq of the gateway)."""
    iq_answers: dict[str, Handler] = field(default_factory=dict)
    """Handlers of answers to the gateway's own iqs, by the kind in the iq's id (`iq_ids`)."""
    other_answer: AnswerHandler = field(default=lambda _context, _stanza: b"")
    event_payloads: dict[str, PayloadDecoder] = field(default_factory=dict)
    """Decoders of message payloads for the event log, by the payload's name in Clark notation."""
    advertised: tuple[str, ...] = ()
    pubsub_advertised: tuple[str, ...] = ()
    pubsub_disco: list[DiscoHandler] = field(default_factory=list)
    """Answer service discovery queries to `pubsub.DOMAIN`, each about its own feature's nodes."""
    stream_features: list[StreamFeature] = field(default_factory=list)

    def other_iq_answer(self, handler: AnswerHandler) -> None:
        """Register the handler of results and errors that answer none of the gateway's own iqs."""
        self.add(self.stanza_handlers, "answer", handler)
        self.other_answer = handler

    def advertise(self, *features: str) -> None:
        """Add features to the gateway's service discovery."""
        self.advertised = tuple(sorted({*self.advertised, *features}))

    def advertise_pubsub(self, *features: str) -> None:
        """Add features to the service discovery of the publish-subscribe service."""
        self.pubsub_advertised = tuple(sorted({*self.pubsub_advertised, *features}))
