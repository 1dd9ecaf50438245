"""Servers under load: a gateway as a process of its own, with accounts for devices."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks import native
from benchmarks.payload import DOMAIN
from benchmarks.peer import PASSWORD, Target, device
from edge import credentials
from edge.config import load
from edge.engine.store import database
from edge.features.accounts.store import accounts
from edge.ops import current_time, setup

READY_TIME: Final = 300.0
"""Seconds to the `ready` line, on a busy machine or under valgrind."""

STOP_TIME: Final = 60.0
"""Seconds to a clean stop."""


RAISED: Final = {
    "access.publish": '["#"]',
    "require_tls": "false",
    "stanzas_per_second": "1000000",
    "stanzas_at_once": "1000000",
    "bytes_per_second": "1073741824",
    "bytes_at_once": "1073741824",
    "sessions_per_address": "1000",
    "bytes_per_day": "0",
    "outbox_messages": "10000000",
    "database_bytes": "4294967296",
    "last_items": "10000",
    "unacknowledged_bytes": "16777216",
    "outbox_bytes": "1073741824",
    "outbox_messages_per_account": "10000000",
    "outbox_bytes_per_account": "1073741824",
    "outbox_messages_per_source": "10000000",
    "outbox_bytes_per_source": "1073741824",
}
"""Options that differ from the defaults: TLS is optional, a connection is read as fast as the
gateway can, all devices may share one address, commits are not batched to spare the card (the topic
`wear` measures that), a device that is away may have all messages of a measurement waiting, and a
subscriber gets all retained ones."""

MQTT: Final = {
    "mqtt.listen": '"127.0.0.1:0"',
    "mqtt.listen_tls": '"127.0.0.1:0"',
    "pubsub.auto_create": '["+/state"]',
}
"""Options of a gateway with MQTT beside XMPP, to whose topics all devices may publish."""


class Server(NamedTuple):
    """A running server."""

    pid: int
    address: Target


class ServerError(Exception):
    """A server did not start, or did not stop cleanly."""


def prepare(folder: Path, devices: int, **more: str) -> None:
    """Create the folder of a gateway that accepts its devices with and without TLS.

    `more` are options in TOML, in addition to `RAISED`: `name`, or `section.name` if several
    sections have the name.
    """
    setup.init(folder, DOMAIN, "127.0.0.1:0")
    path, options, section = folder / load.FILE_NAME, RAISED | more, ""
    lines = path.read_text("utf-8").splitlines()
    for at, line in enumerate(lines):
        if line.startswith("["):
            section = line.strip("[]")
        name = line.partition(" = ")[0]
        value = options.get(f"{section}.{name}", options.get(name))
        if value is not None:
            lines[at] = f"{name} = {value}"
    path.write_text("\n".join(lines) + "\n", "utf-8")
    keys = credentials.derive(PASSWORD)
    with (
        closing(database.connect(folder / database.FILE_NAME)) as connection,
        database.transaction(connection, current_time.now()) as tx,
    ):
        for number in range(devices):
            accounts.add(tx, device(number), keys, trusted=True)


class Started(NamedTuple):
    """A server's process that may not be ready, and its log."""

    process: subprocess.Popen[str]
    log: Path


@contextmanager
def gateway(folder: Path, *, cut: bool = False, protocol: str = "xmpp") -> Iterator[Server]:
    """Run the gateway of a folder by `fieldpost run`; with `cut`, kill it at the end.

    `protocol` is the name of the listener whose address is returned.
    """
    command = [sys.executable, "-m", "edge", "run", "--dir", str(folder)]
    wait = partial(ready_line, protocol=protocol)
    with running(command, folder / "server.log", cut=cut, wait=wait) as server:
        yield server
    check_effects(folder)


@contextmanager
def passed_on(server: Server, folder: Path) -> Iterator[Server]:
    """Run a process that passes bytes on to a server; yield the server at the address of that
    process, whose log is in `folder`."""
    command = [str(native.build(*native.PASS_BYTES)), str(server.address.port)]
    wait = partial(ready_line, protocol="bytes")
    with running(command, folder / "pass_bytes.log", wait=wait) as process:
        yield server._replace(address=process.address)


def check_effects(folder: Path) -> None:
    """Raise `ServerError` if the gateway of a folder could not use messages that it answered.

    The answers of levels 1 and 2 do not depend on the content of a message.
    """
    with closing(sqlite3.connect(folder / database.FILE_NAME)) as connection:
        (count,) = connection.execute("SELECT count(*) FROM dead").fetchone()
        found = connection.execute("SELECT reason FROM dead LIMIT 1").fetchone()
    if count:
        raise ServerError(f"{count} of the measured messages are dead letters: {found[0]}")


def ready_line(started: Started, protocol: str = "xmpp") -> Target:
    """Wait for the line `ready xmpp=HOST:PORT mqtt=HOST:PORT...`; return a protocol's address."""
    assert started.process.stdout is not None
    too_late = threading.Timer(READY_TIME, started.process.kill)
    too_late.start()
    line = started.process.stdout.readline()
    too_late.cancel()
    addresses = dict(word.partition("=")[::2] for word in line.split())
    if "ready" not in addresses or protocol not in addresses:
        log = started.log.read_text()[-2000:]
        raise ServerError(f"the server is not ready for {protocol}: {line!r} {log}")
    host, _, port = addresses[protocol].rpartition(":")
    return Target(host, int(port))


@contextmanager
def running(
    command: list[str],
    log: Path,
    *,
    cut: bool = False,
    wait: Callable[[Started], Target] = ready_line,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
) -> Iterator[Server]:
    """Run a server and stop it; with `cut`, kill it at the end; raises `ServerError`.

    `wait` returns the server's address when it is ready; `env` is added to the environment.
    """
    with log.open("w") as errors:
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=errors,
            stdin=subprocess.DEVNULL,
            text=True,
            cwd=cwd,
            env={**os.environ, **(env or {})},
        )
    try:
        yield Server(process.pid, wait(Started(process, log)))
        if cut:
            return
        process.terminate()
        status = process.wait(STOP_TIME)
        if status:
            raise ServerError(f"{command} ended with {status}: {log.read_text()[-2000:]}")
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()
