"""Answer requests for the gateway's time, in UTC (XEP-0202)."""

from __future__ import annotations

from edge.engine.dispatch.hooks import Context, Hooks, Work
from edge.engine.rules.access import Sender
from edge.engine.store.database import Transaction
from edge.routing.xmpp import XmppHooks, answers
from edge.xmpp import serialize
from edge.xmpp.namespaces import TIME, clark
from edge.xmpp.stanza import Stanza


def time(_context: Context, stanza: Stanza) -> Work:
    """Answer with the time of the current transaction, in UTC."""

    def work(tx: Transaction, sender: Sender) -> bytes:
        utc = serialize.escape(serialize.timestamp(tx.now.wall))
        content = serialize.tag("tzo", content=b"+00:00") + serialize.tag("utc", content=utc)
        payload = serialize.tag("time", content=content, xmlns=TIME)
        return answers.result(stanza, sender, payload)

    return work


def register(hooks: Hooks) -> None:
    """Register the hooks of this module with the engine."""
    xmpp = hooks.of(XmppHooks)
    xmpp.add(xmpp.server_iqs, ("get", clark(TIME, "time")), time)
    xmpp.advertise(TIME)
