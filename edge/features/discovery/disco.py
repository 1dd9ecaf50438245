"""Service discovery (XEP-0030) and entity capabilities (XEP-0115): what is here, and what it does.

The gateway names every feature that is really there, and none that is not. An account tells who it
is to itself and to those who see its presence; to all others it is not there.
"""

from __future__ import annotations

from base64 import b64encode
from functools import lru_cache
from hashlib import sha1
from typing import Final

from edge.engine import access, addresses
from edge.engine.access import Sender
from edge.engine.database import Transaction
from edge.engine.hooks import Context, Hooks, Work
from edge.features.accounts.store import relations
from edge.xmpp import jid, replies, serialize
from edge.xmpp.errors import StanzaError
from edge.xmpp.namespaces import CAPS, DISCO_INFO, DISCO_ITEMS, PING, clark
from edge.xmpp.stanza import Stanza

NODE: Final = "urn:x-fieldpost"
"""What names this software in entity capabilities (XEP-0115, section 4)."""

SERVER: Final = {"category": "server", "type": "im", "name": "Fieldpost"}
COMPONENT: Final = {"category": "component", "type": "generic", "name": "Fieldpost"}
ACCOUNT: Final = {"category": "account", "type": "registered"}

OF_ACCOUNT: Final = (DISCO_INFO, DISCO_ITEMS, PING)
"""What the gateway does on behalf of an account, beside what needs no discovery."""


@lru_cache(maxsize=8)
def version(features: tuple[str, ...], *, component: bool = False) -> str:
    """Make the verification string of the gateway (XEP-0115, section 5.1).

    `features` are those that it advertises; a `component` of another server is no server.
    """
    own = COMPONENT if component else SERVER
    identity = f"{own['category']}/{own['type']}//{own['name']}<"
    text = identity + "".join(f"{feature}<" for feature in sorted(features))
    return b64encode(sha1(text.encode(), usedforsecurity=False).digest()).decode()


def capabilities(context: Context) -> bytes:
    """Tell the gateway's capabilities, among the features of a stream (XEP-0115, section 6.3) or in
    the presence of a component."""
    ver = version(context.hooks.advertised, component=not context.has_accounts)
    attrs = {"hash": "sha-1", "node": NODE, "ver": ver}
    return serialize.tag("c", attrs, xmlns=CAPS)


def info(context: Context, stanza: Stanza) -> Work:
    """Answer disco#info with the gateway's identity and features."""
    node = stanza.children[0].attrs.get("node")
    ver = version(context.hooks.advertised, component=not context.has_accounts)
    if node not in (None, f"{NODE}#{ver}"):
        raise StanzaError("item-not-found")
    own = SERVER if context.has_accounts else COMPONENT
    return answer(stanza, DISCO_INFO, described(own, context.hooks.advertised), node)


def items(context: Context, stanza: Stanza) -> Work:
    """Answer disco#items: the publish-subscribe service stands below the gateway."""
    _check_node(stanza)
    service = {"jid": addresses.pubsub_service(context.domain), "name": "Publish-Subscribe"}
    content = serialize.tag("item", service) if context.has_accounts else b""
    return answer(stanza, DISCO_ITEMS, content)


def account_items(_context: Context, stanza: Stanza) -> Work:
    """Answer disco#items on behalf of an account: nothing stands below it."""
    _check_node(stanza)
    return answer(stanza, DISCO_ITEMS, b"")


def account_info(_context: Context, stanza: Stanza) -> Work:
    """Answer disco#info on behalf of an account."""
    _check_node(stanza)
    return answer(stanza, DISCO_INFO, described(ACCOUNT, OF_ACCOUNT))


def another(_context: Context, stanza: Stanza) -> Work:
    """Answer a query for the account of another, if the sender may know of it."""
    query = stanza.children[0]
    namespace = query.name[1:].partition("}")[0]
    content = described(ACCOUNT, OF_ACCOUNT) if namespace == DISCO_INFO else b""
    answered = answer(stanza, namespace, content)
    account = jid.parse(stanza.attrs["to"]).local

    def work(tx: Transaction, sender: Sender) -> bytes:
        error = None
        if not access.may_discover(sender, relations.find_relation(tx, sender, account)):
            error = StanzaError("service-unavailable")
        elif "node" in query.attrs:
            error = StanzaError("item-not-found")
        if error is None:
            return answered(tx, sender)
        return replies.iq_error(stanza, error, to=sender.full, from_=stanza.attrs.get("to"))

    return work


def _check_node(stanza: Stanza) -> None:
    if "node" in stanza.children[0].attrs:
        raise StanzaError("item-not-found")


def described(identity: dict[str, str], features: tuple[str, ...]) -> bytes:
    """Tell what something is, and what it does."""
    listed = b"".join(serialize.tag("feature", {"var": name}) for name in features)
    return serialize.tag("identity", identity) + listed


def answer(stanza: Stanza, namespace: str, content: bytes, node: str | None = None) -> Work:
    """Answer a query of service discovery with what everybody may know."""
    payload = serialize.tag("query", {"node": node}, content, xmlns=namespace)

    def work(_tx: Transaction, sender: Sender) -> bytes:
        attrs = stanza.attrs
        return serialize.iq_result(attrs["id"], sender.full, attrs.get("to"), payload)

    return work


_INFO: Final = ("get", clark(DISCO_INFO, "query"))
_ITEMS: Final = ("get", clark(DISCO_ITEMS, "query"))


def register(hooks: Hooks) -> None:
    """Register with the engine."""
    hooks.server_iq(*_INFO, info)
    hooks.server_iq(*_ITEMS, items)
    hooks.own_account_iq(*_INFO, account_info)
    hooks.own_account_iq(*_ITEMS, account_items)
    hooks.account_iq(*_INFO, another)
    hooks.account_iq(*_ITEMS, another)
    hooks.advertise(CAPS, DISCO_INFO, DISCO_ITEMS)
    hooks.stream_feature(capabilities)
