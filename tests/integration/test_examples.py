"""The Python programs in `examples/`, each run against a gateway."""

from __future__ import annotations

import contextlib
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from edge.ops.devices import devices
from tests.helpers.gateway import DOMAIN, PASSWORD, Gateway
from tests.helpers.processes import Process

EXAMPLES = Path(__file__).parents[2] / "examples"
WAIT_S = 60.0


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Gateway:
    gateway = Gateway(tmp_path_factory.mktemp("gw") / "gateway", "pump1", "pump2")
    devices.add(gateway.folder, "cam1", None, trusted=True, certificate=True)
    return gateway


def command(gateway: Gateway, process: Process, name: str, *words: object) -> list[str]:
    port = process.host_port("xmpps" if name == "certificate.py" else "xmpp")[1]
    program = (sys.executable, EXAMPLES / name, "127.0.0.1", port, gateway.ca)
    return [*map(str, (*program, *words))]


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


@contextmanager
def running(
    gateway: Gateway, process: Process, name: str, *words: object
) -> Iterator[subprocess.Popen[str]]:
    """Start an example that does not end by itself, and kill it in the end."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # in background it is ignored
    try:
        child = subprocess.Popen(
            command(gateway, process, name, *words),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
    finally:
        signal.signal(signal.SIGINT, before)
    with child:
        limit = threading.Timer(WAIT_S, child.kill)
        limit.start()
        try:
            assert child.stdin is not None
            child.stdin.write(f"{PASSWORD}\n")
            child.stdin.flush()
            yield child
        finally:
            limit.cancel()
            child.kill()


def read_line(popen: subprocess.Popen[str]) -> str:
    assert popen.stdout is not None
    return popen.stdout.readline().rstrip("\n")


def test_device(gateway: Gateway, process: Process, tmp_path: Path) -> None:
    with running(gateway, process, "device.py", f"pump2@{DOMAIN}/fw", tmp_path) as device:
        for qos in (0, 1, 2):
            gateway.command("send", "--to", "pump2", "--qos", str(qos), f"at {qos}")
            assert read_line(device) == f"{qos} {DOMAIN} at {qos}"
    assert readings(gateway, "pump2") == [("litres", 1450.0), ("rpm", 2900.0)]
    source = f"pump2@{DOMAIN}/fw"
    logged = [e["name"] for e in gateway.events("logs") if e["source"] == source]
    assert logged == ["Started"]


def test_share(gateway: Gateway, process: Process, tmp_path: Path) -> None:
    gateway.command("node", "create", "plant/a")
    with running(gateway, process, "share.py", f"pump1@{DOMAIN}/reader", tmp_path) as share:
        assert read_line(share) == "subscribed"
        gateway.command("send", "--node", "plant/a", "text")
        out, _ = share.communicate(timeout=WAIT_S)
        node, _item, publisher = out.split()
        assert (node, publisher) == ("plant/a", DOMAIN)


def results(file: Path) -> list[str]:
    with contextlib.closing(sqlite3.connect(file)) as db:
        return [payload for (payload,) in db.execute("SELECT payload FROM results")]


def test_queue_worker_that_dies(gateway: Gateway, process: Process, tmp_path: Path) -> None:
    """Another worker repeats its work, and the result is stored once."""
    name, queue = "queue_worker.py", "jobs"
    one = (f"pump1@{DOMAIN}/worker", queue, tmp_path / "one.db")
    other = (f"pump2@{DOMAIN}/worker", queue, tmp_path / "other.db")
    gateway.command("node", "create", queue, "--queue")
    gateway.command("send", "--node", queue, "first")
    with running(gateway, process, name, *one, 3600) as worker:
        state, item, *rest = read_line(worker).split(" ", 2)
        assert (state, rest) == ("begun", ["earlier deliveries: 0"])
        worker.kill()
    with running(gateway, process, name, *other, 0) as worker:
        assert read_line(worker) == f"begun {item} earlier deliveries: 1"
        assert read_line(worker) == f"storing {item}"
        stop(worker)
    with running(gateway, process, name, *one, 0) as worker:
        gateway.command("send", "--node", queue, "second")
        state, second, _ = read_line(worker).split(" ", 2)
        assert second != item
        assert read_line(worker) == f"storing {second}"
        stop(worker)
    assert [len(results(tmp_path / file)) for file in ("other.db", "one.db")] == [1, 1]
    assert "first" in results(tmp_path / "other.db")[0]
    assert "second" in results(tmp_path / "one.db")[0]


def stop(worker: subprocess.Popen[str]) -> None:
    """Stop it by Ctrl-C, and wait until its file is closed."""
    worker.send_signal(signal.SIGINT)
    assert worker.wait(WAIT_S) == 0
