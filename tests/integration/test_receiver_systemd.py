"""Notifications of the receiver to systemd."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from tests.helpers.fleet import HOST, make_fleet
from tests.helpers.processes import start, systemd


def test_systemd_is_notified_of_ready_and_stopping(tmp_path: Path) -> None:
    make_fleet(tmp_path / "fleet")
    words = ("fieldpost-fleet", "serve", "--dir", tmp_path / "fleet", "--listen", f"{HOST}:0")
    with systemd() as (told, env), start(*words, ready=False, env=env) as process:
        assert told.recv(100) == b"READY=1"
        process.wait_ready()
        with socket.create_connection(process.host_port("https"), 30):
            assert process.returncode is None
        assert process.terminate() == 0
        told.setblocking(False)
        assert told.recv(100) == b"STOPPING=1"


def test_failed_start_does_not_notify_ready(tmp_path: Path) -> None:
    make_fleet(tmp_path / "fleet")
    with socket.create_server((HOST, 0)) as taken, systemd() as (told, env):
        at = f"{HOST}:{taken.getsockname()[1]}"
        words = ("fieldpost-fleet", "serve", "--dir", tmp_path / "fleet", "--listen", at)
        with start(*words, ready=False, env=env) as process:
            assert process.wait() == 1
            assert "cannot listen" in process.stderr
        told.setblocking(False)
        with pytest.raises(BlockingIOError):
            told.recv(100)
