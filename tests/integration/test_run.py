"""`fieldpost run` as an operator meets it: mistakes are told in one line, with status 1."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from tests.helpers.gateway import Gateway, port_of
from tests.helpers.processes import start


def failure(folder: Path) -> str:
    """Run a gateway that cannot start, and return the one line that says why."""
    with start("fieldpost", "run", "--dir", folder, ready=False) as process:
        assert process.wait() == 1
        assert process.stdout == ""
        (line,) = process.stderr.splitlines()
        return line


def test_a_second_gateway_in_the_same_folder_is_refused(tmp_path: Path) -> None:
    gateway = Gateway(tmp_path / "gateway")
    with gateway.run() as process:
        assert "running" in failure(gateway.folder)
        assert process.terminate() == 0


def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        gateway = Gateway(tmp_path / "gateway", listen=f"127.0.0.1:{port}")
        assert f"127.0.0.1:{port}" in failure(gateway.folder)


def test_a_missing_folder_says_how_to_make_it(tmp_path: Path) -> None:
    assert "fieldpost init" in failure(tmp_path / "nothing")


def test_a_wrong_option_is_named(tmp_path: Path) -> None:
    gateway = Gateway(tmp_path / "gateway")
    path = gateway.folder / "fieldpost.toml"
    path.write_text(path.read_text("utf-8").replace("sessions =", "sesions ="), "utf-8")
    assert "sesions" in failure(gateway.folder)


@pytest.mark.parametrize("content", [None, b"", b"{}", b"\xff\x00"])
def test_an_enrolment_that_cannot_be_used_is_told(tmp_path: Path, content: bytes | None) -> None:
    gateway = Gateway(tmp_path / "gateway", enrolment="enrolment.json")
    if content is not None:
        (gateway.folder / "enrolment.json").write_bytes(content)
    assert "enrolment" in failure(gateway.folder)


@pytest.mark.parametrize("name", ["server.pem", "server.key"])
def test_a_certificate_that_cannot_be_used_is_named(tmp_path: Path, name: str) -> None:
    gateway = Gateway(tmp_path / "gateway")
    (gateway.folder / "pki" / name).write_bytes(b"nothing of the kind")
    assert "certificate" in failure(gateway.folder)


def test_a_database_that_is_none_is_told(tmp_path: Path) -> None:
    gateway = Gateway(tmp_path / "gateway")
    (gateway.folder / "fieldpost.db").write_bytes(b"nothing of the kind" * 1000)
    assert "database" in failure(gateway.folder)


def test_keys_and_data_are_the_owners_alone(tmp_path: Path) -> None:
    old = os.umask(0o022)
    try:
        gateway = Gateway(tmp_path / "gateway")
        with gateway.run() as process:
            port_of(process)
            assert gateway.folder.stat().st_mode & 0o077 == 0
            for name in ("ca.key", "server.key"):
                assert (gateway.folder / "pki" / name).stat().st_mode & 0o777 == 0o600
            for path in gateway.folder.glob("fieldpost.db*"):
                assert path.stat().st_mode & 0o777 == 0o600
            assert process.terminate() == 0
    finally:
        os.umask(old)
