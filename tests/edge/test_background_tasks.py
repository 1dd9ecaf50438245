from __future__ import annotations

import asyncio
import socket
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest

from edge import background_tasks
from edge.config import options
from edge.engine.rules.service_time import DAY_MS
from edge.features.accounts.store import certificates
from edge.ops.certificates import pki
from edge.server.refusal_counters import RefusalCounters
from tests.helpers.in_process import in_process
from tests.helpers.store import Gateway, digest_of


def issue(gateway: Gateway, name: str, days: float) -> None:
    not_after = gateway.clock().wall + round(days * DAY_MS)
    gateway.add(name)
    gateway.tx(lambda tx: certificates.add(tx, name, digest_of(name), name, not_after))


def logged_expiries(gateway: Gateway) -> list[tuple[str | None, float | None]]:
    rows = gateway.events("system", "certificate_expires")
    return [(row.source, row.value) for row in rows]


def test_expiring_certificates_are_logged_once_a_day(gateway: Gateway) -> None:
    issue(gateway, "soon", 7.5)
    issue(gateway, "later", 300)
    for hours, expected in ((0, [7.0]), (1, [7.0]), (24, [7.0, 6.0])):
        gateway.clock.service += hours * 3600
        gateway.tx(background_tasks.log_expiring_certificates)
        assert logged_expiries(gateway) == [("soon", days) for days in expected]


def test_a_clock_set_back_does_not_suppress_the_log(gateway: Gateway) -> None:
    issue(gateway, "soon", 7.5)
    for days in (0, -10):
        gateway.clock.wall_offset = days * DAY_MS
        gateway.tx(background_tasks.log_expiring_certificates)
    assert [source for source, _ in logged_expiries(gateway)] == ["soon", "soon"]


GATEWAY: Final = options.Gateway(domain="gw.example")


async def test_the_server_certificate_is_renewed_and_failures_are_counted(tmp_path: Path) -> None:
    async with in_process(tmp_path) as front:
        folder, refusals = front.gateway.folder, RefusalCounters()
        server = pki.files(folder).server
        before, now = server.read_bytes(), round(time.time() * 1000)

        async def check(at: int) -> None:
            args = (folder, GATEWAY, at, front.store, refusals)
            await background_tasks.check_certificates(*args)

        for days, renewed in ((0, False), (5 * 365 - 100, True)):
            await check(now + days * DAY_MS)
            assert (server.read_bytes() != before) == renewed
        assert refusals.take() == {}
        server.unlink()
        await check(now)
        assert refusals.take() == {"server_certificate": 1}


async def test_a_blocked_event_loop_feeds_no_watchdog(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This lets systemd end a gateway that hangs while its threads run."""
    monkeypatch.chdir(tmp_path)  # a socket's path has 107 bytes at most
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind("notify")
        systemd.setblocking(False)
        monkeypatch.setenv("NOTIFY_SOCKET", "notify")
        task = asyncio.create_task(background_tasks.feed_watchdog(0.001))
        for _ in range(3):
            assert await asyncio.get_running_loop().sock_recv(systemd, 100) == b"WATCHDOG=1"
        with suppress(BlockingIOError):
            while systemd.recv(100):
                pass
        systemd.settimeout(0.1)  # meanwhile the event loop is blocked
        with pytest.raises(TimeoutError):
            systemd.recv(100)
        task.cancel()
