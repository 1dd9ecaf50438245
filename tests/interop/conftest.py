"""One gateway for all interop tests, and third-party clients that connect to it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from edge.ops.devices import devices
from tests.helpers import clients
from tests.helpers.clients import Client, Login
from tests.helpers.gateway import DOMAIN, PASSWORD, Gateway
from tests.helpers.processes import Process


class Site:
    """A running gateway, and programs that connect to it as devices.

    Each device is provisioned when it is first named, while the gateway runs.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._devices: set[str] = set()
        self._strophe: Sequence[str | Path] | None = None
        self.gateway = Gateway(folder / "gw", listen_tls="127.0.0.1:0", authenticate_time=600.0)
        self.process: Process = self.gateway.run()

    def login(self, device: str, mechanism: str, transport: str = "starttls") -> Login:
        """Return the settings with which a device connects; tests change them with `_replace`."""
        external = mechanism == "EXTERNAL"
        if device not in self._devices:
            password = None if external else PASSWORD
            devices.add(self.gateway.folder, device, password, trusted=True, certificate=external)
            self._devices.add(device)
        host, port = self.process.host_port("xmpps" if transport == "direct" else "xmpp")
        jid = f"{device}@{DOMAIN}/fw"
        login = Login(host, port, jid, self.gateway.ca, transport, mechanism, PASSWORD)
        if external:
            place = self.gateway.folder / "devices" / device
            return login._replace(password="", extra=(place / "cert.pem", place / "key.pem"))
        return login

    def start(self, program: str, login: Login) -> Client:
        """Start a program; use the result as a context manager."""
        if program == "strophe":
            self._strophe = self._strophe or clients.strophe(self._folder)
            return clients.start(self._strophe, login)
        return clients.start(getattr(clients, program)(), login)

    def events(self, login: Login) -> list[dict[str, Any]]:
        """Return the logs of an account, oldest first: some clients choose their resource."""
        logs = self.gateway.events("logs")
        return [event for event in logs if event["source"].partition("/")[0] == login.bare]


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    new_site = Site(tmp_path_factory.mktemp("interop"))
    with new_site.process:
        yield new_site
        assert new_site.process.terminate() == 0
