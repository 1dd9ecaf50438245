"""Entity time (XEP-0202): the gateway's wall clock. It keeps UTC, and says so."""

from __future__ import annotations

from edge.engine.access import Sender
from edge.engine.database import Transaction
from edge.engine.hooks import Context, Hooks, Work
from edge.xmpp import serialize
from edge.xmpp.namespaces import TIME, clark
from edge.xmpp.stanza import Stanza


def time(_context: Context, stanza: Stanza) -> Work:
    """Answer with the moment at which the answer is made."""

    def work(tx: Transaction, sender: Sender) -> bytes:
        utc = serialize.escape(serialize.timestamp(tx.now.wall))
        content = serialize.tag("tzo", content=b"+00:00") + serialize.tag("utc", content=utc)
        payload = serialize.tag("time", content=content, xmlns=TIME)
        attrs = stanza.attrs
        return serialize.iq_result(attrs["id"], sender.full, attrs.get("to"), payload)

    return work


def register(hooks: Hooks) -> None:
    """Register with the engine."""
    hooks.server_iq("get", clark(TIME, "time"), time)
    hooks.advertise(TIME)
