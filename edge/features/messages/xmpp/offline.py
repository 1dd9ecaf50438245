"""Advertise the offline store, and send stored messages to available sessions (XEP-0160)."""

from __future__ import annotations

from typing import Final

from edge.engine.hooks import Hooks
from edge.features.messages import service, store
from edge.xmpp.namespaces import OFFLINE

NEEDS_ACCOUNTS: Final = True


def register(hooks: Hooks) -> None:
    """Register the hooks of this module with the engine."""
    if hooks.xmpp.offline == "store":
        hooks.advertise(OFFLINE)
    for kind in (store.RECEIPT, store.SESSION_RECEIPT):
        hooks.add(hooks.on_acknowledged, kind, service.acknowledge)
        hooks.add(hooks.on_unacknowledged, kind, service.return_unacknowledged)
    hooks.on_available.append(service.flush)
