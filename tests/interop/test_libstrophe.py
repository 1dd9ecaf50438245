"""A client that is not slixmpp: libstrophe, in C, through an assured exchange over STARTTLS."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from tests.helpers.processes import start

if TYPE_CHECKING:
    from collections.abc import Iterator

DOMAIN = "gw.example"
PASSWORD = "libstrophe, and a space"
RESOURCE = "fw"
SOURCE = Path(__file__).with_name("strophe_client.c")
COMPILE_S = 60
CLIENT_S = 60


class Gateway(NamedTuple):
    folder: Path
    host: str
    port: int


def fieldpost(*words: str | Path) -> str:
    command = [Path(sys.executable).with_name("fieldpost"), *words]
    return subprocess.run(
        command, check=True, capture_output=True, text=True, timeout=COMPILE_S
    ).stdout


def init(folder: Path) -> Path:
    fieldpost("init", "--dir", folder, "--domain", DOMAIN, "--listen", "127.0.0.1:0")
    return folder


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Path:
    missing = [tool for tool in ("gcc", "pkg-config") if shutil.which(tool) is None]
    if missing:
        pytest.skip(f"no {' and no '.join(missing)} (make interop-packages)")
    flags = subprocess.run(
        ["pkg-config", "--cflags", "--libs", "libstrophe"],
        capture_output=True,
        text=True,
        check=False,
        timeout=COMPILE_S,
    )
    if flags.returncode:
        pytest.skip("no libstrophe-dev (make interop-packages)")
    program = tmp_path_factory.mktemp("strophe") / "strophe_client"
    strict = ["-std=c11", "-D_DEFAULT_SOURCE", "-Wall", "-Wextra", "-Werror"]
    subprocess.run(
        ["gcc", *strict, "-o", program, SOURCE, *flags.stdout.split()],
        check=True,
        timeout=COMPILE_S,
    )
    return program


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    folder = init(tmp_path_factory.mktemp("gateway") / "gw")
    for name in ("pump1", "pump2"):
        fieldpost("device", "add", name, "--dir", folder, "--password", PASSWORD)
    with start("fieldpost", "run", "--dir", folder) as process:
        yield Gateway(folder, *process.host_port("xmpp"))


def connect(
    client: Path, gateway: Gateway, device: str, ca: Path, password: str = PASSWORD
) -> subprocess.CompletedProcess[str]:
    jid = f"{device}@{DOMAIN}/{RESOURCE}"
    return subprocess.run(
        [client, gateway.host, str(gateway.port), jid, ca, f"{device}-1"],
        env={**os.environ, "STROPHE_PASSWORD": password},
        capture_output=True,
        text=True,
        check=False,
        timeout=CLIENT_S,
    )


def events_of(gateway: Gateway, device: str) -> list[dict[str, Any]]:
    lines = fieldpost("events", "--dir", gateway.folder, "--json").splitlines()
    events = [json.loads(line) for line in lines]
    return [event for event in events if event["source"] == f"{device}@{DOMAIN}/{RESOURCE}"]


def test_an_assured_exchange_ends_in_one_event(client: Path, gateway: Gateway) -> None:
    done = connect(client, gateway, "pump1", gateway.folder / "pki" / "ca.pem")
    assert done.returncode == 0, done.stdout + done.stderr
    said = done.stdout.splitlines()
    assert [line for line in said if not line.startswith(("feature", "disconnected"))] == [
        "secured 1",
        f"bound pump1@{DOMAIN}/{RESOURCE}",
        "done ping",
        "done disco",
        "done assured",
        "done assured-again",
        "done deliver",
        "done deliver-again",
    ]
    assert {"feature urn:xmpp:qos", "feature urn:xmpp:ping"} <= set(said)
    [event] = [event for event in events_of(gateway, "pump1") if event["kind"] == "log"]
    wanted = {
        "lane": "logs",
        "name": "pump.start",
        "level": "Warning",
        "text": "dry <run> of pump 1",
        "qos": 2,
    }
    assert {key: event[key] for key in wanted} == wanted
    assert event["latency_ms"] >= 0
    assert event["tags"] == {
        "flow": "12.5",
        "level": "Minor",
        "timestamp": "2024-02-29T12:00:00Z",
    }


def test_it_logs_in_by_the_strongest_scram_that_is_offered(client: Path, gateway: Gateway) -> None:
    done = connect(client, gateway, "pump2", gateway.folder / "pki" / "ca.pem")
    assert done.returncode == 0, done.stdout + done.stderr
    assert 'mechanism="SCRAM-SHA-256"' in done.stderr
    assert 'mechanism="PLAIN"' not in done.stderr


def test_a_wrong_password_binds_nothing(client: Path, gateway: Gateway) -> None:
    ca = gateway.folder / "pki" / "ca.pem"
    done = connect(client, gateway, "pump2", ca, password="not this one")
    assert done.returncode == 1
    assert "bound" not in done.stdout
    assert "not-authorized" in done.stderr


def test_the_client_refuses_a_gateway_of_another_ca(
    client: Path, gateway: Gateway, tmp_path: Path
) -> None:
    other = init(tmp_path / "other")
    done = connect(client, gateway, "pump2", other / "pki" / "ca.pem")
    assert done.returncode == 1
    assert "secured" not in done.stdout
