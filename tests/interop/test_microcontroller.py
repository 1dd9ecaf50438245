"""The program without an XMPP library in `examples/`, in C; its connection is cut at each step."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.helpers.clients import Login
from tests.helpers.gateway import DOMAIN
from tests.interop.conftest import Site

SOURCE = Path(__file__).parents[2] / "examples" / "microcontroller.c"
UUID = "7f3c1a52-6c7e-4b0e-9d6b-0a4f5e2c9b11"
WAIT_S = 60.0


def head(begins: str) -> str:
    """Return the command in the head of the source that begins so, with all its lines."""
    comment = SOURCE.read_text("utf-8").partition("*/")[0].replace("\\\n *", "")
    found = re.search(rf"^ \* +({re.escape(begins)} .+)$", comment, re.MULTILINE)
    assert found is not None
    return found[1]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compile it by the command in its head."""
    folder = tmp_path_factory.mktemp("microcontroller")
    if shutil.which("cc") is None:
        pytest.skip("no C compiler (make interop-packages)")
    probe = ["cc", "-E", "-include", "expat.h", "-x", "c", "/dev/null"]
    if subprocess.run(probe, capture_output=True, check=False, timeout=WAIT_S).returncode:
        pytest.skip("no libexpat1-dev (make interop-packages)")
    shutil.copy(SOURCE, folder)
    command = head("cc").replace("cc ", "cc -Wall -Wextra -Werror ", 1)
    subprocess.run(["sh", "-euc", command], cwd=folder, check=True, timeout=WAIT_S)
    return folder / "microcontroller"


class Device(NamedTuple):
    """A provisioned device: its program, its file, and how it logs in."""

    program: Path
    state: Path
    login: Login
    site: Site

    def command(self, word: str, qos: int = 2) -> None:
        """Send it a command."""
        self.site.gateway.command("send", "--to", self.name, "--qos", str(qos), word)

    @property
    def name(self) -> str:
        """Return its account."""
        return self.login.jid.partition("@")[0]

    def readings(self) -> list[float]:
        """Return its readings in the event log."""
        found = self.site.gateway.events("readings")
        return [e["value"] for e in found if e["source"].partition("@")[0] == self.name]


@pytest.fixture
def device(site: Site, program: Path, tmp_path: Path) -> Device:
    name = tmp_path.name.lower()
    return Device(program, tmp_path / "state", site.login(name, "EXTERNAL", "direct"), site)


class Run:
    """The program with its connection. Use it as a context manager.

    Args:
        cut: a regular expression: the connection is cut when what the device has sent contains it,
            before its last part is forwarded.
    """

    def __init__(self, device: Device, *words: str, cut: str = "(?!)") -> None:
        login = device.login
        context = ssl.create_default_context(cafile=str(login.ca))
        context.load_cert_chain(*map(str, login.extra))
        plain = socket.create_connection((login.host, login.port), WAIT_S)
        self._wire = context.wrap_socket(plain, server_hostname=DOMAIN)
        self._cut = re.compile(cut, re.DOTALL)
        self._popen = subprocess.Popen(
            [device.program, DOMAIN, UUID, device.state, *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
        )
        self._pumps = [
            threading.Thread(target=pump, daemon=True) for pump in (self._inwards, self._outwards)
        ]
        for pump in self._pumps:
            pump.start()

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *_exception: object) -> None:
        self._popen.kill()
        self._popen.wait(WAIT_S)
        with contextlib.suppress(OSError):
            self._wire.shutdown(socket.SHUT_RDWR)
        for pump in self._pumps:
            pump.join(WAIT_S)
        self._wire.close()
        for pipe in (self._popen.stdin, self._popen.stdout, self._popen.stderr):
            if pipe is not None:
                pipe.close()

    def log_lines(self) -> Iterator[str]:
        """Yield its log lines until it ends."""
        assert self._popen.stderr is not None
        limit = threading.Timer(WAIT_S, self._popen.kill)
        limit.start()
        try:
            while line := self._popen.stderr.readline():
                yield line.decode().rstrip("\n")
        finally:
            limit.cancel()

    def wait(self) -> int:
        """Wait for its end and return its status."""
        return self._popen.wait(WAIT_S)

    def _inwards(self) -> None:
        assert self._popen.stdin is not None
        with contextlib.suppress(OSError):
            while data := self._wire.recv(65536):
                self._popen.stdin.write(data)
        with contextlib.suppress(OSError):
            self._popen.stdin.close()

    def _outwards(self) -> None:
        assert self._popen.stdout is not None
        sent = ""
        with contextlib.suppress(OSError):
            while data := os.read(self._popen.stdout.fileno(), 65536):
                sent += data.decode()
                if self._cut.search(sent):
                    self._popen.kill()
                    break
                self._wire.sendall(data)
        with contextlib.suppress(OSError):
            self._wire.shutdown(socket.SHUT_RDWR)


def test_a_reading_is_delivered_and_commands_are_obeyed(device: Device) -> None:
    with Run(device, "21.5") as run:
        log_lines = run.log_lines()
        assert next(log_lines) == "message 1 is delivered"
        for qos in (2, 1, 0):
            device.command(f"open <{qos}> & 'close'", qos)
            assert next(log_lines) == f"command: open <{qos}> & 'close'"
        device.command("stop")
        assert list(log_lines) == ["command: stop"]
        assert run.wait() == 0
    assert device.readings() == [21.5]


@pytest.mark.parametrize("step", ["<assured", "<deliver"])
def test_a_reading_is_delivered_once_by_the_next_call(device: Device, step: str) -> None:
    with Run(device, "21.5", cut=step) as run:
        assert list(run.log_lines()) == []
    device.command("stop")
    with Run(device, "22.5") as run:
        log_lines = list(run.log_lines())
        assert run.wait() == 0
    assert log_lines[:2] == ["message 1 is delivered", "message 2 is delivered"]
    assert device.readings() == [21.5, 22.5]


@pytest.mark.parametrize("step", ["<received", "<received.+<iq type='result'"])
def test_a_command_is_obeyed_once_by_two_calls(device: Device, step: str) -> None:
    device.command("open")
    with Run(device, cut=step) as run:
        log_lines = list(run.log_lines())
    device.command("stop")
    with Run(device) as run:
        log_lines += run.log_lines()
        status = run.wait()
    assert (log_lines, status) == (["command: open", "command: stop"], 0)


def test_the_command_in_the_source_header_works(device: Device) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("no openssl")
    folder = device.state.parent
    shutil.copy(device.program, folder)
    shutil.copy(device.login.ca, folder / "ca.pem")
    for path in device.login.extra:
        shutil.copy(path, folder)
    device.command("stop")
    place = f"{device.login.host}:{device.login.port}"
    command = head("./microcontroller").replace("HOST:5223", place).replace("UUID", UUID)
    command = f"{head('mkfifo')}; {command}"
    subprocess.run(["bash", "-euo", "pipefail", "-c", command], cwd=folder, check=True, timeout=60)
    assert device.readings() == [21.5]
