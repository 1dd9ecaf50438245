"""Enrolment records, tokens, folder lock and log lines."""

from __future__ import annotations

import json
import logging
import os
import pwd
import threading
from pathlib import Path

import pytest

from sync.common import json_log
from sync.common.enrolment import new_token, token_digest
from sync.common.errors import FleetError
from sync.common.fleet_folder import GATEWAY_LENGTH, FleetFolder, is_enrollable
from sync.receiver.gateways import GatewayRegistry
from tests.helpers.fleet import GATEWAY, OTHER
from tests.helpers.fleet_command import fleet_command

URL = "https://centre.example:8443"


@pytest.fixture
def gateways(folder: FleetFolder) -> GatewayRegistry:
    return GatewayRegistry(folder)


def enrol(gateways: GatewayRegistry, gateway: str = GATEWAY, *, renew: bool = False) -> str:
    token = new_token()
    gateways.enrol(gateway, URL, token, 1_000, renew=renew)
    return token


@pytest.mark.parametrize("token", ["", "a", "a" * 43, "a" * 129, "\xe4" * 43, "\udce4" * 43])
def test_invalid_tokens_identify_nobody(gateways: GatewayRegistry, token: str) -> None:
    enrol(gateways)
    assert gateways.authenticate(token) is None


def test_token_is_not_stored(folder: FleetFolder, gateways: GatewayRegistry) -> None:
    token = enrol(gateways)
    record = folder.gateways / f"{GATEWAY}.json"
    assert token not in record.read_text()
    assert json.loads(record.read_text())["token_sha256"] == token_digest(token)
    assert record.stat().st_mode & 0o777 == 0o600


def test_enrolled_gateway_is_not_overwritten(gateways: GatewayRegistry) -> None:
    token = enrol(gateways)
    with pytest.raises(FleetError, match="--renew"):
        enrol(gateways)
    assert gateways.authenticate(token) == GATEWAY


def test_revoked_gateway_is_refused_until_renewed(gateways: GatewayRegistry) -> None:
    token = enrol(gateways)
    assert gateways.authenticate(token) == GATEWAY
    gateways.revoke(GATEWAY, 2_000)
    gateways.revoke(GATEWAY, 3_000)
    assert gateways.authenticate(token) is None
    assert [record.revoked for record in gateways.survey().records] == [2_000]
    with pytest.raises(FleetError):
        enrol(gateways)
    assert gateways.authenticate(enrol(gateways, renew=True)) == GATEWAY


def test_changes_of_another_process_take_effect_at_once(
    folder: FleetFolder, gateways: GatewayRegistry
) -> None:
    other_registry = GatewayRegistry(folder)
    for number in range(30):
        token = enrol(other_registry, f"gw{number}.example")
        assert gateways.authenticate(token) == f"gw{number}.example"
        other_registry.revoke(f"gw{number}.example", 1)
        assert gateways.authenticate(token) is None


def test_revoking_an_unknown_gateway_is_an_error(gateways: GatewayRegistry) -> None:
    with pytest.raises(FleetError, match="not enrolled"):
        gateways.revoke(GATEWAY, 1)


@pytest.mark.parametrize(
    "damage", ["", "{", "[]", '{"gateway": 1}', "x" * 20_000, {"gateway": OTHER}, {"version": 2}]
)
def test_damaged_record_is_reported_and_affects_no_other(
    folder: FleetFolder, gateways: GatewayRegistry, damage: str | dict[str, object]
) -> None:
    enrol(gateways)
    token = enrol(gateways, OTHER)
    path = folder.gateways / f"{GATEWAY}.json"
    if not isinstance(damage, str):
        damage = json.dumps(json.loads(path.read_text()) | damage)
    path.write_text(damage)
    survey = gateways.survey()
    assert [record.gateway for record in survey.records] == [OTHER]
    assert len(survey.faults) == 1
    assert GATEWAY in survey.faults[0]
    assert gateways.authenticate(token) == OTHER
    with pytest.raises(FleetError):
        gateways.get(GATEWAY)


@pytest.mark.parametrize(
    "name", ["", "..", "../x", "A.example", "a b", "a/b", "a" * 241, "ä.example"]
)
def test_invalid_gateway_names(gateways: GatewayRegistry, name: str) -> None:
    assert not is_enrollable(name)
    with pytest.raises(FleetError):
        enrol(gateways, name)


def test_longest_gateway_name(gateways: GatewayRegistry) -> None:
    name = "a" * GATEWAY_LENGTH
    assert gateways.authenticate(enrol(gateways, name)) == name


def test_folder_lock_is_exclusive(folder: FleetFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sync.common.fleet_folder.LOCK_WAIT_S", 0.0)
    with folder.locked(), pytest.raises(FleetError, match="another command"), folder.locked():
        pass
    with folder.locked():
        pass


def test_folder_lock_is_waited_for(folder: FleetFolder) -> None:
    lock_held, waited = threading.Event(), list[bool]()

    def wait() -> None:
        lock_held.wait(10)
        with folder.locked():
            waited.append(True)

    waiter = threading.Thread(target=wait)
    waiter.start()
    with folder.locked():
        lock_held.set()
        waiter.join(0.1)
        assert not waited
    waiter.join(10)
    assert waited


def test_log_line_is_one_json_object(capsys: pytest.CaptureFixture[str]) -> None:
    root = logging.getLogger()
    before = (root.handlers[:], root.level)
    try:
        json_log.log_to_stderr()
        json_log.log_event(logging.INFO, "refused", path='/a"\n{"level":"error"}', status=401)
        try:
            raise ValueError("why")
        except ValueError:
            logging.getLogger("aiohttp").exception("it broke")
    finally:
        root.handlers[:] = before[0]
        root.setLevel(before[1])
        json_log.LOGGER.setLevel(logging.NOTSET)
    first, second = (json.loads(line) for line in capsys.readouterr().err.splitlines())
    assert (first["event"], first["level"], first["status"]) == ("refused", "info", 401)
    assert first["path"] == '/a"\n{"level":"error"}'
    assert (second["event"], second["level"]) == ("it broke", "error")
    assert "ValueError: why" in second["trace"]


def test_missing_fleet_folder_is_reported(tmp_path: Path) -> None:
    with pytest.raises(FleetError, match="not a fleet folder"):
        FleetFolder(tmp_path).require()
    (tmp_path / "file").write_text("")
    with pytest.raises(FleetError, match="cannot create"):
        FleetFolder(tmp_path / "file").create()


def test_denied_folder_names_its_owner(
    folder: FleetFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda _path, _mode: False)
    completed = fleet_command("gateway", "list", "--dir", folder.root)
    message = f"Error: cannot access {folder.root}; run this command as its owner, "
    assert (completed.returncode, completed.stderr) == (1, f"{message}{folder.root.owner()}\n")
    monkeypatch.setattr(pwd, "getpwuid", {}.__getitem__)
    completed = fleet_command("gateway", "list", "--dir", folder.root)
    assert completed.stderr == f"{message}{folder.root.stat().st_uid}\n"
