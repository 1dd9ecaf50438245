from __future__ import annotations

import os
import re
import resource
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeAlias

import pytest

from edge import app
from edge.engine.store import meta
from edge.journal import DEFAULT_LEVEL, FORMATS, Journal
from sync.segment import decode
from sync.uplink.folder_transport import MARKER
from tests.helpers.folder import change
from tests.helpers.gateway import PASSWORD, Gateway, port_of
from tests.helpers.processes import Process, start
from tests.helpers.xmpp import log_in

Failure: TypeAlias = Callable[[Path], str]


@pytest.fixture
def failure(capfd: pytest.CaptureFixture[str]) -> Failure:
    """Return a function that runs a gateway that cannot start, and returns its error message.

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
    with gateway.run():
        assert "running" in failure(gateway.folder)


def test_a_port_in_use_is_reported(tmp_path: Path, failure: Failure) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        gateway = Gateway(tmp_path / "gateway", listen=f"127.0.0.1:{port}")
        error = failure(gateway.folder)
        assert f"port {port} is already in use (pid {os.getpid()}, " in error
        assert "; choose another in [xmpp] listen" in error


def test_error_without_a_folder_names_the_init_command(tmp_path: Path, failure: Failure) -> None:
    assert "fieldpost init" in failure(tmp_path / "nothing")


def test_a_misspelt_option_is_reported(tmp_path: Path, failure: Failure) -> None:
    gateway = Gateway(tmp_path / "gateway")
    path = gateway.folder / "fieldpost.toml"
    path.write_text(path.read_text("utf-8").replace("sessions =", "sesions ="), "utf-8")
    assert "sesions" in failure(gateway.folder)


NONSENSE = b"nothing of the kind"
LONG = f"{'a' * 64}.example:5222"
FAULTS: list[tuple[dict[str, object], str, bytes, str]] = [
    ({"listen": "a..b:5222"}, "", b"", "xmpp.listen: cannot listen on a..b:5222: "),
    ({"listen": LONG}, "", b"", f"xmpp.listen: cannot listen on {LONG}: "),
    ({"enrolment": "enrolment.json"}, "", b"", "enrolment.json does not exist"),
    ({"enrolment": "enrolment.json"}, "enrolment.json", b"\xff\x00", "enrolment"),
    ({"folder": "file://server/share"}, "", b"", "uplink.folder"),
    ({}, "pki/server.pem", NONSENSE, "certificate"),
    ({}, "pki/server.key", NONSENSE, "certificate"),
    ({}, "fieldpost.db", NONSENSE * 1000, "database"),
]
"""Options, a file and its content, and a part of the error."""


@pytest.mark.parametrize(("options", "name", "content", "expected"), FAULTS)
def test_an_unusable_option_or_file_is_reported(
    tmp_path: Path,
    options: dict[str, object],
    name: str,
    content: bytes,
    expected: str,
    failure: Failure,
) -> None:
    gateway = Gateway(tmp_path / "gateway")
    gateway.configure(**options)
    if name:
        (gateway.folder / name).write_bytes(content)
    error = failure(gateway.folder)
    assert expected in error
    assert "Errno" not in error


@pytest.mark.parametrize("key", [meta.EPOCH, meta.DECOY])
def test_a_missing_row_of_meta_is_reported(tmp_path: Path, key: str, failure: Failure) -> None:
    gateway = Gateway(tmp_path / "gateway")
    change(gateway.folder, lambda tx: tx.run("DELETE FROM meta WHERE key = ?", (key,)))
    error = f"the database is damaged: its table `meta` has no row `{key}`"
    assert f"Error: {error}" in failure(gateway.folder)


def test_the_uplink_folder_gets_all_events_up_to_the_closing_one(tmp_path: Path) -> None:
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


def test_an_empty_database_is_reported_and_not_changed(tmp_path: Path, failure: Failure) -> None:
    gateway = Gateway(tmp_path / "gateway")
    path = gateway.folder / "fieldpost.db"
    path.write_bytes(b"")
    assert f"{path} is empty" in failure(gateway.folder)
    assert path.stat().st_size == 0


def limited(gateway: Gateway, limit: str, *, ready: bool = True) -> Process:
    command = Path(sys.executable).with_name("fieldpost")
    script = f'ulimit {limit}; exec "$0" run --dir "$1"'
    return start("sh", "-c", script, command, gateway.folder, ready=ready)


def test_the_soft_limit_of_descriptors_is_raised_to_the_hard_limit(tmp_path: Path) -> None:
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


def test_only_the_owner_may_read_keys_and_data(tmp_path: Path) -> None:
    old = os.umask(0o022)
    try:
        gateway = Gateway(tmp_path / "gateway")
        with gateway.run():
            assert gateway.folder.stat().st_mode & 0o077 == 0
            for path in (*gateway.folder.glob("pki/*.key"), *gateway.folder.glob("fieldpost.db*")):
                assert path.stat().st_mode & 0o777 == 0o600
    finally:
        os.umask(old)


NOT_IMPORTED: Final = {
    "_strptime": "nothing",
    "aiohttp": "the uplink and the status page",
    "click": "commands other than run",
    "cryptography": "signing certificates",
    "edge.cli": "commands other than run",
    "edge.server.xmpp.component": "a component",
    "edge.uplink.uploads": "an uplink",
    "edge.web": "the status page",
    "email": "an uplink",
    "http": "an uplink",
    "importlib.resources": "nothing",
    "prometheus_client": "the status page",
    "shutil": "commands other than run",
    "slixmpp": "a component, and addresses that are not ASCII",
    "sync.uplink.http_client": "an uplink",
    "sync.uplink.uploader": "an uplink",
    "tempfile": "nothing",
    "urllib.request": "an uplink",
    "zipfile": "nothing",
}
"""Packages and modules that a gateway without an uplink and without a status page does not need,
and what needs them. Each costs memory for as long as it runs."""

IMPORTED_LINE: Final = re.compile(r"import time:[ \d]+\|[ \d]+\|\s*([\w.]+)")


ARENA: Final = re.compile(r"^\w+000000-(\w+) rw-p .*\n\1-\w+000000 ---p ", re.MULTILINE)
"""The mapping of an arena of glibc (malloc(3)) that is not the main one, and of its reserve."""


def count_threads_and_arenas(pid: int) -> tuple[int, int]:
    """Return the number of a process's threads, and of its arenas except the main one."""
    folder = Path(f"/proc/{pid}")
    arenas = ARENA.findall((folder / "maps").read_text("ascii"))
    return len(list((folder / "task").iterdir())), len(arenas)


