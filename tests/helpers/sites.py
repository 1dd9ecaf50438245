"""One site in several variants: the gateway as a server, and as a component of Prosody.

A scenario runs unchanged on both.
"""

from __future__ import annotations

import sys
from collections import Counter
from itertools import islice
from pathlib import Path
from typing import Any, Final

from edge.ops.devices import devices
from tests.helpers.gateway import DOMAIN, PASSWORD, Gateway, port_of
from tests.helpers.processes import Process
from tests.helpers.prosody import HOST, Prosody, component_gateway
from tests.helpers.xmpp import Client, log_in

TRUSTED: Final = ("pump1", "pump2", "pump3", "pump4")
UNTRUSTED: Final = "guest"

SMALL: Final = {"held_messages_per_source": 4, "segment_age": 1}
"""Limits low enough for a scenario to reach them."""


class Site:
    """A gateway that can be started and killed, and users that can log in."""

    gateway: Gateway
    domain: str
    """The domain of the users."""

    def __init__(self) -> None:
        self._process: Process | None = None
        self._skipped: Counter[str] = Counter()

    def skip_earlier_events(self) -> None:
        """Exclude the events so far from those that `events` returns."""
        self._skipped = Counter(event["lane"] for event in self.gateway.events())

    def start(self) -> None:
        self._process = self.gateway.run()

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill9()
        self._process.close()

    def close(self) -> None:
        """Stop the gateway; fail if it does not stop cleanly."""
        assert self._process is not None
        try:
            assert self._process.terminate() == 0
        finally:
            self._process.close()

    @property
    def port(self) -> int:
        assert self._process is not None
        return port_of(self._process)

    @property
    def ca(self) -> Path:
        return self.gateway.ca

    async def log_in(self, user: str, resource: str = "fw") -> Client:
        return await log_in(self.port, self.ca, user, PASSWORD, resource)

    def events(self, lane: str, user: str = "") -> list[dict[str, Any]]:
        """Return the events of a lane, oldest first; only one user's if named."""
        source = f"{user}@{self.domain}"
        return [
            event
            for event in islice(self.gateway.events(lane), self._skipped[lane], None)
            if not user or (event["source"] or "").partition("/")[0] == source
        ]

    def simulator(self) -> list[str]:
        """Return the arguments for a run of simulated devices."""
        program = str(Path(sys.executable).with_name("fieldpost-sim"))
        words = ["--port", str(self.port), "--domain", self.domain, "--ca", str(self.ca)]
        return [program, "run", "count", *words, "--gateway-dir", str(self.gateway.folder)]


class ServerSite(Site):
    """The gateway is the server, with so many front processes."""

    def __init__(self, folder: Path, fronts: int = 0) -> None:
        super().__init__()
        self.domain = DOMAIN
        self.gateway = Gateway(folder / "gateway", *TRUSTED, processes=fronts, **SMALL)
        devices.add(self.gateway.folder, UNTRUSTED, PASSWORD, trusted=False)


class ComponentSite(Site):
    """The gateway is a component of a server that has the users."""

    def __init__(self, folder: Path, server: Prosody) -> None:
        super().__init__()
        self.domain = HOST
        self.server = server
        self.gateway = component_gateway(folder / "gateway", server, *TRUSTED, **SMALL)

    @property
    def port(self) -> int:
        return self.server.c2s

    @property
    def ca(self) -> Path:
        return self.server.ca

    async def log_in(self, user: str, resource: str = "fw") -> Client:
        return await self.server.log_in(user, resource)

    def simulator(self) -> list[str]:
        """Return the arguments for devices that are users of the server."""
        return [*super().simulator(), "--gateway", DOMAIN]
