"""Run a Prosody for tests in its own folder on free loopback ports.

It has users with passwords, TLS with its own CA, a component for the gateway, and publish-subscribe
in which `pump1` may create nodes. A Prosody that is installed as a service is not touched.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import threading
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Self

from edge.ops.devices import devices
from tests.helpers.gateway import Gateway
from tests.helpers.pki import make_pki
from tests.helpers.xmpp import Client

HOST = "users.example"
"""The domain of the users."""

PUBSUB = f"pubsub.{HOST}"
"""The publish-subscribe service, in which `pump1` may create nodes."""

PASSWORD = "correct horse"
SECRET = "a secret between two"
PROGRAM = shutil.which("prosody")
START_S = 30.0
STOP_S = 15.0

_CONFIGURATION = """
run_as_root = {root}
daemonize = false
data_path = "{folder}/data"
plugin_paths = {{}}
use_libevent = false
modules_enabled = {{ "roster", "saslauth", "tls", "disco", "ping", "presence", "message", "iq",
    "offline", "smacks" }}
modules_disabled = {{ "s2s", "posix" }}
authentication = "internal_plain"
c2s_require_encryption = true
allow_unencrypted_plain_auth = false
interfaces = {{ "127.0.0.1" }}
c2s_ports = {{ {c2s} }}
s2s_ports = {{}}
http_ports = {{}}
https_ports = {{}}
component_ports = {{ {component} }}
component_interfaces = {{ "127.0.0.1" }}
log = {{ {{ levels = {{ min = "info" }}, to = "console" }} }}
VirtualHost "{host}"
    ssl = {{ key = "{folder}/server.key", certificate = "{folder}/server.pem" }}
Component "{domain}"
    component_secret = "{secret}"
Component "{pubsub}" "pubsub"
    admins = {{ "pump1@{host}" }}
"""


class ProsodyClient(Client):
    def open(self, domain: str = HOST, **_more: str) -> None:
        """Open a stream to the server instead of the gateway."""
        super().open(HOST)


class Prosody:
    """The folder and the process of a server; use `running` as a context manager."""

    def __init__(self, folder: Path, domain: str, *users: str) -> None:
        folder.mkdir(parents=True)
        self.folder = folder
        self.domain = domain
        self.c2s, self.component = _free_ports(2)
        make_pki(folder, HOST)
        self.ca = folder / "ca.pem"
        accounts = folder / "data" / HOST.replace(".", "%2e") / "accounts"
        accounts.mkdir(parents=True)
        for user in users:
            (accounts / f"{user}.dat").write_text(f'return {{ ["password"] = "{PASSWORD}"; }};\n')
        self.configuration = folder / "prosody.cfg.lua"
        self.configuration.write_text(
            _CONFIGURATION.format(
                root="true" if os.geteuid() == 0 else "false",
                folder=folder,
                c2s=self.c2s,
                component=self.component,
                host=HOST,
                pubsub=PUBSUB,
                domain=domain,
                secret=SECRET,
            )
        )
        self._popen: subprocess.Popen[str] | None = None
        self._lines: list[str] = []
        self._reader: threading.Thread | None = None
        self._changed = threading.Condition()

    @property
    def log(self) -> str:
        return "".join(self._lines)

    def start(self) -> Self:
        assert PROGRAM is not None
        self._lines = []
        self._popen = subprocess.Popen(
            [PROGRAM, "-F", "--config", str(self.configuration)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=self.folder,
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, args=(self._popen,), daemon=True)
        self._reader.start()
        for service in ("c2s", "component"):
            self.wait_for(f"Activated service '{service}' on")
        return self

    def wait_for(self, words: str) -> None:
        """Wait until the log since the last start contains a text."""
        with self._changed:
            found = self._changed.wait_for(lambda: words in self.log or self._ended(), START_S)
        if not found or words not in self.log:
            log = self.log
            self.stop()
            raise AssertionError(f"Prosody never logged {words!r}:\n{log}")

    def stop(self, number: signal.Signals = signal.SIGKILL) -> None:
        """Stop the server, at once by default; a second call does nothing."""
        popen, self._popen = self._popen, None
        if popen is None:
            return
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(popen.pid, number)
        popen.wait(STOP_S)
        assert self._reader is not None
        self._reader.join(STOP_S)
        assert popen.stdout is not None
        popen.stdout.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_exception: object) -> None:
        self.stop()

    async def log_in(self, user: str, resource: str = "fw") -> ProsodyClient:
        client = await ProsodyClient.connect(self.c2s)
        await client.start_tls(self.ca, HOST)
        await client.element()
        assert await client.authenticate("SCRAM-SHA-1", user, PASSWORD) == "success"
        await client.bind(resource)
        return client

    def _ended(self) -> bool:
        return self._popen is None or self._popen.poll() is not None

    def _read(self, popen: subprocess.Popen[str]) -> None:
        assert popen.stdout is not None
        for line in popen.stdout:
            with self._changed:
                self._lines.append(line)
                self._changed.notify_all()
        with self._changed:
            self._changed.notify_all()


def component_gateway(folder: Path, prosody: Prosody, *users: str, **options: object) -> Gateway:
    """Create a gateway that is a component of the server and trusts some users."""
    gateway = Gateway(
        folder,
        listen="",
        listen_tls="",
        component=f"127.0.0.1:{prosody.component}",
        component_secret="component.secret",
        **options,
    )
    secret = folder / "component.secret"
    secret.write_text(f"{SECRET}\n")
    secret.chmod(0o600)
    for user in users:
        devices.add(folder, f"{user}@{HOST}", None, trusted=True)
    return gateway


def _free_ports(count: int) -> list[int]:
    """Return free ports, because Prosody cannot report which port it took."""
    with ExitStack() as stack:
        found = [stack.enter_context(closing(socket.socket())) for _ in range(count)]
        for one in found:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in found]
