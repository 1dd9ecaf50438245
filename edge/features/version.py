"""Answer requests for the software version and the operating system (XEP-0092)."""

from __future__ import annotations

import os
from typing import Final

from edge import __version__
from edge.engine.dispatch.hooks import Context, Hooks, Work
from edge.engine.rules.access import Sender
from edge.engine.store.database import Transaction
from edge.routing.xmpp import XmppHooks, answers
from edge.xmpp import serialize
from edge.xmpp.namespaces import VERSION, clark
from edge.xmpp.stanza import Stanza

ELEMENTS: Final = {"name": "Fieldpost", "version": __version__, "os": os.uname().sysname}
"""The elements of the answer, without the system's version, which would help attackers."""


def version(_context: Context, stanza: Stanza) -> Work:
    """Answer with the name and version of Fieldpost and the name of the operating system."""
    content = b"".join(
        serialize.tag(name, content=serialize.escape(text)) for name, text in ELEMENTS.items()
    )
    payload = serialize.tag("query", content=content, xmlns=VERSION)

    def work(_tx: Transaction, sender: Sender) -> bytes:
        return answers.result(stanza, sender, payload)

    return work


def register(hooks: Hooks) -> None:
    """Register the hooks of this module with the engine."""
    xmpp = hooks.of(XmppHooks)
    xmpp.add(xmpp.server_iqs, ("get", clark(VERSION, "query")), version)
    xmpp.add(xmpp.pubsub_iqs, ("get", clark(VERSION, "query")), version)
    xmpp.advertise(VERSION)
    xmpp.advertise_pubsub(VERSION)
