"""The gateway of a scenario: created in a folder, run as a process, killed and restarted.

This module uses the command `fieldpost` as an operator does, and reads the process's memory from
`/proc`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import re
import secrets
import socket
import tomllib
from collections.abc import AsyncIterator, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, Final, Self

from firmware_sim.errors import SimulationFailed
from firmware_sim.scenarios import gateway_command

DOMAIN: Final = "gw.example"
HOST: Final = "127.0.0.1"

READY_S: Final = 30.0
"""Maximum seconds for a start: enough for a slow card and a database to recover."""

STOP_S: Final = 30.0
"""Maximum seconds for a stop after SIGTERM; then the gateway is killed."""

_DOWN_S: Final = (0.1, 1.0)  # seconds that a killed gateway stays down
_AT_ONCE: Final = 4  # commands that provision devices at the same time
_SHOWN: Final = 5_000  # characters of its standard error that are shown if it does not start
_LOWEST: Final = 20_000  # the lowest port that is tried
_TRIES: Final = 200
_EPHEMERAL: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")

Option = str | int | float | bool | list[str]
"""The value of an option of the gateway's configuration."""

SHORT_RUN: Final[Mapping[str, Option]] = {
    "retry_after": 2.0,
    "retry_most": 10.0,
    "unauthenticated_per_address": 200,
}
"""Options for a short run with many devices, which connect at once from one address."""


