"""Ping (XEP-0199): of the gateway, and of the own account, for which it answers."""

from __future__ import annotations

from typing import Final

from edge.engine.access import Sender
from edge.engine.database import Transaction
from edge.engine.hooks import Context, Hooks, Work
from edge.xmpp import serialize
from edge.xmpp.namespaces import PING, clark
from edge.xmpp.stanza import Stanza


def ping(_context: Context, stanza: Stanza) -> Work:
    """Answer; in line with the stanzas before it, so that a ping tells that they are done."""

    def work(_tx: Transaction, sender: Sender) -> bytes:
        return serialize.iq_result(stanza.attrs["id"], sender.full, stanza.attrs.get("to"))

    return work


_PING: Final = ("get", clark(PING, "ping"))


def register(hooks: Hooks) -> None:
    """Register with the engine."""
    hooks.server_iq(*_PING, ping)
    hooks.own_account_iq(*_PING, ping)
    hooks.advertise(PING)
