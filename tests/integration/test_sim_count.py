from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from firmware_sim.__main__ import main
from firmware_sim.device.limits import OutboxLimits, SendPolicy
from firmware_sim.device.outbox import Outbox
from firmware_sim.scenarios.count import CountSettings, count
from firmware_sim.scenarios.count_verdict import judge
from firmware_sim.scenarios.faults import Fault
from firmware_sim.scenarios.record import Key, RunRecord, outbox
from tests.helpers.gateway import DOMAIN, PASSWORD, Gateway
from tests.helpers.scripted_peer import Certificate, ScriptedPeer, Stanza

NAMES = ("pump1", "pump2", "pump3")
POLICY = SendPolicy(retry_base=0.2, retry_cap=1.0, max_attempts=50)


class Custody:
    """A receiver by the specification, in memory: for the scripted server."""

    def __init__(self) -> None:
        self.held: dict[tuple[str, str], Key] = {}
        self.released: set[tuple[str, str]] = set()
        self.delivered: list[Key] = []

    def __call__(self, stanza: Stanza) -> str:
        key = (stanza.source, stanza.msg_id)
        if stanza.step == "assured":
            log = stanza.payload[0][0]
            tags = {tag.get("name"): tag.get("value") for tag in log[1:]}
            self.held[key] = (stanza.source, int(tags["n"] or 0))
            return stanza.received()
        if key in self.held:
            self.delivered.append(self.held.pop(key))
            self.released.add(key)
        known = key in self.released
        return stanza.result() if known else stanza.error("cancel", "item-not-found")


def settings(peer: ScriptedPeer, state: Path, **more: object) -> CountSettings:
    values: dict[str, object] = {
        "host": "127.0.0.1",
        "port": peer.port,
        "ca_file": peer.certificate.ca_file,
        "passwords": dict.fromkeys(NAMES, "secret"),
        "state": state,
        "seconds": 1.0,
        "patience": 60.0,
        "policy": POLICY,
    }
    return CountSettings(**{**values, **more})  # type: ignore[arg-type]


async def test_each_message_is_delivered_once_with_a_fault_at_each(
    certificate: Certificate, tmp_path: Path, seed: int
) -> None:
    custody = Custody()
    lines: list[str] = []
    run = RunRecord.begin(tmp_path, DOMAIN, NAMES, 25)
    async with ScriptedPeer(certificate, custody).running() as peer:
        happened = await count(run, settings(peer, tmp_path, faults=1.0, seed=seed), lines.append)
    found = judge(run.planned, run.believed(tmp_path), custody.delivered)
    assert found.exact, found.lines()
    assert len(happened) >= len(Fault) - 1
    assert happened.total() > 60
    assert happened.keys() <= {fault.value for fault in Fault}, "no device stays offline"
    assert all(re.search(r"/75 delivered, .* [0-3] devices online", line) for line in lines)


async def test_a_run_times_out_and_a_second_call_continues_it(
    certificate: Certificate, tmp_path: Path
) -> None:
    custody = Custody()
    run = RunRecord.begin(tmp_path, DOMAIN, NAMES, 3)
    peer = ScriptedPeer(certificate, custody).reserve()
    happened = await count(run, settings(peer, tmp_path, seconds=0.1, patience=2.0))
    found = judge(run.planned, run.believed(tmp_path), custody.delivered)
    assert [found.numbers[name] for name in ("sent", "pending", "logged")] == [9, 9, 0]
    assert happened.total() == 3
    assert all(name.startswith("offline: ") for name in happened)
    async with peer.running():
        await count(run, settings(peer, tmp_path))
    assert judge(run.planned, run.believed(tmp_path), custody.delivered).exact


async def test_a_full_outbox_slows_a_device_and_loses_nothing(
    certificate: Certificate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    custody = Custody()
    small = OutboxLimits(messages=1, keep_done=10)
    monkeypatch.setattr(RunRecord, "limits", property(lambda _: small))
    run = RunRecord.begin(tmp_path, DOMAIN, NAMES, 3)
    async with ScriptedPeer(certificate, custody).running() as peer:
        await count(run, settings(peer, tmp_path, seconds=0.0))
    assert judge(run.planned, run.believed(tmp_path), custody.delivered).exact


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Gateway:
    return Gateway(tmp_path_factory.mktemp("gateway") / "gw", *NAMES)


@pytest.fixture
def command(gateway: Gateway, port: int, tmp_path: Path) -> list[str]:
    accounts = tmp_path / "accounts.json"
    accounts.write_text(json.dumps(dict.fromkeys(NAMES, PASSWORD)))
    words = ["run", "count", "--port", str(port), "--domain", DOMAIN]
    words += ["--ca", str(gateway.ca), "--accounts", str(accounts)]
    words += ["--state", str(tmp_path / "run"), "--retry-base", "1", "--seconds", "0.5"]
    return [*words, "--messages", "5"]


def test_the_command_prints_its_verdict(gateway: Gateway, command: list[str]) -> None:
    words = [*command, "--devices", "2", "--faults", "0.3", "--gateway-dir", str(gateway.folder)]
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 0, done.output
    lines = done.output.splitlines()
    assert lines[0] == "planned             10"
    assert "verdict          exact" in lines
    assert any(line.startswith("seconds: ") for line in lines)


def test_the_verdict_is_none_without_the_gateways_log(command: list[str]) -> None:
    done = CliRunner().invoke(main, [*command, "--devices", "1"])
    assert done.exit_code == 0, done.output
    assert "verdict           none" in done.output


def test_an_unfinished_run_fails_and_prints_the_reason(command: list[str]) -> None:
    at = command.index("--port") + 1
    words = [*command[:at], "1", *command[at + 1 :], "--devices", "1", "--patience", "0.3"]
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 1
    assert "pending              5" in done.output
    assert "offline: " in done.output


def test_an_outbox_in_use_is_reported_in_one_line(command: list[str], tmp_path: Path) -> None:
    run = RunRecord.begin(tmp_path / "run", DOMAIN, ("pump1",), 5)
    jid = run.jid("pump1")
    with Outbox.open(outbox(tmp_path / "run", jid), jid, run.limits):
        done = CliRunner().invoke(main, [*command, "--devices", "1"])
    assert done.exit_code == 1
    assert done.stderr.startswith("fieldpost-sim: ")
    assert len(done.stderr.splitlines()) == 1
    assert "locked" in done.stderr


def test_progress_is_shown_on_a_terminal(command: list[str]) -> None:
    terminal, stderr = os.openpty()
    program = str(Path(sys.executable).with_name("fieldpost-sim"))
    try:
        done = subprocess.run(
            [program, *command, "--devices", "1", "--json"],
            stdout=subprocess.PIPE,
            stderr=stderr,
            timeout=60,
            check=False,
        )
        output = os.read(terminal, 10_000).decode()
    finally:
        os.close(terminal)
        os.close(stderr)
    assert done.returncode == 0, output
    assert "/5 delivered" in output
    assert json.loads(done.stdout)["delivered"] == 5
