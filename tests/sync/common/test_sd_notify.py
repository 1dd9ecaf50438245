"""Notifications to systemd."""

from __future__ import annotations

import secrets
import socket
from pathlib import Path

import pytest

from sync.common.sd_notify import notify


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
