"""Answer service discovery (XEP-0030) and advertise entity capabilities (XEP-0115).

The gateway answers on behalf of an account, because it takes the account's messages into custody.
It answers the account's own sessions and those that may send to the account. For others the account
seems not to exist.
"""

from __future__ import annotations

from typing import Final

from edge import jid
from edge.engine.dispatch import addresses
from edge.engine.dispatch.hooks import Context, Hooks, Work
from edge.engine.rules import access
from edge.engine.rules.access import Sender
from edge.engine.store.database import Transaction
from edge.features.accounts import service as accounts
from edge.routing.xmpp import XmppHooks, answers
from edge.xmpp import disco, serialize
from edge.xmpp.disco import COMPONENT, NODE, SERVER
from edge.xmpp.errors import StanzaError
from edge.xmpp.namespaces import CAPS, DISCO_INFO, DISCO_ITEMS, PING, QOS_ALL, clark
from edge.xmpp.stanza import Stanza

_ACCOUNT: Final = {"category": "account", "type": "registered"}
_ACCOUNT_FEATURES: Final = (DISCO_INFO, DISCO_ITEMS, *QOS_ALL)
_OWN_ACCOUNT_FEATURES: Final = (*_ACCOUNT_FEATURES, PING)


def server_info(context: Context, stanza: Stanza) -> Work:
    """Answer disco#info with the gateway's identity and features."""
    features, component = context.hooks.of(XmppHooks).advertised, not context.has_accounts
    node = stanza.children[0].attrs.get("node")
    ver = disco.verification_string(features, component=component)
    if node not in (None, f"{NODE}#{ver}"):
        raise StanzaError("item-not-found")
    content = disco.describe(COMPONENT if component else SERVER, features)
    return _answer(stanza, DISCO_INFO, content, node)


def server_items(context: Context, stanza: Stanza) -> Work:
    """Answer disco#items with the publish-subscribe service or, on a component, with no items."""
    _refuse_node(stanza)
    service = {"jid": addresses.pubsub_service(context.domain), "name": "Publish-Subscribe"}
    content = serialize.tag("item", service) if context.has_accounts else b""
    return _answer(stanza, DISCO_ITEMS, content)


def own_account_items(_context: Context, stanza: Stanza) -> Work:
    """Answer disco#items on behalf of the sender's account, which has no items."""
    _refuse_node(stanza)
    return _answer(stanza, DISCO_ITEMS, b"")


def own_account_info(_context: Context, stanza: Stanza) -> Work:
    """Answer disco#info on behalf of the sender's account."""
    _refuse_node(stanza)
    return _answer(stanza, DISCO_INFO, disco.describe(_ACCOUNT, _OWN_ACCOUNT_FEATURES))


def account_query(context: Context, stanza: Stanza) -> Work:
    """Answer a service discovery query to another account, if the sender may reach the account."""
    query = stanza.children[0]
    namespace = query.name[1:].partition("}")[0]
    is_info = namespace == DISCO_INFO
    content = disco.describe(_ACCOUNT, _ACCOUNT_FEATURES) if is_info else b""
    payload = disco.query(namespace, content)
    account = jid.parse(stanza.attrs["to"]).local

    def work(tx: Transaction, sender: Sender) -> bytes:
        error = None
        relation = accounts.find_relation(tx, sender, account)
        if not access.may_reach(sender, relation, context.trust):
            error = StanzaError("service-unavailable")
        elif "node" in query.attrs:
            error = StanzaError("item-not-found")
        if error is not None:
            return answers.error(context, stanza, sender, error)
        return answers.result(stanza, sender, payload)

    return work


def _refuse_node(stanza: Stanza) -> None:
    if "node" in stanza.children[0].attrs:
        raise StanzaError("item-not-found")


def _answer(stanza: Stanza, namespace: str, content: bytes, node: str | None = None) -> Work:
    payload = disco.query(namespace, content, node)
    return lambda _tx, sender: answers.result(stanza, sender, payload)


def _stream_feature(context: Context) -> bytes:
    return disco.capabilities(
        context.hooks.of(XmppHooks).advertised, component=not context.has_accounts
    )


_INFO: Final = clark(DISCO_INFO, "query")
_ITEMS: Final = clark(DISCO_ITEMS, "query")


def register(hooks: Hooks) -> None:
    """Register the hooks of this module with the engine."""
    xmpp = hooks.of(XmppHooks)
    xmpp.add(xmpp.server_iqs, ("get", _INFO), server_info)
    xmpp.add(xmpp.server_iqs, ("get", _ITEMS), server_items)
    xmpp.add(xmpp.own_account_iqs, ("get", _INFO), own_account_info)
    xmpp.add(xmpp.own_account_iqs, ("get", _ITEMS), own_account_items)
    xmpp.add(xmpp.account_iqs, ("get", _INFO), account_query)
    xmpp.add(xmpp.account_iqs, ("get", _ITEMS), account_query)
    xmpp.advertise(CAPS, DISCO_INFO, DISCO_ITEMS)
    xmpp.stream_features.append(_stream_feature)
