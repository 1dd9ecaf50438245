"""FIFOs, folders, devices and sockets in place of files are reported and never opened."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sync.common import regular_files
from sync.common.regular_files import NotRegularError
from tests.helpers.folder import fieldpost

PATIENCE_S = 60
"""Seconds for a command: reading a FIFO would never end."""

LISTEN = '[xmpp]\nlisten = "127.0.0.1:0"\nlisten_tls = "127.0.0.1:0"\n'
ENROLMENT = '[uplink]\nenrolment = "enrolment.json"\n'
COMPONENT = (
    '[xmpp]\nlisten = ""\nlisten_tls = ""\ncomponent = "127.0.0.1:1"\ncomponent_secret = "secret"\n'
)


def as_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))


KINDS: dict[str, Callable[[Path], None]] = {
    "a FIFO": os.mkfifo,
    "a folder": Path.mkdir,
    "a device": lambda path: path.symlink_to("/dev/null"),
    "a socket": as_socket,
}


def put(path: Path, kind: str) -> str:
    """Create a special file; return the expected error."""
    path.unlink(missing_ok=True)
    KINDS[kind](path)
    return f"it is {kind}, but a regular file is needed"


def configure(folder: Path, text: str) -> None:
    (folder / "fieldpost.toml").write_text(f'[gateway]\ndomain = "gw.example"\n{text}', "utf-8")


@pytest.fixture(autouse=True)
def no_endless_reading() -> Iterator[None]:
    """Interrupt a test that opens a FIFO, which nobody ever writes to."""
    before = signal.signal(signal.SIGALRM, lambda *_: pytest.fail("a FIFO was opened"))
    signal.alarm(PATIENCE_S)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def lines(folder: Path, *command: str) -> list[str]:
    """Run a command that fails, `run` in a process of its own; return its lines."""
    if command != ("run",):
        result = fieldpost(folder, *command)
        assert result.exit_code == 1
        return result.output.splitlines()
    process = subprocess.run(
        [sys.executable, "-m", "edge", "run", "--dir", folder],
        capture_output=True, text=True, timeout=PATIENCE_S, check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert process.returncode == 1
    return [*process.stdout.splitlines(), *process.stderr.splitlines()]


@pytest.mark.parametrize("kind", KINDS)
def test_special_file_is_not_opened(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "it"
    problem = put(path, kind)
    (tmp_path / "link").symlink_to(path)
    for place in (path, tmp_path / "link"):
        for read in (regular_files.check_regular, regular_files.read_regular):
            with pytest.raises(NotRegularError) as error:
                read(place)
            assert (error.value.strerror, error.value.filename) == (problem, str(place))


def test_missing_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        regular_files.read_regular(tmp_path / "none")


def test_links_and_read_only_files_are_read(tmp_path: Path) -> None:
    """LoadCredential= of systemd and mounted secrets provide links to files of mode 0400."""
    (tmp_path / "..data").mkdir()
    real = tmp_path / "..data" / "secret"
    real.write_bytes(b"x")
    real.chmod(0o400)
    (tmp_path / "first").symlink_to("..data/secret")
    (tmp_path / "second").symlink_to(tmp_path / "first")
    assert regular_files.read_regular(tmp_path / "second") == b"x"
    regular_files.check_regular(tmp_path / "second")


def test_configuration_behind_a_link_is_read(folder: Path, tmp_path: Path) -> None:
    (folder / "fieldpost.toml").rename(tmp_path / "managed.toml")
    (folder / "fieldpost.toml").symlink_to(tmp_path / "managed.toml")
    assert fieldpost(folder, "config", "check").exit_code == 0


CANNOT_BE_READ = "{path} cannot be read: {problem}"
FIFOS = [
    ("run", "", "fieldpost.toml", CANNOT_BE_READ),
    ("doctor", "", "fieldpost.toml", CANNOT_BE_READ),
    ("config check", "", "fieldpost.toml", CANNOT_BE_READ),
    ("run", "", "fieldpost.db", CANNOT_BE_READ),
    ("doctor", "", "fieldpost.db", CANNOT_BE_READ),
    ("status", "", "fieldpost.db", CANNOT_BE_READ),
    ("run", LISTEN, "pki/server.pem", CANNOT_BE_READ),
    *(("device add pump1 --certificate", "", f"pki/{name}", CANNOT_BE_READ)
      for name in ("ca.pem", "ca.key")),
    ("run", LISTEN + ENROLMENT, "enrolment.json",
     "Error: uplink.enrolment: it is not a regular file"),
    ("backup gw.zip", ENROLMENT, "enrolment.json",
     "Error: gw.zip cannot be created: {path}: {problem}"),
    ("run", COMPONENT, "secret", f"Error: xmpp.component_secret: {CANNOT_BE_READ}"),
]  # fmt: skip
"""The command, its configuration, the file that is a FIFO, and the end of the error's line."""


@pytest.mark.parametrize(
    ("command", "configuration", "name", "error"), FIFOS, ids=[f"{c} {n}" for c, _, n, _ in FIFOS]
)
def test_fifo_is_reported(
    folder: Path,
    command: str,
    configuration: str,
    name: str,
    error: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(folder)
    configure(folder, configuration)
    problem = put(folder / name, "a FIFO")
    output = lines(folder, *command.split())
    expected = error.format(path=folder / name, problem=problem)
    assert any(line.endswith(expected) for line in output), output
    assert len(output) == 1 or command == "doctor"


def test_doctor_names_each_special_file(folder: Path) -> None:
    configure(folder, ENROLMENT)
    names = ("pki/ca.pem", "pki/server.pem", "pki/server.key", "pki/ca.key", "enrolment.json")
    problem, *_ = [put(folder / name, "a FIFO") for name in names]
    output = "\n".join(lines(folder, "doctor"))
    for name in names:
        assert re.search(rf"^wrong .*{re.escape(name)}.*{problem}$", output, re.MULTILINE), name
    assert "other users can access" not in output


def test_status_of_an_uplink_reports_a_fifo_as_enrolment(folder: Path) -> None:
    configure(folder, ENROLMENT)
    put(folder / "enrolment.json", "a FIFO")
    output = fieldpost(folder, "uplink", "status", "--json").output
    assert "enrolment.json: it is not a regular file" in output
