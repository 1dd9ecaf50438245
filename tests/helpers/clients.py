"""Other people's XMPP clients as programs that tests command: one line in, one line out.

A program gets `HOST PORT JID CAFILE starttls|direct MECHANISM [WORD...]` as arguments
and the password in $CLIENT_PASSWORD; it verifies the certificate for the JID's domain. It reads:

    ping | info | items | roster          ask the gateway
    presence [TO [TYPE]]                  broadcast, or send to one
    message TO TEXT                       chat with another
    log NAME TEXT                         send the gateway a message with an XEP-0337 event
    assured MSGID NAME TEXT               offer such a message for exactly one delivery
    deliver MSGID                         ask for its delivery
    quit                                  close the stream, and end

and the program on xmpp.js, for queues at the publish-subscribe service, also

    create NODE                           make a node that is a queue
    work NODE REQUESTS                    subscribe, with this many items at a time
    publish NODE ITEM TEXT
    retract NODE ITEM                     delete a locked item
    unlock NODE ITEM                      return a locked item to the queue

and writes a line for each thing that it receives; a keyword comes first: `online JID MECHANISM`,
`managed resumable|not-resumable`, `cut`, `resumed JID`, `pong`, `features ...`, `items ...`,
`roster JID:SUBSCRIPTION ...`, `sent TO` (the library has the message), `message FROM TEXT`,
`presence FROM TYPE`, `answered VERB MSGID [ELEMENT]`, `done VERB NODE`, `item ITEM TEXT`,
`retracted ITEM`, `unlocked ITEM`, `refused VERB CONDITION`, `failed WHY`. Every wait is bounded.
"""

from __future__ import annotations

import os
import queue
import shutil
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, NamedTuple, Self

import pytest

WAIT_S = 30.0
"""Seconds to wait for one line, or for the end of a program; enough for two busy cores."""

KEPT_LINES = 2_000
"""Lines of standard error kept."""

SHOWN_LINES = 60
"""Lines of each output shown when a test failed: enough to see why."""

INTEROP = Path(__file__).parents[1] / "interop"
PROGRAMS = INTEROP / "clients"
SYSTEM_PYTHON = "/usr/bin/python3"
"""The Python that Debian's packages of Python modules are for."""


class Login(NamedTuple):
    """The address to which a program connects, and its credentials."""

    host: str
    port: int
    jid: str
    ca: Path
    transport: str = "starttls"
    mechanism: str = "SCRAM-SHA-256"
    password: str = ""
    extra: tuple[str | Path, ...] = ()
    """A certificate and its key for EXTERNAL, or other arguments of a program."""

    @property
    def bare(self) -> str:
        return self.jid.partition("/")[0]


class Client:
    """A running program. Use it as a context manager, which always ends the program."""

    def __init__(
        self, program: Sequence[str | Path], environment: Mapping[str, str] | None = None
    ) -> None:
        self._argv = [str(word) for word in program]
        self._popen = subprocess.Popen(
            self._argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **(environment or {})},
        )
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._unread: list[str] = []
        self._output: list[str] = []
        self.errors: deque[str] = deque(maxlen=KEPT_LINES)
        self._readers = [
            threading.Thread(target=self._read, args=(self._popen.stdout,), daemon=True),
            threading.Thread(target=self._read_errors, args=(self._popen.stderr,), daemon=True),
        ]
        for reader in self._readers:
            reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self._popen.kill()
        self._wait_ended()

    def send_line(self, *words: str) -> None:
        assert self._popen.stdin is not None
        self._popen.stdin.write(" ".join(words) + "\n")
        self._popen.stdin.flush()

    def close_input(self) -> None:
        """Let the program read the end of its standard input."""
        assert self._popen.stdin is not None
        self._popen.stdin.close()

    def expect(self, *words: str) -> str:
        """Wait for a line that begins with these words; return the rest of it.

        Other lines that were written before it are kept for later calls, in their order.
        """
        for line in self._unread:
            if _begins(line, words):
                self._unread.remove(line)
                return _rest(line, words)
        deadline = time.monotonic() + WAIT_S
        while True:
            line = self._next(words, deadline)
            if _begins(line, words):
                return _rest(line, words)
            self._unread.append(line)

    def ask(self, *words: str, answer: str) -> str:
        self.send_line(*words)
        return self.expect(answer)

    def lines(self) -> list[str]:
        """Return all lines that the program has written so far."""
        return list(self._output)

    def unread(self, word: str) -> list[str]:
        """Return the lines so far that begin with this word and that no `expect` returned."""
        return [line for line in self._unread if _begins(line, (word,))]

    def quit(self) -> int:
        """Let the program close its stream and end; return its exit status, keep its last lines."""
        self.send_line("quit")
        return self.wait_ended()

    def wait_ended(self) -> int:
        status = self._wait_ended()
        while (line := self._lines.get(timeout=WAIT_S)) is not None:
            self._unread.append(line)
        self._lines.put(None)
        return status

    def _next(self, words: tuple[str, ...], deadline: float) -> str:
        try:
            line = self._lines.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            line = None
        if line is None:
            output = "\n".join([*self._output[-SHOWN_LINES:], *list(self.errors)[-SHOWN_LINES:]])
            pytest.fail(f"{self._argv} never wrote {' '.join(words)!r}:\n{output}")
        return line

    def _wait_ended(self) -> int:
        status = self._popen.wait(WAIT_S)
        for reader in self._readers:
            reader.join(WAIT_S)
        for pipe in (self._popen.stdin, self._popen.stdout, self._popen.stderr):
            if pipe is not None and not pipe.closed:
                pipe.close()
        return status

    def _read(self, pipe: IO[str]) -> None:
        for line in pipe:
            self._output.append(line.rstrip("\n"))
            self._lines.put(line.rstrip("\n"))
        self._lines.put(None)

    def _read_errors(self, pipe: IO[str]) -> None:
        self.errors.extend(line.rstrip("\n") for line in pipe)


