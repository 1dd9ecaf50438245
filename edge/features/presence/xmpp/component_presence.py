"""Presence between a component gateway and users of its server (XEP-0114).

The gateway has no roster on the server. It lets trusted users see its presence, and subscribes to
their presence. It knows only the presence that sessions have sent since the link came up; it stores
no presence across restarts. When the link comes up, the server probes the gateway, and the gateway
probes the users that an operator added. Source: RFC 6121, sections 3 and 4.
"""

from __future__ import annotations

from typing import Final

from edge.engine.dispatch.hooks import Context, Work
from edge.engine.log import refusals
from edge.engine.rules import access
from edge.engine.rules.access import Sender
from edge.engine.sessions import sessions
from edge.engine.store.database import Transaction
from edge.features.accounts import service as accounts
from edge.features.presence.rules import presence as rules
from edge.routing.xmpp import XmppHooks
from edge.xmpp import disco, serialize
from edge.xmpp.namespaces import CLIENT, clark
from edge.xmpp.stanza import Stanza

_PRIORITY: Final = clark(CLIENT, "priority")

_ANSWERS: Final = {"subscribe": ("subscribed", "subscribe"), "unsubscribe": (), "probe": ()}
"""The types of presence that are answered, and what a trusted user is sent for each.

The gateway's own presence follows. `unsubscribe`, and a user who is not trusted, are answered with
`unsubscribed` only."""


def handle(context: Context, stanza: Stanza) -> Work | bytes:
    """Handle a presence to the gateway; ignore types that need no answer.

    Unavailable presence ends the session, which the caller does.
    """
    type_ = stanza.attrs.get("type", "")
    if type_ == "":
        return _set_available(context, stanza)
    types = _ANSWERS.get(type_)
    if types is None:
        return b""

    def work(tx: Transaction, sender: Sender) -> bytes:
        if type_ == "unsubscribe" or not _is_trusted(context, tx, sender, type_):
            return serialize.presence("unsubscribed", context.domain, sender.bare)
        content = disco.capabilities(context.hooks.of(XmppHooks).advertised, component=True)
        own = serialize.presence(None, context.domain, sender.bare, content)
        answers = [serialize.presence(each, context.domain, sender.bare) for each in types]
        return b"".join((*answers, own))

    return work


def _is_trusted(context: Context, tx: Transaction, sender: Sender, type_: str) -> bool:
    trusted = access.may_use_services(sender, context.trusted_domains)
    if not trusted and type_ == "subscribe":
        refusals.log(context, tx, sender, "untrusted")
    return trusted


def _set_available(context: Context, stanza: Stanza) -> Work:
    # the user's server has checked the priority, so an invalid one counts as 0
    def work(tx: Transaction, sender: Sender) -> bytes:
        if stanza.size <= context.limits.presence_bytes:
            priority = rules.priority(stanza.tree().findtext(_PRIORITY)) or 0
            accepts = rules.accepts_messages(priority)
            sessions.set_available(context, tx, sender, accepts=accepts, rank=priority)
        return b""

    return work


def probes(context: Context, tx: Transaction) -> list[bytes]:
    """Return presence probes to the users of the server that the operator added as accounts, at
    most `limits.sessions`."""
    users = [name for name in accounts.list_names(tx) if "@" in name][: context.limits.sessions]
    return [serialize.presence("probe", context.domain, bare) for bare in users]
