"""The programs in `examples/`, each run against a gateway."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from edge.ops import devices
from tests.helpers.gateway import DOMAIN, PASSWORD, Gateway
from tests.helpers.processes import Process

EXAMPLES = Path(__file__).parents[2] / "examples"
WAIT_S = 60.0


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Gateway:
    gateway = Gateway(tmp_path_factory.mktemp("gw") / "gateway", "pump1")
    devices.add(gateway.folder, "cam1", None, trusted=True, certificate=True)
    return gateway


@pytest.fixture(scope="module")
def process(gateway: Gateway) -> Iterator[Process]:
    with gateway.run() as process:
        yield process


def command(gateway: Gateway, process: Process, name: str, *words: object) -> list[str]:
    port = process.host_port("xmpps" if name == "certificate.py" else "xmpp")[1]
    place = (sys.executable, EXAMPLES / name, "127.0.0.1", port, gateway.ca)
    return [*map(str, (*place, *words))]


def run(gateway: Gateway, process: Process, name: str, *words: object) -> str:
    done = subprocess.run(
        command(gateway, process, name, *words),
        input=f"{PASSWORD}\n",
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def readings(gateway: Gateway, name: str) -> list[tuple[str, float]]:
    found = [e for e in gateway.events("readings") if e["source"] == f"{name}@{DOMAIN}/fw"]
    return [(e["name"], e["value"]) for e in found]


def test_slixmpp_alone(gateway: Gateway, process: Process) -> None:
    run(gateway, process, "slixmpp_message.py", f"pump1@{DOMAIN}/fw")
    assert readings(gateway, "pump1") == [("temp", 21.5)]


def test_certificate(gateway: Gateway, process: Process, tmp_path: Path) -> None:
    files = gateway.folder / "devices" / "cam1"
    secrets = (files / "cert.pem", files / "key.pem")
    jid = f"cam1@{DOMAIN}/fw"
    out = run(gateway, process, "certificate.py", jid, *secrets, tmp_path / "outbox.db")
    assert out == "delivered: 1\n"
    assert readings(gateway, "cam1") == [("temp", 21.5)]


def test_share(gateway: Gateway, process: Process, tmp_path: Path) -> None:
    gateway.command("node", "create", "plant/a")
    with subprocess.Popen(
        command(gateway, process, "share.py", f"pump1@{DOMAIN}/reader", tmp_path),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as running:
        try:
            assert running.stdin is not None
            assert running.stdout is not None
            running.stdin.write(f"{PASSWORD}\n")
            running.stdin.flush()
            assert running.stdout.readline() == "subscribed\n"
            gateway.command("send", "--node", "plant/a", "text")
            out, _ = running.communicate(timeout=WAIT_S)
            assert out.startswith("plant/a ")
        finally:
            running.kill()
