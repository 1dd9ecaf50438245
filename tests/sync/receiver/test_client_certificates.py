"""Enrolment with a client certificate: file, record, list."""

from __future__ import annotations

import datetime as dt
import json
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from cryptography import x509

from sync.common.enrolment import parse_enrolment
from sync.common.fleet_folder import FleetFolder
from sync.receiver.client_certificates import verify
from sync.receiver.gateways import GatewayRecord, GatewayRegistry
from tests.helpers.fleet import GATEWAY, make_fleet
from tests.helpers.fleet_command import Command, fleet_command

NOW = dt.datetime.now(dt.UTC)


@pytest.fixture
def fleet(tmp_path: Path) -> Command:
    """Run a command on the test's fleet folder."""
    return partial(fleet_command, environ={"FIELDPOST_FLEET_DIR": str(tmp_path / "fleet")})


def gateways_of(tmp_path: Path) -> GatewayRegistry:
    return GatewayRegistry(FleetFolder(tmp_path / "fleet"))


def add(fleet: Command, *options: str) -> dict[str, Any]:
    completed = fleet("gateway", "add", GATEWAY, "--url", "https://centre.example:8443", *options)
    assert completed.returncode == 0, completed.stderr
    return dict(json.loads(completed.stdout))


def test_enrolment_has_a_certificate_and_its_key(fleet: Command) -> None:
    document = add(fleet, "--certificate", "--days", "30")
    enrolment = parse_enrolment(json.dumps(document))
    certificate = x509.load_pem_x509_certificate(enrolment.certificate.encode())
    found = verify(enrolment.certificate.encode(), enrolment.ca.encode(), NOW)
    assert found is not None
    assert found.gateway == GATEWAY
    ends = certificate.not_valid_after_utc
    remaining = ends - dt.datetime.now(dt.UTC)
    assert abs(remaining - dt.timedelta(days=30)) < dt.timedelta(hours=1)
    assert f"certificate until {ends:%Y-%m-%d}, token" in fleet("gateway", "list").stdout
    listed = json.loads(fleet("gateway", "list", "--json").stdout)
    assert listed["certificate_ends"] == ends.timestamp() * 1_000


def test_enrolment_without_certificate_has_a_token_only(fleet: Command) -> None:
    document = add(fleet)
    assert not document.get("certificate")
    assert fleet("gateway", "list").stdout.rstrip().endswith("  token")


def test_renewing_invalidates_the_previous_certificate(fleet: Command, tmp_path: Path) -> None:
    before = add(fleet, "--certificate")
    after = add(fleet, "--certificate", "--renew")
    gateways = gateways_of(tmp_path)
    accepted = [
        gateways.accepts_certificate(*found)
        for each in (before, after)
        if (found := verify(each["certificate"].encode(), each["ca"].encode(), NOW))
    ]
    assert accepted == [False, True]
    add(fleet, "--renew")
    assert fleet("gateway", "list").stdout.rstrip().endswith("  token")


def test_days_without_certificate_are_wrong_usage(fleet: Command, tmp_path: Path) -> None:
    completed = fleet("gateway", "add", GATEWAY, "--url", "https://c.example", "--days", "9")
    assert completed.returncode == 2
    assert not (tmp_path / "fleet").exists()


def test_record_without_certificate_fields_is_read(tmp_path: Path) -> None:
    make_fleet(tmp_path / "fleet", (GATEWAY,))
    path = tmp_path / "fleet" / "gateways" / f"{GATEWAY}.json"
    old = {
        name: value
        for name, value in json.loads(path.read_text()).items()
        if not name.startswith("certificate")
    }
    path.write_text(json.dumps(old))
    record = gateways_of(tmp_path).get(GATEWAY)
    assert record == msgspec.convert(old, GatewayRecord)
    assert gateways_of(tmp_path).accepts_certificate(GATEWAY, 1)


def test_certificate_of_an_unknown_gateway_is_not_recorded(tmp_path: Path) -> None:
    make_fleet(tmp_path / "fleet", ())
    gateways = gateways_of(tmp_path)
    gateways.record_certificate(GATEWAY, 1)
    assert gateways.survey().records == []


def test_gateway_may_have_a_certificate_only(fleet: Command, tmp_path: Path) -> None:
    document = add(fleet, "--certificate", "--no-token")
    enrolment = parse_enrolment(json.dumps(document))
    assert enrolment.token == ""
    line = fleet("gateway", "list").stdout.rstrip()
    assert "certificate until" in line
    assert "token" not in line
    assert gateways_of(tmp_path).authenticate("") is None
    refused = fleet("gateway", "add", "x.example", "--url", "https://c.example", "--no-token")
    assert refused.returncode == 2
