"""The device against the real gateway: the documented example, faults, order, a whole run."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from firmware_sim.device.limits import ReconnectPolicy, SendPolicy
from tests.helpers.gateway import DOMAIN, PASSWORD, Gateway, port_of
from tests.helpers.guide_examples import run_example
from tests.helpers.processes import Process, free_port, start

POLICY = SendPolicy(retry_base=0.5, retry_cap=2.0)
RECONNECT = ReconnectPolicy(base=0.05, cap=0.2, stable=0.1)
NAMES = [f"pump{number}" for number in range(1, 6)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Gateway:
    return Gateway(tmp_path_factory.mktemp("gateway") / "gw", *NAMES)


@pytest.fixture(scope="module")
def running(folder: Gateway) -> Iterator[Process]:
    with folder.run() as process:
        yield process


def test_documented_example_runs(folder: Gateway, running: Process, tmp_path: Path) -> None:
    words = [f"pump1@{DOMAIN}/fw", "127.0.0.1", port_of(running), folder.ca, tmp_path / "outbox"]
    shown = run_example("send_log", tmp_path, *words)
    assert shown == ["1 done ", "2 done ", "3 done note-7"]
    mine = [e for e in folder.events() if e["source"] == f"pump1@{DOMAIN}/fw"]
    logged, note = (e for e in mine if e["kind"] == "log")
    assert (note["name"], note["text"], note["qos"]) == ("Note", "By hand.", 1)
    assert (logged["name"], logged["level"], logged["qos"]) == ("Started", "Notice", 2)
    assert (logged["text"], logged["tags"]["rpm"]) == ("The pump runs.", "1450")
    read = next(e for e in mine if e["kind"] == "reading")
    assert (read["name"], read["value"], read["unit"]) == ("temperature", 21.5, "°C")
    assert read["tags"]["node"] == "boiler1"
    system = list(folder.events("system"))
    assert system, "the start of the gateway at least"
    assert not [e for e in system if e["kind"] == "limit" or e["name"] == "dead"]


@pytest.mark.long
def test_run_with_faults_and_a_killed_gateway_is_exact(
    tmp_path: Path, scale: Callable[[int, int], int], seed: int
) -> None:
    port = free_port()
    gateway = Gateway(tmp_path / "gw", *NAMES, listen=f"127.0.0.1:{port}")
    accounts, state = tmp_path / "accounts.json", tmp_path / "run"
    accounts.write_text(json.dumps(dict.fromkeys(NAMES, PASSWORD)))
    command = ["fieldpost-sim", "run", "count", "--port", str(port), "--domain", DOMAIN]
    command += ["--ca", str(gateway.ca), "--accounts", str(accounts), "--state", str(state)]
    command += ["--devices", "5", "--messages", str(scale(30, 400)), "--seed", str(seed)]
    command += ["--seconds", str(scale(2, 60)), "--retry-base", "1", "--faults", "0.2"]
    command += ["--gateway-dir", str(gateway.folder), "--json"]
    with start(*command, ready=False) as run:
        for _ in range(scale(1, 10)):
            with gateway.run() as process:
                _until_logged(gateway, run)
                process.kill9()
        with gateway.run() as process:
            assert run.wait(200) == 0, run.stdout + run.stderr
            process.terminate()
    found = json.loads(run.stdout)
    assert found["exact"]
    assert found["planned"] == found["logged"] == 5 * scale(30, 400)
    assert "offline" not in run.stdout
    again = [
        "fieldpost-sim",
        "verdict",
        "--state",
        str(state),
        "--gateway-dir",
        str(gateway.folder),
    ]
    with start(*again, ready=False) as verdict:
        assert verdict.wait() == 0, verdict.stdout + verdict.stderr
    assert verdict.stdout.endswith("verdict          exact\n")


def _until_logged(gateway: Gateway, run: Process, more: int = 20) -> None:
    """Wait until the gateway has logged some more events, or the run ends, by asking it."""
    first = None
    while run.returncode is None:
        count = sum(1 for _ in gateway.events("logs"))
        first = count if first is None else first
        if count >= first + more:
            return