async def test_all_threads_allocate_memory_from_one_arena(tmp_path: Path) -> None:
    """Each further arena would keep the most that its threads have used."""
    gateway = Gateway(tmp_path / "gateway", "cam1")
    with gateway.run() as process:
        async with await log_in(port_of(process), gateway.ca, "cam1", PASSWORD, "fw"):
            threads, arenas = count_threads_and_arenas(process.pid)
    assert threads > 2
    assert arenas == 0


async def test_an_idle_gateway_imports_only_what_is_configured(tmp_path: Path) -> None:
    """A device logs in by TLS, so that the imports of the first session count as well."""
    gateway = Gateway(tmp_path / "gateway", "cam1")
    with start(
        *("fieldpost", "run", "--dir", gateway.folder), env={"PYTHONPROFILEIMPORTTIME": "1"}
    ) as process:
        async with await log_in(port_of(process), gateway.ca, "cam1", PASSWORD):
            imported = set(IMPORTED_LINE.findall(process.stderr))
        assert process.terminate() == 0
    assert {"edge.app", "asyncio", "edge.server.session"} <= imported
    found = {
        f"{name} (for {use})"
        for name, use in NOT_IMPORTED.items()
        if name in imported or any(other.startswith(f"{name}.") for other in imported)
    }
    assert not found
