"""The device against the real gateway: the documented example, faults, order, a whole run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from firmware_sim.device.limits import ReconnectPolicy, SendPolicy
from tests.helpers.gateway import DOMAIN, Gateway, port_of
from tests.helpers.guide_examples import run_example
from tests.helpers.processes import Process

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
