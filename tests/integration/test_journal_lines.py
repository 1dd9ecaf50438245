"""The standard error of a running gateway, and its watchdog."""

from __future__ import annotations

import json
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from tests.helpers.gateway import Gateway, bind_session
from tests.helpers.processes import Process, start, systemd
from tests.helpers.xmpp import condition

WITHOUT_ID = "<assured xmlns='urn:xmpp:qos'><message xmlns='jabber:client'/></assured>"


@pytest.fixture
def gateway(tmp_path: Path) -> Gateway:
    return Gateway(tmp_path / "gateway", "pump1", require_tls=False)


def run(gateway: Gateway, *options: str) -> Process:
    return start("fieldpost", "run", "--dir", gateway.folder, *options)


async def send_malformed(process: Process) -> None:
    """Send a malformed request, which is logged at once."""
    async with await bind_session(process, "pump1") as device:
        assert condition(await device.iq("set", WITHOUT_ID)) == "bad-request"


async def test_a_warning_is_written_once_and_immediately(gateway: Gateway) -> None:
    with run(gateway) as process:
        await send_malformed(process)
        process.wait_for_stderr("Warning: limit malformed (source=pump1@gw.example, value=1)\n")
        assert process.terminate() == 0
        assert process.stderr.count("\n") == 1, process.stderr
    assert "malformed" in [event["name"] for event in gateway.events("system")]


async def test_options_set_the_log_level_and_the_format(gateway: Gateway) -> None:
    with run(gateway, "--log-level", "informational", "--log-format=json") as process:
        await send_malformed(process)
        process.wait_for_stderr("malformed")
        assert process.terminate() == 0
        lines = [json.loads(line) for line in process.stderr.splitlines()]
    found = [(line["level"], line["kind"], line["name"]) for line in lines]
    assert found[0] == ("Informational", "system", "start")
    assert ("Warning", "limit", "malformed") in found
    assert found[-1] == ("Informational", "system", "stop")


async def test_systemd_reads_priorities(gateway: Gateway) -> None:
    """`stat` makes the pipe to this test the journal's stream."""
    script = 'JOURNAL_STREAM=$(stat -Lc %d:%i /dev/fd/2) exec "$0" run --dir "$1"'
    command = Path(sys.executable).with_name("fieldpost")
    with start("sh", "-c", script, command, gateway.folder) as process:
        await send_malformed(process)
        process.wait_for_stderr("<4>limit malformed (source=pump1@gw.example, value=1)\n")
        with start("sh", "-c", script, command, gateway.folder, ready=False) as second:
            assert second.wait() == 1
            assert second.stderr.startswith("<3>a gateway is already running in ")
        assert process.terminate() == 0


def test_the_watchdog_is_fed_while_the_event_loop_runs(gateway: Gateway) -> None:
    with systemd() as (notify_socket, env):
        env["WATCHDOG_USEC"] = "200000"
        with start("fieldpost", "run", "--dir", gateway.folder, env=env) as process:
            assert notify_socket.recv(1000).startswith(b"READY=1\nSTATUS=ok")
            assert [notify_socket.recv(100) for _ in range(3)] == [b"WATCHDOG=1"] * 3
            os.kill(process.pid, signal.SIGSTOP)
            os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
            notify_socket.setblocking(False)
            with suppress(BlockingIOError):
                while notify_socket.recv(100) == b"WATCHDOG=1":
                    pass
            notify_socket.settimeout(30)
            os.kill(process.pid, signal.SIGCONT)
            assert notify_socket.recv(100) == b"WATCHDOG=1"
            os.kill(process.pid, signal.SIGABRT)
            assert process.wait() == -signal.SIGABRT
            assert "(most recent call first)" in process.stderr
