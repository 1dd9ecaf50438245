"""Presence between the gateway and users of the server that it is a component of (XEP-0114).

The gateway has no roster there: whoever it trusts may see it, and is asked to be seen in turn. What
is known of a user's presence is what that user's session has sent since the link is up; a user of
whom nothing is known is not there. Nobody is stored across restarts: the server asks again
(probes), and those whom an operator added are probed when the link comes up.
Source: RFC 6121, sections 3 and 4; accounts of the gateway's own have `presence`.
"""

from __future__ import annotations

from typing import Final

from edge.engine import access, refusals
from edge.engine.access import Sender
from edge.engine.database import Transaction
from edge.engine.hooks import Context, Work
from edge.features.accounts.store import accounts
from edge.features.presence.rules import presence as rules
from edge.features.presence.store import presence
from edge.xmpp import disco, serialize
from edge.xmpp.namespaces import CLIENT, clark
from edge.xmpp.stanza import Stanza

_PRIORITY: Final = clark(CLIENT, "priority")


def work(context: Context, stanza: Stanza) -> Work | bytes:
    """Handle a presence for the gateway; what nobody waits for an answer to is passed over."""
    type_ = stanza.attrs.get("type", "")
    if type_ == "":
        return _shown(context, stanza)
    if type_ == "unavailable":
        return _hidden
    answer = _ANSWERED.get(type_)
    if answer is None:
        return b""

    def asked(tx: Transaction, sender: Sender) -> bytes:
        if type_ == "unsubscribe" or not _trusted(context, tx, sender, type_):
            return serialize.presence("unsubscribed", context.domain, sender.bare)
        for kind in answer:
            tx.send(sender.generation, serialize.presence(kind, context.domain, sender.bare))
        content = disco.capabilities(context.hooks.advertised, component=True)
        return serialize.presence(None, context.domain, sender.bare, content)

    return asked


_ANSWERED: Final = {"subscribe": ("subscribed", "subscribe"), "unsubscribe": (), "probe": ()}
"""What one who is trusted is answered before the gateway's own presence."""


def _trusted(context: Context, tx: Transaction, sender: Sender, type_: str) -> bool:
    trusted = access.may_use_services(sender, context.trusted_domains)
    if not trusted and type_ == "subscribe":
        refusals.log(context, tx, sender, "untrusted")
    return trusted


def _shown(context: Context, stanza: Stanza) -> Work:
    def unit(tx: Transaction, sender: Sender) -> bytes:
        if stanza.size <= context.limits.presence_bytes:
            presence.set_available(tx, sender.generation, stanza.raw, _priority(stanza))
        return b""

    return unit


def _hidden(tx: Transaction, sender: Sender) -> bytes:
    presence.set_unavailable(tx, sender.generation)
    return b""


def _priority(stanza: Stanza) -> int:
    """Read a presence's priority; its server has judged it, so what is none counts as 0."""
    return rules.priority(stanza.tree().findtext(_PRIORITY)) or 0


def probes(context: Context, tx: Transaction) -> list[bytes]:
    """Ask after all whom an operator added, as many as sessions may be."""
    known = [name for name in accounts.list_names(tx) if "@" in name][: context.limits.sessions]
    return [serialize.presence("probe", context.domain, bare) for bare in known]