class GatewayProcess:
    """A gateway in a folder, with the same port after each restart, so that devices reconnect."""

    def __init__(self, folder: Path, port: int, password: str) -> None:
        self.folder = folder
        self.port = port
        self.login: Final[dict[str, Any]] = {
            "password": password,
            "ca_file": folder / "pki" / "ca.pem",
            "host": HOST,
            "port": port,
        }
        """The arguments with which each device connects and logs in."""
        self.kills = 0
        """The number of times that `kill_often` killed the gateway."""
        self._process: asyncio.subprocess.Process | None = None
        self._log = folder.with_suffix(".log")

    @classmethod
    async def make(
        cls,
        folder: Path,
        names: Iterable[str],
        options: Mapping[str, Option],
        untrusted: Collection[str] = (),
    ) -> Self:
        """Create a gateway's folder, add an account for each name, and set configuration options.

        All accounts have the same random password. Raises SimulationFailed if a `fieldpost` command
        failed, or an option does not exist.
        """
        folder.parent.mkdir(parents=True, exist_ok=True)
        port, password = free_port(), secrets.token_urlsafe(12)
        listen = ("--listen", f"{HOST}:{port}")
        await _run("init", "--dir", folder, "--domain", DOMAIN, *listen)
        any_node = {"publish": ["#"]}  # in the access rule that `fieldpost init` writes
        _configure(folder / "fieldpost.toml", {"listen_tls": f"{HOST}:0", **any_node, **options})
        slots = asyncio.Semaphore(_AT_ONCE)

        async def add(name: str) -> None:
            words: list[str | Path] = ["device", "add", name, "--dir", folder, "--password-stdin"]
            if name in untrusted:
                words.append("--no-trust")
            async with slots:
                await _run(*words, stdin=password)

        async with asyncio.TaskGroup() as group:
            for name in names:
                group.create_task(add(name))
        return cls(folder, port, password)

    @classmethod
    @contextlib.asynccontextmanager
    async def running(
        cls,
        folder: Path,
        names: Collection[str],
        options: Mapping[str, Option],
        untrusted: Collection[str] = (),
    ) -> AsyncIterator[Self]:
        """Create a gateway (see `make`), start it, and stop it in the end."""
        gateway = await cls.make(folder, names, options, untrusted)
        try:
            await gateway.start()
            yield gateway
        finally:
            await gateway.stop()

    @property
    def limits(self) -> Mapping[str, float]:
        """The section `[limits]` of the gateway's configuration."""
        configuration = (self.folder / "fieldpost.toml").read_text("utf-8")
        return dict(tomllib.loads(configuration)["limits"])

    async def start(self) -> None:
        """Start the gateway, and wait until it is ready.

        Raises SimulationFailed if the gateway did not start within `READY_S`.
        """
        argv = (gateway_command.program(), "run", "--dir", str(self.folder))
        pipe, null = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *argv, stdin=null, stdout=pipe, stderr=log
            )
        assert self._process.stdout is not None  # noqa: S101 - it is a pipe
        line = b""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(READY_S):
                line = await self._process.stdout.readline()
        if not line.startswith(b"ready"):
            await self.kill()
            raise SimulationFailed(f"the gateway did not start: {self.complaints()[-_SHOWN:]}")

    async def kill(self) -> None:
        """Stop the gateway abruptly with SIGKILL, and wait until the process has ended."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()

    async def stop(self) -> int:
        """Stop the gateway with SIGTERM; if it does not stop within `STOP_S`, kill it.

        Returns the exit status; negative for a signal, 0 if the gateway was not running.
        """
        if self._process is None or not self.is_running:
            return 0
        with contextlib.suppress(ProcessLookupError):
            self._process.terminate()
        try:
            async with asyncio.timeout(STOP_S):
                return await self._process.wait()
        except TimeoutError:
            await self.kill()
            return -9

    async def kill_often(self, kills: int, seconds: float, seed: int) -> None:
        """Kill and restart the gateway `kills` times, at random moments within `seconds` seconds.

        Raises SimulationFailed if the gateway did not start again.
        """
        chance = random.Random(f"kills/{seed}")  # noqa: S311 - repeatable
        step = seconds / max(kills, 1)
        for _ in range(kills):
            before = chance.uniform(0.1, 0.9) * step
            await asyncio.sleep(before)
            await self.kill()
            await asyncio.sleep(chance.uniform(*_DOWN_S))
            await self.start()
            self.kills += 1
            await asyncio.sleep(max(step - before - _DOWN_S[1], 0.0))

    @property
    def is_running(self) -> bool:
        """Return whether the gateway is running."""
        return self._process is not None and self._process.returncode is None

    def complaints(self) -> str:
        """Return what the gateway has written to standard error."""
        return self._log.read_text("utf-8", "replace")

    def memory(self, name: str) -> int:
        """Return the resident memory in bytes, `VmRSS` or its peak `VmHWM`; 0 if not running."""
        if self._process is None or not self.is_running:
            return 0
        try:
            text = Path(f"/proc/{self._process.pid}/status").read_text("ascii")
        except OSError:
            return 0
        found = re.search(rf"^{name}:\s+(\d+) kB", text, re.MULTILINE)
        return int(found[1]) * 1024 if found else 0


def free_port() -> int:
    """Return a free TCP port below the range of ephemeral ports.

    So no outgoing connection can take the port while the gateway is down. Raises SimulationFailed
    if no free port was found.
    """
    first = int(_EPHEMERAL.read_text("ascii").split()[0]) if _EPHEMERAL.exists() else 32_768
    for _ in range(_TRIES):
        port = random.randrange(_LOWEST, max(first, _LOWEST + 1_000))  # noqa: S311 - no secret
        with socket.socket() as tried, contextlib.suppress(OSError):
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            tried.bind((HOST, port))
            return port
    raise SimulationFailed("no free port was found")


async def _run(*words: str | Path, stdin: str = "") -> None:
    await asyncio.to_thread(gateway_command.run, *words, stdin=stdin)


def _configure(path: Path, options: Mapping[str, Option]) -> None:
    left = dict(options)
    lines = path.read_text("utf-8").splitlines()
    for number, line in enumerate(lines):
        name, equals, _value = line.partition(" = ")
        if equals and name in left:
            lines[number] = f"{name} = {json.dumps(left.pop(name))}"
    if left:
        raise SimulationFailed(f"unknown options of the gateway's configuration: {', '.join(left)}")
    path.write_text("\n".join(lines) + "\n", "utf-8")
