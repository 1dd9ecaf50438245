"""Find the handler for each stanza among those that features have registered."""

from __future__ import annotations

from typing import Final

from edge.engine.dispatch import addresses
from edge.engine.dispatch.addresses import AddressKind
from edge.engine.dispatch.hooks import Context, OffloadedWork, Work
from edge.errors import ServiceError
from edge.jid import AddressError
from edge.routing.xmpp import answers, iq_ids
from edge.routing.xmpp.hooks import Handler, XmppHooks
from edge.xmpp import replies
from edge.xmpp.errors import StanzaError
from edge.xmpp.stanza import Stanza

_KINDS: Final = {
    "{jabber:client}iq": "iq",
    "{jabber:client}message": "message",
    "{jabber:client}presence": "presence",
}


class Router:
    """Routes the stanzas of all sessions.

    Attributes:
        stanzas: the number of stanzas routed so far.
        stream_features: the features of an authenticated stream, as XML.
    """

    def __init__(self, context: Context) -> None:
        self.context = context
        self._domain = context.domain
        self._hooks = hooks = context.hooks.of(XmppHooks)
        self._stanza_handlers = hooks.stanza_handlers
        self._any_iqs = hooks.any_iqs
        self._iq_answers = hooks.iq_answers
        self.stanzas = 0
        self.stream_features = b"".join(make(context) for make in hooks.stream_features)

    def route(self, stanza: Stanza, full: str) -> Work | OffloadedWork | bytes:
        """Return the work for a stanza, or its answer; `full` is the full JID of its session."""
        self.stanzas += 1
        try:
            return self._find(stanza, full)(self.context, stanza)
        except (StanzaError, ServiceError) as error:
            return refusal(stanza, answers.stanza_error(self.context, error), full)

    def _find(self, stanza: Stanza, full: str) -> Handler:
        kind = _KINDS[stanza.name]
        if kind != "iq":
            return self._stanza_handlers.get(kind, _ignore)
        attrs, children = stanza.attrs, stanza.children
        type_ = attrs.get("type", "")
        if type_ in ("result", "error"):
            iq_id = iq_ids.parse(attrs.get("id", ""))
            own = None if iq_id is None else self._iq_answers.get(iq_id.kind)
            return own or self._stanza_handlers.get("answer", _ignore)
        if type_ not in ("get", "set") or "id" not in attrs or len(children) != 1:
            raise StanzaError("bad-request", "an iq must have an id, a type and one payload")
        key = (type_, children[0].name)
        to = attrs.get("to")
        handler = self._any_iqs.get(key)
        if handler is not None and (to is None or "/" not in to):  # not to a session
            return handler
        try:
            address = addresses.classify(self._domain, to, full.partition("/")[0])
        except AddressError:
            if handler is None:
                raise
            return handler
        if address is AddressKind.SESSION:
            handler = self._stanza_handlers.get("iq")
        elif handler is None:
            handler = self._handler_at(address, key, to)
        if handler is None:
            raise StanzaError("service-unavailable")
        return handler

    def _handler_at(
        self, address: AddressKind, key: tuple[str, str], to: str | None
    ) -> Handler | None:
        hooks = self._hooks
        if address is AddressKind.GATEWAY:
            return hooks.server_iqs.get(key)
        if address is AddressKind.SERVICE:
            return hooks.pubsub_iqs.get(key)
        if address is AddressKind.NODE:
            raise StanzaError("item-not-found", "send requests to the service, not to its nodes")
        if address is AddressKind.OWN:
            own = hooks.own_account_iqs.get(key)
            return own or (hooks.server_iqs.get(key) if to is None else None)
        return hooks.account_iqs.get(key)


def _ignore(_context: Context, _stanza: Stanza) -> bytes:
    return b""


def refusal(stanza: Stanza, error: StanzaError, full: str) -> bytes:
    """Return the error stanza that answers `stanza`, addressed to its sender `full` (a full JID).

    Return empty bytes for errors, results and presence, which are not answered.
    """
    if stanza.attrs.get("type") in ("error", "result"):
        return b""
    from_ = stanza.attrs.get("to")
    if stanza.name == "{jabber:client}message":
        return replies.message_error(stanza, error, to=full, from_=from_)
    if stanza.name == "{jabber:client}iq":
        return replies.iq_error(stanza, error, to=full, from_=from_)
    return b""
