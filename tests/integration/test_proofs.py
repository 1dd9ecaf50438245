"""The proofs that run a gateway for long (`tests.proof`), for some seconds."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.proof import small_machine, soak
from tests.proof.group import version
from tests.proof.small_machine import Scale


def test_a_gateway_on_a_small_machine_loses_nothing(tmp_path: Path) -> None:
    groups = version()
    if groups is None:
        pytest.skip("this user cannot make control groups with memory and processor limits")
    if shutil.which("gcc") is None:
        pytest.skip("no gcc, which makes the library that delays fsync (make interop-packages)")
    result = small_machine.run(tmp_path, groups, Scale(2.0, 100, 1.0), xmpp=2, mqtt=3)
    assert result.passed, result.verdict.lines()
    assert result.waiting >= 100
    assert 0 < result.group <= small_machine.MEMORY
    assert "| a message a second |" in small_machine.page(result, "")


def test_a_short_soak_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(soak, "SAMPLE_S", 0.2)
    monkeypatch.setattr(soak, "CHANGE_S", 0.5)
    result = soak.run(tmp_path, 4.0)
    assert result.verdict.exact, result.verdict.lines()
    assert result.changes.reloads
    begun = result.samples[0].at  # before this, the server's certificate was replaced
    for devices in (result.load.devices[: soak.XMPP], result.load.devices[soak.XMPP :]):
        assert any(one.at > begun for device in devices for one in device.acknowledged)
    assert "| descriptors |" in soak.page(result, "")
