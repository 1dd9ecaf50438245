"""Run the gateway of a folder with the toy beside the configured endpoints."""

from __future__ import annotations

import asyncio
import sys
from functools import partial
from pathlib import Path

from edge.app import App
from edge.config import load
from edge.journal import Journal
from edge.routing.xmpp.router import Router
from edge.server.endpoints import Endpoint
from edge.server.server_context import ServerContext
from tests.toy.listener import ToyListener


class ToyApp(App):
    def create_endpoints(self, server: ServerContext, router: Router) -> list[Endpoint]:
        return [*super().create_endpoints(server, router), ToyListener(server)]


def _main(folder: Path) -> None:
    app = ToyApp(folder, load.load(folder), Journal())
    asyncio.run(app.serve(partial(print, flush=True)))


if __name__ == "__main__":
    _main(Path(sys.argv[1]))
