"""Answer pings (XEP-0199) to the gateway, its publish-subscribe service or the sender's account."""

from __future__ import annotations

from edge.engine.dispatch.hooks import Context, Hooks, Work
from edge.engine.rules.access import Sender
from edge.engine.store.database import Transaction
from edge.routing.xmpp import XmppHooks, answers
from edge.xmpp.namespaces import PING, clark
from edge.xmpp.stanza import Stanza


def ping(_context: Context, stanza: Stanza) -> Work:
    """Answer a ping after all earlier stanzas of the session have been handled."""

    def work(_tx: Transaction, sender: Sender) -> bytes:
        return answers.result(stanza, sender)

    return work


def register(hooks: Hooks) -> None:
    """Register the hooks of this module with the engine."""
    xmpp = hooks.of(XmppHooks)
    xmpp.add(xmpp.server_iqs, ("get", clark(PING, "ping")), ping)
    xmpp.add(xmpp.own_account_iqs, ("get", clark(PING, "ping")), ping)
    xmpp.add(xmpp.pubsub_iqs, ("get", clark(PING, "ping")), ping)
    xmpp.advertise(PING)
    xmpp.advertise_pubsub(PING)
