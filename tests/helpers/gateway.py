"""A gateway for tests: its folder, devices, process and event log."""

from __future__ import annotations

import json
import os
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from click.testing import CliRunner

from edge.cli.commands import main
from edge.ops import setup
from edge.ops.devices import devices
from edge.ops.gateway import control
from edge.ops.gateway.control import FrontStatus
from tests.helpers.folder import set_access
from tests.helpers.processes import Process, start
from tests.helpers.xmpp import Client, closed_on_error

DOMAIN = "gw.example"
PASSWORD = "correct horse"

NO_RATE_LIMITS: Final = {
    "stanzas_per_second": 1_000_000,
    "stanzas_at_once": 1_000_000,
    "bytes_per_second": 1 << 30,
    "bytes_at_once": 1 << 30,
}
"""Options of a gateway without rate limits, for tests that send much in little time."""

CORE, FRONT, BOTH = "core", "front", "both"


def kills(fronts: int, count: int, chance: random.Random, *others: str) -> list[str]:
    """Return what is killed, one after the other: the core, which is all of a gateway without front
    processes, a front, both, or something else. The first are different."""
    kinds = [*others, CORE, FRONT, BOTH] if fronts else [*others, CORE]
    return (chance.sample(kinds, len(kinds)) + chance.choices(kinds, k=count))[:count]


PROCESSES: Final = "FIELDPOST_TEST_PROCESSES"
"""The environment variable with the number of front processes of each gateway, for tests that do
not choose it. All tests of what devices see must pass with none and with one."""


class Gateway:
    """A gateway's folder, and commands on it. It has no access rules unless a test sets them, so
    devices may use any node."""

    def __init__(self, folder: Path, *names: str, **options: object) -> None:
        self.folder = folder
        setup.init(folder, DOMAIN, "127.0.0.1:0")
        set_access(folder)
        processes = int(os.environ.get(PROCESSES, "0"))
        self.configure(**{"processes": processes, **options})
        for name in names:
            devices.add(folder, name, PASSWORD, trusted=True)

    @property
    def ca(self) -> Path:
        """The CA certificate with which clients verify the gateway."""
        return self.folder / "pki" / "ca.pem"

    def configure(self, **options: object) -> None:
        path = self.folder / "fieldpost.toml"
        lines = path.read_text("utf-8").splitlines()
        for number, line in enumerate(lines):
            name, equals, _value = line.partition(" = ")
            if equals and name in options:
                lines[number] = f"{name} = {json.dumps(options.pop(name))}"
        assert not options, f"no such options: {options}"
        path.write_text("\n".join(lines) + "\n", "utf-8")

    def configure_section(self, section: str, **options: object) -> None:
        """Set options of a section, whose names other sections may have, too."""
        path = self.folder / "fieldpost.toml"
        before, head, rest = path.read_text("utf-8").partition(f"[{section}]\n")
        for name, value in options.items():
            pattern = rf"^{name} = .*$"
            line = f"{name} = {json.dumps(value)}"
            rest, changed = re.subn(pattern, line, rest, count=1, flags=re.MULTILINE)
            assert changed, f"no such option: {section}.{name}"
        path.write_text(before + head + rest, "utf-8")

    def run(self) -> Process:
        """Start the gateway; use it as a context manager."""
        return start("fieldpost", "run", "--dir", self.folder)

    def fronts(self) -> list[FrontStatus]:
        """Return the front processes of the running gateway."""
        status = control.process_status(self.folder)
        assert status is not None
        return status.fronts

    def front_pids(self) -> list[int]:
        """Return the ids of the front processes that run."""
        return [front.pid for front in self.fronts() if front.pid is not None]

    def victim(self, process: Process, what: str, chance: random.Random) -> int:
        """Return what `os.kill` takes to kill a front, the core or all processes; the core if no
        front runs."""
        if what == FRONT:
            return chance.choice(self.front_pids() or [process.pid])
        return -process.pid if what == BOTH else process.pid

    def command(self, *words: str) -> str:
        """Run `fieldpost WORDS` on this folder and return its output; fail if it fails.

        It runs in this process, because starting one takes longer than the command.
        """
        result = CliRunner().invoke(
            main, [*words, "--dir", str(self.folder)], prog_name="fieldpost", catch_exceptions=False
        )
        assert result.exit_code == 0, result.output
        return result.stdout

    def events(self, lane: str | None = None) -> Iterator[dict[str, Any]]:
        """Return the event log as printed by `fieldpost events`."""
        for line in self.command("events", "--json").split("\n")[:-1]:
            event: dict[str, Any] = json.loads(line)
            if lane in (None, event["lane"]):
                yield event


def port_of(process: Process) -> int:
    return process.host_port("xmpp")[1]


async def log_in(at: int | Process, user: str, password: str = PASSWORD, from_: str = "") -> Client:
    """Connect to a port or process and log in without TLS, from address `from_` if it is set."""
    client = await Client.connect(at if isinstance(at, int) else port_of(at), from_=from_)
    async with closed_on_error(client):
        await client.element()
        assert await client.authenticate("SCRAM-SHA-256", user, password) == "success"
    return client


async def bind_session(
    at: int | Process, user: str, resource: str = "fw", from_: str = ""
) -> Client:
    """Connect to a port or process, log in without TLS, and bind."""
    client = await log_in(at, user, from_=from_)
    async with closed_on_error(client):
        await client.bind(resource)
    return client
