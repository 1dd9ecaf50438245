"""Handle presence stanzas: broadcast, directed presence, probes and subscriptions.

Presence to the gateway itself or to a node is ignored, except subscription requests. Source: RFC
6121, sections 3 and 4; XEP-0254, "Implementation Notes".
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Final, TypeAlias

from edge import jid
from edge.engine.dispatch import addresses
from edge.engine.dispatch.addresses import AddressKind
from edge.engine.dispatch.hooks import Context, Hooks, Work
from edge.engine.log import refusals
from edge.engine.rules.access import Sender
from edge.engine.sessions.sessions import SessionRow
from edge.engine.store.database import Transaction
from edge.errors import ServiceError
from edge.features.discovery import service as discovery
from edge.features.presence.rules import presence as rules
from edge.features.presence.rules.subscriptions import SubscriptionType
from edge.features.presence.service import presence as service
from edge.features.presence.service import subscriptions
from edge.features.presence.service.errors import PresenceError, Reason
from edge.features.presence.service.messages import (
    SessionPresence,
    SubscriptionStanza,
    UnavailablePresence,
)
from edge.features.presence.service.presence import AvailablePresence
from edge.jid import Jid
from edge.routing.xmpp import XmppHooks, answers
from edge.xmpp import PROTOCOL, capabilities, serialize
from edge.xmpp.errors import StanzaError
from edge.xmpp.namespaces import CLIENT, PRE_APPROVAL, clark
from edge.xmpp.stanza import Stanza, stamped, stamper

_Act: TypeAlias = Callable[[Transaction, Sender], None]

_PRIORITY: Final = clark(CLIENT, "priority")
_SUBSCRIPTIONS: Final = {kind.value: kind for kind in SubscriptionType}

_SERVICE_EVENTS: Final = {
    None: service.PUBSUB_AVAILABLE,
    "unavailable": service.PUBSUB_UNAVAILABLE,
}

_CONDITIONS: Final = {
    Reason.OWN_SUBSCRIPTION: "not-allowed",
    Reason.OWN_CONTACT: "not-allowed",
    Reason.NOT_ALLOWED: "forbidden",
    Reason.NOT_LISTED: "item-not-found",
    Reason.ITEM_TOO_LARGE: "not-acceptable",
    Reason.ROSTER_FULL: "resource-constraint",
    Reason.DISK_FULL: "resource-constraint",
    Reason.TOO_MANY_DIRECTED: "resource-constraint",
}


def handle(context: Context, stanza: Stanza) -> Work:
    """Handle a presence stanza; answer with a presence of type `error` if it is refused."""
    limit = context.limits.presence_bytes
    if len(stanza.raw) > limit:
        return _too_large(context, stanza, limit)
    try:
        act = _interpret(context, stanza)
    except (ServiceError, StanzaError) as error:
        refused = answers.stanza_error(context, error)
        return lambda _tx, sender: _refuse(stanza, sender, refused)

    def work(tx: Transaction, sender: Sender) -> bytes:
        try:
            act(tx, sender)
        except ServiceError as error:
            return _refuse(stanza, sender, answers.stanza_error(context, error))
        return b""

    return work


def _refuse(stanza: Stanza, sender: Sender, error: StanzaError) -> bytes:
    if stanza.attrs.get("type") == "error":
        return b""
    to, id = stanza.attrs.get("to"), stanza.attrs.get("id")
    return serialize.presence("error", to, sender.full, serialize.stanza_error(error), id)


def _too_large(context: Context, stanza: Stanza, limit: int) -> Work:
    error = StanzaError("not-acceptable", f"a presence must not exceed {limit} bytes")

    def work(tx: Transaction, sender: Sender) -> bytes:
        if stanza.attrs.get("type") != "error":
            refusals.log(context, tx, sender, "presence_bytes", limit)
        return _refuse(stanza, sender, error)

    return work


def _interpret(context: Context, stanza: Stanza) -> _Act:
    """Return what a presence requests; raise `StanzaError` if that is impossible."""
    type_, to = stanza.attrs.get("type"), stanza.attrs.get("to")
    if to is None:
        return _broadcast(context, stanza, type_)
    kind = addresses.classify(context.domain, to, "")
    if kind is AddressKind.SERVICE and type_ in _SERVICE_EVENTS:
        event = _SERVICE_EVENTS[type_]
        return lambda tx, sender: context.hooks.trigger(event, context, tx, sender)
    if kind in addresses.SERVICES and type_ != SubscriptionType.SUBSCRIBE.value:
        return lambda _tx, _sender: None
    if kind in (AddressKind.SERVICE, AddressKind.NODE):
        raise StanzaError("service-unavailable", "this address accepts no presence subscriptions")
    raw, target = stanza.with_stream_language, jid.parse(to)
    if type_ in _SUBSCRIPTIONS:
        return _subscription(context, raw, _SUBSCRIPTIONS[type_], target)

    acts: dict[str | None, _Act] = {
        None: lambda tx, sender: service.direct_available(context, tx, sender, target, raw),
        "unavailable": lambda tx, sender: service.direct_unavailable(tx, sender, target, raw),
        "probe": lambda tx, sender: service.probe(context, tx, sender, target),
        "error": lambda tx, sender: service.relay_error(context, tx, sender, target, raw),
    }
    if type_ not in acts:
        raise StanzaError("bad-request", "the type of the presence is unknown")
    return acts[type_]


def _subscription(context: Context, raw: bytes, kind: SubscriptionType, target: Jid) -> _Act:
    def act(tx: Transaction, sender: Sender) -> None:
        stanza = stamped(raw, sender.bare, target.bare)
        subscriptions.send(context, tx, sender, kind, target, stanza)

    return act


def _broadcast(context: Context, stanza: Stanza, type_: str | None) -> _Act:
    raw = stanza.with_stream_language
    if type_ == "unavailable":
        return lambda tx, sender: service.set_unavailable(context, tx, sender, raw)
    if type_ is not None:
        raise StanzaError("bad-request", "a presence of this type needs an address")
    priority, announced = _priority(stanza), capabilities.announced_by(stanza)

    def act(tx: Transaction, sender: Sender) -> None:
        shown = AvailablePresence(stamped(raw, sender.full), priority, announced)
        service.set_available(context, tx, sender, shown)

    return act


def _priority(stanza: Stanza) -> int:
    """Return the priority of a presence; the default is 0 (section 4.7.2.3)."""
    found = [child for child in stanza.children if child.name == _PRIORITY]
    if len(found) > 1 or any(child.children for child in found):
        raise StanzaError("bad-request", "a presence must have at most one priority, an integer")
    number = rules.priority(found[0].tree().text if found else None)
    if number is None:
        text = f"a priority must be an integer from {rules.LOWEST} to {rules.HIGHEST}"
        raise StanzaError("bad-request", text)
    return number


_stamper: Final = lru_cache(maxsize=1)(stamper)  # a broadcast has many recipients


def _encode_session_presence(_context: Context, shown: SessionPresence) -> bytes:
    return _stamper(shown.presence, shown.sender)(shown.to)


def _encode_unavailable(_context: Context, presence: UnavailablePresence) -> bytes:
    return serialize.presence("unavailable", presence.sender, presence.to)


def _encode_subscription(_context: Context, stanza: SubscriptionStanza) -> bytes:
    return stanza.stanza or serialize.presence(stanza.type.value, stanza.sender, stanza.to)


def _read_announced(_context: Context, tx: Transaction, session: SessionRow) -> None:
    stanza = service.find_shown(tx, session.generation)
    discovery.set_announced(tx, session, capabilities.announced_in(stanza))


def _stanza_error(error: PresenceError) -> StanzaError:
    return StanzaError(_CONDITIONS[error.reason], error.text or error.reason.value)


def _pre_approval(_context: Context) -> bytes:
    """Return the stream feature of pre-approved subscriptions (section 3.4.1)."""
    return serialize.tag("sub", xmlns=PRE_APPROVAL)


def register_for_accounts(hooks: Hooks) -> None:
    """Register the hooks of this module with the engine."""
    xmpp = hooks.of(XmppHooks)
    xmpp.add(xmpp.stanza_handlers, "presence", handle)
    hooks.encode(PROTOCOL, SessionPresence, _encode_session_presence)
    hooks.encode(PROTOCOL, UnavailablePresence, _encode_unavailable)
    hooks.encode(PROTOCOL, SubscriptionStanza, _encode_subscription)
    hooks.error_mapping(PROTOCOL, PresenceError, _stanza_error)
    hooks.on(discovery.CAPS_NEEDED, _read_announced)
    xmpp.stream_features.append(_pre_approval)