def start(program: Sequence[str | Path], login: Login) -> Client:
    """Start a program with the arguments that this module describes."""
    words = (login.host, str(login.port), login.jid, login.ca, login.transport, login.mechanism)
    environment = {"CLIENT_PASSWORD": login.password, "NODE_EXTRA_CA_CERTS": str(login.ca)}
    return Client([*program, *words, *login.extra], environment)


def _begins(line: str, words: tuple[str, ...]) -> bool:
    return line.split(" ")[: len(words)] == list(words)


def _rest(line: str, words: tuple[str, ...]) -> str:
    return line[len(" ".join(words)) :].lstrip(" ")


def slixmpp() -> list[str | Path]:
    """Return the command of the program on slixmpp, with the Python that runs the tests."""
    return [sys.executable, PROGRAMS / "slixmpp_client.py"]


def aioxmpp() -> list[str | Path]:
    """Return the command of the program on aioxmpp; skip if Debian's package is missing."""
    found = (
        Path(SYSTEM_PYTHON).exists()
        and not subprocess.run(
            [SYSTEM_PYTHON, "-c", "import aioxmpp"],
            capture_output=True,
            check=False,
            timeout=WAIT_S,
        ).returncode
    )
    if not found:
        pytest.skip("no python3-aioxmpp (make interop-packages)")
    return [SYSTEM_PYTHON, PROGRAMS / "aioxmpp_client.py"]


def strophe(folder: Path) -> list[str | Path]:
    """Compile the program on libstrophe into a folder; skip if a tool is missing."""
    flags = strophe_flags()
    program = folder / "strophe_client"
    strict = ["-std=c11", "-D_DEFAULT_SOURCE", "-Wall", "-Wextra", "-Werror"]
    source = PROGRAMS / "strophe_client.c"
    command: list[str | Path] = ["gcc", *strict, "-o", program, source, *flags]
    subprocess.run(command, check=True, timeout=WAIT_S)
    return [program]


def strophe_flags() -> list[str]:
    """Return the compiler's flags for libstrophe; skip if a tool is missing."""
    missing = [tool for tool in ("gcc", "pkg-config") if shutil.which(tool) is None]
    if missing:
        pytest.skip(f"no {' and no '.join(missing)} (make interop-packages)")
    query = ["pkg-config", "--cflags", "--libs", "libstrophe"]
    flags = subprocess.run(query, capture_output=True, text=True, check=False, timeout=WAIT_S)
    if flags.returncode:
        pytest.skip("no libstrophe-dev (make interop-packages)")
    return flags.stdout.split()


def xmppjs() -> list[str | Path]:
    """Return the command of the program on xmpp.js; skip if it is missing."""
    return node_program("xmppjs")


def node_program(folder: str) -> list[str | Path]:
    """Return the command of the program in a folder of `INTEROP`, as `node_with` does."""
    node, packages = node_with(folder)
    return [node, packages.parent / "client.js"]


def node_with(folder: str) -> tuple[str, Path]:
    """Return Node.js and the packages in a folder of `INTEROP`; skip if they are missing."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("no Node.js (make interop-packages)")
    packages = INTEROP / folder / "node_modules"
    if not packages.exists():
        pytest.skip(f"no packages for {folder} (make interop-npm)")
    return node, packages
