"""Puts the status page together."""

from __future__ import annotations

import socket

from edge.engine.database import Transaction
from edge.web.hosts import Hosts
from edge.web.server import Server
from edge.web.site import Site
from edge.web.status_snapshot import Looker, Sources


def made(sources: Sources) -> tuple[Server, Looker]:
    """Return the server, to be started, and what watches for it; events are noted from now on."""
    store, looker = sources.store, Looker(sources)
    before = store.before_commit

    def at_end(tx: Transaction) -> None:
        looker.note(tx)  # first: who tells people takes them
        before(tx)

    store.before_commit = at_end
    hosts = Hosts(sources.settings.web.names, socket.gethostname())
    return Server(Site(looker, store).answer, hosts.serves), looker
