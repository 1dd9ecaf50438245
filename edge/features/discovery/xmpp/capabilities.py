"""Query sessions for their features and read the capabilities that they announce (XEP-0115)."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from edge.engine.dispatch import addresses
from edge.engine.dispatch.addresses import AddressKind
from edge.engine.dispatch.hooks import Context, Hooks, Work
from edge.engine.rules.access import Sender
from edge.engine.store.database import Transaction
from edge.features.discovery import service
from edge.features.discovery.service import CapsQuery, InfoQuery
from edge.jid import AddressError
from edge.routing.xmpp import XmppHooks, iq_ids
from edge.xmpp import PROTOCOL, disco, serialize
from edge.xmpp import capabilities as caps
from edge.xmpp.capabilities import Caps
from edge.xmpp.namespaces import CLIENT, DISCO_INFO, QOS_ALL, clark
from edge.xmpp.stanza import Stanza

_ID_KIND: Final = "i"

_QUERY: Final = clark(DISCO_INFO, "query")
_ERROR: Final = clark(CLIENT, "error")

_FINAL_TYPES: Final = frozenset({"cancel", "auth", "modify"})
"""Types of errors after which repeating the query is useless (RFC 6120, section 8.3.2)."""


def _encode_query(context: Context, query: InfoQuery) -> bytes:
    id = iq_ids.make(query.epoch, _ID_KIND, query.number)
    payload = disco.query(DISCO_INFO, b"", query.node)
    return serialize.iq_get(id, query.to, context.domain, payload)


def handle_answer(context: Context, stanza: Stanza) -> Work | bytes:
    """Handle a session's answer to a query; relay a result or error that is for another session."""
    id = iq_ids.parse(stanza.attrs.get("id", ""))
    if id is None or not _is_to_gateway(context, stanza):
        return context.hooks.of(XmppHooks).other_answer(context, stanza)

    def work(tx: Transaction, sender: Sender) -> bytes:
        query = service.find_query(tx, sender, id.epoch, id.row)
        if query is None:
            return b""
        if stanza.attrs["type"] == "error":
            if _is_final(stanza):
                service.handle_refusal(context, tx, sender, query)
        else:
            qos, verified_qos = _read_features(stanza, query)
            service.handle_answer(context, tx, sender, query, qos, verified_qos)
        return b""

    return work


def _is_to_gateway(context: Context, stanza: Stanza) -> bool:
    try:
        return addresses.classify(context.domain, stanza.attrs.get("to"), "") is AddressKind.GATEWAY
    except AddressError:
        return False


def _is_final(stanza: Stanza) -> bool:
    error = next((child for child in stanza.children if child.name == _ERROR), None)
    return error is not None and error.attrs.get("type") in _FINAL_TYPES


def _read_features(stanza: Stanza, query: CapsQuery) -> tuple[str, str | None]:
    """Return the QoS namespace among the features in an answer, and the one that the hash proves.

    Each is `NO_QOS` if there is none; the second is `None` if the answer does not match the hash.
    """
    element = next((child for child in stanza.children if child.name == _QUERY), None)
    info = caps.Info((), None) if element is None else caps.read(element.tree())
    verified = None
    if query.hash and query.node and query.ver and info.text is not None:
        announced = Caps(query.hash, query.node, query.ver)
        if caps.verifies(info.text, announced):  # only the hashed text is proven
            verified = _first_qos(caps.parts(info.text))
    return _first_qos(info.features), verified


def _first_qos(features: Collection[str]) -> str:
    return next((name for name in QOS_ALL if name in features), service.NO_QOS)


def register_for_accounts(hooks: Hooks) -> None:
    """Register the hooks of this module with the engine."""
    xmpp = hooks.of(XmppHooks)
    hooks.encode(PROTOCOL, InfoQuery, _encode_query)
    xmpp.add(xmpp.iq_answers, _ID_KIND, handle_answer)
