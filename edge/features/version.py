"""Software version (XEP-0092): what runs here, and the kind of system that it runs on."""

from __future__ import annotations

import platform
from typing import Final

from edge import __version__
from edge.engine.access import Sender
from edge.engine.database import Transaction
from edge.engine.hooks import Context, Hooks, Work
from edge.xmpp import serialize
from edge.xmpp.namespaces import VERSION, clark
from edge.xmpp.stanza import Stanza

TOLD: Final = {"name": "Fieldpost", "version": __version__, "os": platform.system()}
"""The system's name and no more: its version would tell which of its faults to try."""


def version(_context: Context, stanza: Stanza) -> Work:
    """Answer with name, version and system."""
    content = b"".join(
        serialize.tag(name, content=serialize.escape(text)) for name, text in TOLD.items()
    )
    payload = serialize.tag("query", content=content, xmlns=VERSION)

    def work(_tx: Transaction, sender: Sender) -> bytes:
        attrs = stanza.attrs
        return serialize.iq_result(attrs["id"], sender.full, attrs.get("to"), payload)

    return work


def register(hooks: Hooks) -> None:
    """Register with the engine."""
    hooks.server_iq("get", clark(VERSION, "query"), version)
    hooks.advertise(VERSION)
