"""What the gateway and the receiver tell systemd, and that both tell it alike."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

import sync.common.sd_notify
import sync.receiver.systemd

BOTH = (sync.common.sd_notify.notify, sync.receiver.systemd.notify)


@pytest.mark.parametrize("notify", BOTH)
@pytest.mark.parametrize("abstract", [False, True])
def test_the_state_goes_to_the_socket_that_systemd_named(
    notify: Callable[[str], None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    abstract: bool,
) -> None:
    monkeypatch.chdir(tmp_path)  # a socket's path has 107 bytes at most
    name = f"@{secrets.token_hex(8)}" if abstract else "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as told:
        told.bind(name.replace("@", "\0"))
        told.setblocking(False)
        monkeypatch.setenv("NOTIFY_SOCKET", name)
        notify("READY=1")
        assert told.recv(100) == b"READY=1"
        monkeypatch.delenv("NOTIFY_SOCKET")
        notify("READY=1")
        with pytest.raises(BlockingIOError):
            told.recv(100)
