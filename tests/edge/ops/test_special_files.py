"""FIFOs, folders, devices and sockets in place of files are reported and never opened."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from edge.cli.commands import main
from sync.common import regular_files
from sync.common.regular_files import NotRegularError

PATIENCE_S = 60.0
"""Seconds for a command: reading a FIFO would never end."""

COMPONENT = '[xmpp]\nlisten = ""\nlisten_tls = ""\ncomponent = "127.0.0.1:1"\n'


def as_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(path))


def as_device(path: Path) -> None:
    path.symlink_to("/dev/null")


KINDS: dict[str, Callable[[Path], None]] = {
    "a FIFO": os.mkfifo,
    "a folder": Path.mkdir,
    "a device": as_device,
    "a socket": as_socket,
}


def put(path: Path, kind: str) -> str:
    """Create a special file; return the expected error."""
    path.unlink(missing_ok=True)
    KINDS[kind](path)
    return f"it is {kind}, but a regular file is needed"


def configure(folder: Path, text: str) -> None:
    (folder / "fieldpost.toml").write_text(f'[gateway]\ndomain = "gw.example"\n{text}', "utf-8")


def lines(folder: Path, *command: str) -> list[str]:
    """Run a command that fails, in a process with a timeout; return its lines."""
    done = subprocess.run(
        [sys.executable, "-m", "edge", *command, "--dir", str(folder)],
        capture_output=True, text=True, timeout=PATIENCE_S, check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert done.returncode == 1
    return [*done.stdout.splitlines(), *done.stderr.splitlines()]


# The helper.


@pytest.mark.parametrize("kind", KINDS)
def test_special_file_is_not_opened(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "it"
    told = put(path, kind)
    (tmp_path / "link").symlink_to(path)
    for place in (path, tmp_path / "link"):
        for read in (regular_files.check_regular, regular_files.read_regular):
            with pytest.raises(NotRegularError) as caught:
                read(place)
            assert (caught.value.strerror, caught.value.filename) == (told, str(place))


def test_missing_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        regular_files.read_regular(tmp_path / "none")


def test_links_and_read_only_files_are_read(tmp_path: Path) -> None:
    """As systemd's LoadCredential= and mounted secrets are: links to files of mode 0400."""
    (tmp_path / "..data").mkdir()
    real = tmp_path / "..data" / "secret"
    real.write_bytes(b"x")
    real.chmod(0o400)
    (tmp_path / "first").symlink_to("..data/secret")
    (tmp_path / "second").symlink_to(tmp_path / "first")
    assert regular_files.read_regular(tmp_path / "second") == b"x"
    regular_files.check_regular(tmp_path / "second")


# The configuration.


@pytest.mark.parametrize("command", [("doctor",), ("run",), ("config", "check")], ids=" ".join)
def test_fifo_as_configuration_is_reported(folder: Path, command: tuple[str, ...]) -> None:
    path = folder / "fieldpost.toml"
    told = put(path, "a FIFO")
    line, *rest = lines(folder, *command)
    assert line.endswith(f"{path} cannot be read: {told}")
    assert len(rest) == (command == ("doctor",))  # its remedy


def test_configuration_behind_a_link_is_read(folder: Path, tmp_path: Path) -> None:
    (folder / "fieldpost.toml").rename(tmp_path / "managed.toml")
    (folder / "fieldpost.toml").symlink_to(tmp_path / "managed.toml")
    assert CliRunner().invoke(main, ["config", "check", "--dir", str(folder)]).exit_code == 0


# What it names, and what stands beside it.


@pytest.mark.parametrize("name", ["server.pem", "server.key", "ca.pem", "crl.pem"])
def test_fifo_as_certificate_is_reported(folder: Path, name: str) -> None:
    configure(folder, '[xmpp]\nlisten = "127.0.0.1:0"\nlisten_tls = "127.0.0.1:0"\n')
    told = put(folder / "pki" / name, "a FIFO")
    (line,) = lines(folder, "run")
    assert line == f"Error: {folder}/pki/{name} cannot be read: {told}"


@pytest.mark.parametrize("name", ["ca.pem", "ca.key"])
def test_fifo_as_ca_is_reported(folder: Path, name: str) -> None:
    told = put(folder / "pki" / name, "a FIFO")
    (line,) = lines(folder, "device", "add", "pump1", "--certificate")
    assert line == f"Error: {folder}/pki/{name} cannot be read: {told}"


def test_doctor_names_each_special_file(folder: Path) -> None:
    configure(folder, '[uplink]\nenrolment = "enrolment.json"\n')
    names = ("pki/ca.pem", "pki/server.pem", "pki/server.key", "pki/ca.key", "enrolment.json")
    told, *_ = [put(folder / name, "a FIFO") for name in names]
    output = "\n".join(lines(folder, "doctor"))
    for name in names:
        assert re.search(rf"^wrong .*{re.escape(name)}.*{told}$", output, re.MULTILINE), name
    assert "other users can access" not in output


def test_doctor_reports_a_fifo_as_database(folder: Path) -> None:
    told = put(folder / "fieldpost.db", "a FIFO")
    output = "\n".join(lines(folder, "doctor"))
    assert f"{folder}/fieldpost.db cannot be read: {told}" in output


@pytest.mark.parametrize("command", ["status", "run"])
def test_fifo_as_database_is_reported(folder: Path, command: str) -> None:
    told = put(folder / "fieldpost.db", "a FIFO")
    (line,) = lines(folder, command)
    assert line == f"Error: {folder}/fieldpost.db cannot be read: {told}"


def test_fifo_as_enrolment_is_reported(folder: Path) -> None:
    listen = '[xmpp]\nlisten = "127.0.0.1:0"\nlisten_tls = "127.0.0.1:0"\n'
    configure(folder, f'{listen}[uplink]\nenrolment = "enrolment.json"\n')
    put(folder / "enrolment.json", "a FIFO")
    (line,) = lines(folder, "run")
    assert line == "Error: uplink.enrolment: it is not a regular file"
    result = subprocess.run(
        [sys.executable, "-m", "edge", "uplink", "status", "--json", "--dir", str(folder)],
        capture_output=True, text=True, timeout=PATIENCE_S, check=True,
    )  # fmt: skip
    assert "enrolment.json: it is not a regular file" in result.stdout


def test_fifo_as_component_secret_is_reported(folder: Path) -> None:
    configure(folder, f'{COMPONENT}component_secret = "secret"\n')
    told = put(folder / "secret", "a FIFO")
    (line,) = lines(folder, "run")
    assert line == f"Error: xmpp.component_secret: {folder}/secret cannot be read: {told}"


def test_fifo_in_a_backup_is_reported(folder: Path, tmp_path: Path) -> None:
    configure(folder, '[uplink]\nenrolment = "enrolment.json"\n')
    place = tmp_path / "gw.zip"
    told = put(folder / "enrolment.json", "a FIFO")
    (line,) = lines(folder, "backup", str(place))
    assert line == f"Error: {place} cannot be created: {folder}/enrolment.json: {told}"
    assert not place.exists()
