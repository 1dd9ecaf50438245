"""Notifications to systemd."""

from __future__ import annotations

import os
import secrets
import socket
from pathlib import Path

import pytest

from sync.common.sd_notify import notify, watchdog_interval


@pytest.mark.parametrize("abstract", [False, True])
def test_state_is_sent_to_the_socket_in_the_environment_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, abstract: bool
) -> None:
    monkeypatch.chdir(tmp_path)  # a socket's path has 107 bytes at most
    name = f"@{secrets.token_hex(8)}" if abstract else "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(name.replace("@", "\0"))
        systemd.setblocking(False)
        monkeypatch.setenv("NOTIFY_SOCKET", name)
        notify("READY=1")
        assert systemd.recv(100) == b"READY=1"
        monkeypatch.delenv("NOTIFY_SOCKET")
        notify("READY=1")
        with pytest.raises(BlockingIOError):
            systemd.recv(100)


@pytest.mark.parametrize(
    ("limit", "process", "expected"),
    [
        ("60000000", "this", 30.0), ("3000000", None, 1.5), ("60000000", "1", None),
        (None, None, None), ("0", None, None), ("-1", None, None),
    ],
)  # fmt: skip
def test_watchdog_interval_is_half_of_what_systemd_allows(
    monkeypatch: pytest.MonkeyPatch, limit: str | None, process: str | None, expected: float | None
) -> None:
    process = str(os.getpid()) if process == "this" else process
    for name, value in (("WATCHDOG_USEC", limit), ("WATCHDOG_PID", process)):
        if value is None:
            monkeypatch.delenv(name, raising=False)
        else:
            monkeypatch.setenv(name, value)
    assert watchdog_interval() == expected
