"""`fieldpost run`: a failed start is reported in one line, with status 1."""

from __future__ import annotations

import os
import resource
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

from edge import app
from edge.journal import DEFAULT_LEVEL, FORMATS, Journal
from sync.segment import decode
from sync.uplink.folder_transport import MARKER
from tests.helpers.gateway import Gateway, port_of
from tests.helpers.processes import Process, start

HEADER = (
    b"<stream:stream xmlns='jabber:client' xmlns:stream='http://etherx.jabber.org/streams'"
    b" to='gw.example' version='1.0'>"
)


Failure: TypeAlias = Callable[[Path], str]


@pytest.fixture
def failure(capfd: pytest.CaptureFixture[str]) -> Failure:
    """Return a function that runs a gateway that cannot start, and returns the line that says why.

    It runs in this process, because a process takes longer to start than to fail.
    """

    def fail(folder: Path) -> str:
        with pytest.raises(SystemExit) as end:
            app.run(folder, Journal(DEFAULT_LEVEL, FORMATS[0]))
        assert end.value.code == 1
        out, err = capfd.readouterr()
        assert out == ""
        (line,) = err.splitlines()
        return line

    return fail


def test_a_second_gateway_in_the_same_folder_is_refused(tmp_path: Path, failure: Failure) -> None:
    gateway = Gateway(tmp_path / "gateway")
    with gateway.run() as process:
        assert "running" in failure(gateway.folder)
        assert process.terminate() == 0


def test_a_port_that_is_taken_is_named(tmp_path: Path, failure: Failure) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        gateway = Gateway(tmp_path / "gateway", listen=f"127.0.0.1:{port}")
        found = failure(gateway.folder)
        assert f"port {port} is already in use (pid {os.getpid()}, " in found
        assert "; choose another in [xmpp] listen" in found


@pytest.mark.parametrize("host", ["a..b", f"{'a' * 64}.example"])
def test_a_host_that_is_no_name_is_named(tmp_path: Path, host: str, failure: Failure) -> None:
    gateway = Gateway(tmp_path / "gateway", listen=f"{host}:5222")
    assert f"xmpp.listen: cannot listen on {host}:5222: " in failure(gateway.folder)


def test_a_missing_folder_says_how_to_make_it(tmp_path: Path, failure: Failure) -> None:
    assert "fieldpost init" in failure(tmp_path / "nothing")


def test_a_wrong_option_is_named(tmp_path: Path, failure: Failure) -> None:
    gateway = Gateway(tmp_path / "gateway")
    path = gateway.folder / "fieldpost.toml"
    path.write_text(path.read_text("utf-8").replace("sessions =", "sesions ="), "utf-8")
    assert "sesions" in failure(gateway.folder)


@pytest.mark.parametrize("content", [None, b"\xff\x00"])
def test_an_enrolment_that_cannot_be_used_is_told(
    tmp_path: Path, content: bytes | None, failure: Failure
) -> None:
    gateway = Gateway(tmp_path / "gateway", enrolment="enrolment.json")
    if content is not None:
        (gateway.folder / "enrolment.json").write_bytes(content)
    told = failure(gateway.folder)
    assert "enrolment" in told
    assert "Errno" not in told
    assert told.strip().endswith("enrolment.json does not exist") == (content is None)


def test_a_folder_that_is_none_of_this_machine_is_told(tmp_path: Path, failure: Failure) -> None:
    gateway = Gateway(tmp_path / "gateway")
    gateway.configure(folder="file://server/share")
    assert "uplink.folder" in failure(gateway.folder)


def test_segments_go_into_a_folder_the_closing_event_too(tmp_path: Path) -> None:
    gateway = Gateway(tmp_path / "gateway")
    gateway.configure(folder=f"file://{tmp_path}/stick")
    (tmp_path / "stick").mkdir()
    (tmp_path / "stick" / MARKER).touch()
    with gateway.run() as process:
        assert process.terminate() == 0
    landed = [decode(path.read_bytes()) for path in (tmp_path / "stick").rglob("*.seg")]
    landed.sort(key=lambda segment: segment.header.first_seq)
    names = [event.name for segment in landed for event in segment.events]
    assert names == ["start", "stop"]


@pytest.mark.parametrize("name", ["server.pem", "server.key"])
def test_a_certificate_that_cannot_be_used_is_named(
    tmp_path: Path, name: str, failure: Failure
) -> None:
    gateway = Gateway(tmp_path / "gateway")
    (gateway.folder / "pki" / name).write_bytes(b"nothing of the kind")
    assert "certificate" in failure(gateway.folder)


def test_a_database_that_is_none_is_told(tmp_path: Path, failure: Failure) -> None:
    gateway = Gateway(tmp_path / "gateway")
    (gateway.folder / "fieldpost.db").write_bytes(b"nothing of the kind" * 1000)
    assert "database" in failure(gateway.folder)


def test_an_empty_database_is_told_and_left_alone(tmp_path: Path, failure: Failure) -> None:
    gateway = Gateway(tmp_path / "gateway")
    path = gateway.folder / "fieldpost.db"
    path.write_bytes(b"")
    assert f"{path} is empty" in failure(gateway.folder)
    assert path.stat().st_size == 0


def limited(gateway: Gateway, limit: str, *, ready: bool = True) -> Process:
    """Start a gateway under `ulimit`."""
    command = Path(sys.executable).with_name("fieldpost")
    script = f'ulimit {limit}; exec "$0" run --dir "$1"'
    return start("sh", "-c", script, command, gateway.folder, ready=ready)


def test_all_descriptors_that_there_may_be_are_taken(tmp_path: Path) -> None:
    gateway = Gateway(tmp_path / "gateway")
    with limited(gateway, "-Sn 100") as process:
        soft, hard = resource.prlimit(process.pid, resource.RLIMIT_NOFILE)
        assert soft == hard > 1000
        assert process.terminate() == 0


def test_more_sessions_than_descriptors_are_refused(tmp_path: Path) -> None:
    gateway = Gateway(tmp_path / "gateway", sessions=180, unauthenticated=20)
    with limited(gateway, "-n 263", ready=False) as process:
        assert process.wait() == 1
        assert process.stderr.startswith("Error: limits.sessions: 180 sessions need 264")
        assert process.stderr.count("\n") == 1
    with limited(gateway, "-n 264") as process:
        assert process.terminate() == 0


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
