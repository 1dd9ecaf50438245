"""The certificate table: owners, revocation, expiry and limits."""

from __future__ import annotations

from functools import partial

import pytest

from edge import credentials
from edge.engine.rules.service_time import DAY_MS
from edge.errors import SetupError
from edge.features.accounts.store import accounts, certificates
from edge.features.accounts.store.certificates import MAX_VALID, RETENTION_MS, ExpiringDevice
from tests.helpers import issued_certificates
from tests.helpers.store import Gateway, MakeGateway, digest_of


@pytest.fixture
def gateway(make_gateway: MakeGateway) -> Gateway:
    gateway = make_gateway()
    gateway.add("pump1")
    gateway.add("pump2")
    return gateway


def issue(gateway: Gateway, name: str, serial: str, days: float = 365) -> None:
    not_after = gateway.clock().wall + round(days * DAY_MS)
    gateway.tx(lambda tx: certificates.add(tx, name, digest_of(serial), serial, not_after))


def owner(gateway: Gateway, serial: str) -> str | None:
    return gateway.tx(lambda tx: certificates.find_owner(tx, digest_of(serial)))


def expiring(gateway: Gateway) -> list[str]:
    now = gateway.clock().wall
    found = gateway.tx(lambda tx: certificates.find_expiring(tx, now, 30))
    return [device.name for device in found]


def test_certificate_belongs_to_its_device_until_it_is_revoked(gateway: Gateway) -> None:
    for name, serial in (("pump1", "a"), ("pump1", "b"), ("pump2", "c")):
        issue(gateway, name, serial)
    assert [owner(gateway, serial) for serial in "abcd"] == ["pump1", "pump1", "pump2", None]
    revoked = [gateway.tx(lambda tx: certificates.revoke(tx, "pump1")) for _ in range(2)]
    assert revoked == [2, 0]
    assert [owner(gateway, serial) for serial in "abc"] == [None, None, "pump2"]
    now = gateway.clock().wall
    assert gateway.tx(certificates.list_revoked) == [("a", now), ("b", now)]


def test_certificate_of_a_revoked_device_has_no_owner_until_restored(gateway: Gateway) -> None:
    issue(gateway, "pump1", "a")
    assert gateway.tx(lambda tx: accounts.revoke(tx, "pump1"))
    assert owner(gateway, "a") is None
    assert gateway.tx(lambda tx: accounts.restore(tx, "pump1"))
    assert owner(gateway, "a") == "pump1"


def test_certificate_of_a_removed_device_has_no_owner(gateway: Gateway) -> None:
    issue(gateway, "pump1", "a")
    gateway.tx(lambda tx: accounts.remove(tx, "pump1"))
    gateway.add("pump1")
    assert owner(gateway, "a") is None
    (row,) = gateway.tx(issued_certificates.list_all)
    assert (row.fingerprint, row.name, row.serial) == (digest_of("a"), "pump1", "a")
    assert gateway.tx(lambda tx: certificates.revoke(tx, "pump1")) == 0


def test_unknown_device_gets_no_certificate(gateway: Gateway) -> None:
    with pytest.raises(SetupError, match="device 'pump3' does not exist"):
        issue(gateway, "pump3", "a")


def test_valid_certificates_of_a_device_are_limited(gateway: Gateway) -> None:
    issue(gateway, "pump1", "old", days=-1)
    for number in range(MAX_VALID):
        issue(gateway, "pump1", str(number))
    with pytest.raises(SetupError, match=f"has {MAX_VALID} certificates already"):
        issue(gateway, "pump1", "more")
    issue(gateway, "pump2", "another's")
    gateway.tx(lambda tx: certificates.revoke(tx, "pump1"))
    issue(gateway, "pump1", "more")


def test_certificates_expired_long_ago_are_deleted(gateway: Gateway) -> None:
    issue(gateway, "pump1", "expired", days=1)
    issue(gateway, "pump2", "another's", days=1)
    gateway.add("pump3")
    issue(gateway, "pump3", "revoked", days=1)
    gateway.tx(lambda tx: certificates.revoke(tx, "pump3"))
    gateway.clock.wall_offset += RETENTION_MS + DAY_MS
    issue(gateway, "pump1", "current")
    assert [row.serial for row in gateway.tx(issued_certificates.list_all)] == [
        *("expired", "current", "another's", "revoked")
    ]
    gateway.clock.wall_offset += 1
    issue(gateway, "pump1", "next")
    serials = [row.serial for row in gateway.tx(issued_certificates.list_all)]
    assert serials == ["current", "next", "another's"], (
        "a wrong clock does not delete other devices' certificates"
    )


def test_expiring_devices_are_found(gateway: Gateway) -> None:
    for name, days in (("pump3", 30.001), ("pump4", -0.001), ("pump5", 3.0), ("pump6", 2.0)):
        gateway.add(name)
        issue(gateway, name, name, days)
    issue(gateway, "pump1", "a", days=30)
    issue(gateway, "pump2", "old", days=1)
    issue(gateway, "pump2", "new", days=300)
    gateway.tx(lambda tx: certificates.revoke(tx, "pump6"))
    assert expiring(gateway) == ["pump5", "pump1"]
    gateway.tx(lambda tx: accounts.revoke(tx, "pump5"))
    assert expiring(gateway) == ["pump1"]
    now = gateway.clock().wall
    assert gateway.tx(lambda tx: certificates.find_expiring(tx, now, 30)) == [
        ExpiringDevice("pump1", now + 30 * DAY_MS)
    ]


def test_devices_without_a_password_whose_last_certificate_has_expired_are_found(
    gateway: Gateway,
) -> None:
    issue(gateway, "pump1", "expired", days=-1)
    issue(gateway, "pump2", "old", days=-1)
    issue(gateway, "pump2", "new", days=1)
    now = gateway.clock().wall

    def expired() -> list[str]:
        return [row.name for row in gateway.tx(lambda tx: certificates.find_expired(tx, now))]

    assert expired() == ["pump1"]
    keys = credentials.derive("secret", credentials.ITERATIONS)
    gateway.tx(lambda tx: accounts.set_credentials(tx, "pump1", keys))
    assert expired() == [], "it can log in with its password"


def test_expiring_devices_are_limited(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(certificates, "MAX_EXPIRING", 1)
    issue(gateway, "pump1", "a", days=2)
    issue(gateway, "pump2", "b", days=1)
    assert expiring(gateway) == ["pump2"]


def test_latest_expiry_of_each_device(gateway: Gateway) -> None:
    issue(gateway, "pump1", "a", days=2)
    issue(gateway, "pump1", "b", days=1)
    assert gateway.tx(certificates.latest_expiry) == {"pump1": gateway.clock().wall + 2 * DAY_MS}
    gateway.tx(lambda tx: certificates.revoke(tx, "pump1"))
    assert gateway.tx(certificates.latest_expiry) == {}


def test_revocation_list_numbers_rise(gateway: Gateway) -> None:
    minimums = (1_700_000_000, 1_700_000_000, 5, 1_800_000_000)
    numbers = [gateway.tx(partial(certificates.next_crl_number, least=least)) for least in minimums]
    assert numbers == [1_700_000_000, 1_700_000_001, 1_700_000_002, 1_800_000_000]
