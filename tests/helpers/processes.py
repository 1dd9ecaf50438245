"""Real processes of the project's commands, started for a test and never left behind.

A process writes `ready name=HOST:PORT ...` to its standard output. Every wait has a timeout.
"""

from __future__ import annotations

import contextlib
import os
import random
import secrets
import select
import signal
import socket
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Self

READY_S = 30.0
"""Seconds to wait for the `ready` line; enough for two busy cores."""

STOP_S = 30.0
"""Seconds to wait for a clean stop after SIGTERM."""

KEPT_LINES = 2_000
"""Lines kept of each output: enough to see why a test failed."""


class Process:
    """A running command. Its output is read all the time, so that no full pipe blocks it."""

    def __init__(self, popen: subprocess.Popen[str], argv: tuple[str, ...]) -> None:
        self._popen = popen
        self.argv = argv
        self._closed = False
        self.addresses: dict[str, str] = {}
        """The first address of each name in the `ready` line."""
        self._all_addresses: list[tuple[str, str]] = []
        self._ready = threading.Event()
        self._changed = threading.Condition()
        self._out: deque[str] = deque(maxlen=KEPT_LINES)
        self._err: deque[str] = deque(maxlen=KEPT_LINES)
        assert popen.stdout is not None
        assert popen.stderr is not None
        self._readers = [
            threading.Thread(target=self._read, args=(popen.stdout, self._out), daemon=True),
            threading.Thread(target=self._read, args=(popen.stderr, self._err), daemon=True),
        ]
        for reader in self._readers:
            reader.start()

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def returncode(self) -> int | None:
        """The exit status: None while the process runs, negative for a signal."""
        return self._popen.poll()

    @property
    def stdout(self) -> str:
        """The last 2,000 lines of its standard output so far."""
        return "".join(self._out)

    @property
    def stderr(self) -> str:
        """The last 2,000 lines of its standard error so far."""
        return "".join(self._err)

    def host_port(self, name: str) -> tuple[str, int]:
        """The address that the `ready` line gave under `name`."""
        return _host_port(self.addresses[name])

    def hosts(self, name: str) -> list[tuple[str, int]]:
        """All addresses that the `ready` line gave under `name`."""
        return [_host_port(address) for key, address in self._all_addresses if key == name]

    def wait_ready(self, seconds: float = READY_S) -> None:
        """Wait for the `ready` line; fail with the process's output if it does not come."""
        self._ready.wait(seconds)
        if not self.addresses:
            self.close()
            message = f"{self.argv} is not ready: {self.returncode}\n{self.stdout}{self.stderr}"
            raise AssertionError(message)

    def wait_for_stderr(self, words: str, seconds: float = READY_S) -> None:
        """Wait until it has written some words to its standard error; fail if it does not."""
        with self._changed:
            if not self._changed.wait_for(lambda: words in self.stderr, seconds):
                raise AssertionError(f"{self.argv} never wrote {words!r}:\n{self.stderr}")

    def kill9(self) -> None:
        """Kill it alone, without warning, and wait until it and its child processes have ended."""
        self._signal(signal.SIGKILL)
        self._wait_ended(STOP_S)

    def terminate(self, seconds: float = STOP_S) -> int:
        """Ask it to stop, wait, and return its exit status; fail if it does not stop."""
        self._signal(signal.SIGTERM)
        return self.wait(seconds)

    def wait(self, seconds: float = STOP_S) -> int:
        """Wait until it ends by itself, and return its exit status; fail if it does not end."""
        try:
            return self._wait_ended(seconds)
        except subprocess.TimeoutExpired:
            self.close()
            message = f"{self.argv} did not stop in {seconds} s\n{self.stdout}{self.stderr}"
            raise AssertionError(message) from None

    def close(self) -> None:
        """Kill it and its child processes, if they still run. A second call does nothing."""
        if self._closed:
            return
        self._closed = True
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._popen.pid, signal.SIGKILL)
        self._wait_ended(STOP_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def _signal(self, number: signal.Signals) -> None:
        if self._popen.poll() is None:
            self._popen.send_signal(number)

    def _wait_ended(self, seconds: float) -> int:
        status = self._popen.wait(seconds)
        wait_all_ended(_members(self.pid))
        for reader in self._readers:
            reader.join(STOP_S)
        for pipe in (self._popen.stdout, self._popen.stderr):
            if pipe is not None:
                pipe.close()
        return status

    def _read(self, pipe: IO[str], kept: deque[str]) -> None:
        for line in pipe:
            with self._changed:
                kept.append(line)
                self._changed.notify_all()
            if kept is self._out and line.startswith("ready") and not self.addresses:
                words = (word.partition("=") for word in line.split()[1:])
                self._all_addresses = [(name, address) for name, _, address in words]
                self.addresses = dict(reversed(self._all_addresses))
                self._ready.set()
        self._ready.set()


def _host_port(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def start(*argv: str | Path, ready: bool = True, env: dict[str, str] | None = None) -> Process:
    """Start a command of the project (`fieldpost`, `fieldpost-fleet`, ...) and wait for `ready`.

    The command is the one beside the Python that runs the tests. `env` is added to the environment.
    With `ready=False` it does not wait. Use it as a context manager: it always kills.
    """
    command = tuple(str(word) for word in argv)
    beside = Path(sys.executable).with_name(command[0])
    program = str(beside) if beside.exists() else command[0]
    popen = subprocess.Popen(
        [program, *command[1:]],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
        env={**os.environ, **(env or {})},
    )
    process = Process(popen, command)
    if ready:
        process.wait_ready()
    return process


def wait_all_ended(pids: Iterable[int], seconds: float = STOP_S) -> None:
    """Wait until processes have ended, children of this one or not; fail if one does not end."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            handle = os.pidfd_open(pid)
            try:
                assert select.select([handle], [], [], seconds)[0], f"process {pid} has not ended"
            finally:
                os.close(handle)


def _members(group: int) -> Iterator[int]:
    """Yield the ids of the processes of a group."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has just ended
            _state, _parent, found = path.read_bytes().rpartition(b")")[2].split()[:3]
            if int(found) == group:
                yield int(path.parent.name)


def free_port() -> int:
    """Find a port outside the ephemeral range, which stays free while the gateway is down."""
    ports = random.sample(range(20_000, 30_000), 100)
    for port in ports:
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError("no free port")


@contextlib.contextmanager
def systemd() -> Iterator[tuple[socket.socket, dict[str, str]]]:
    """Listen as systemd does; return the socket and its environment variable."""
    name = secrets.token_hex(16)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(f"\0{name}")
        receiver.settimeout(30)
        yield receiver, {"NOTIFY_SOCKET": f"@{name}"}
