"""The certificate authority and the receiver's certificate."""

from __future__ import annotations

import datetime as dt
import ssl

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519

from sync.common.errors import FleetError
from sync.common.fleet_folder import FleetFolder
from sync.receiver.pki import MAX_NAMES, RENEW_DAYS, SERVER_DAYS, Authority

NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


@pytest.fixture
def authority(folder: FleetFolder) -> Authority:
    """An authority that has issued a certificate for `centre.example`."""
    authority = Authority(folder.pki)
    authority.ensure(("centre.example",), NOW)
    return authority


def server_certificate(folder: FleetFolder) -> x509.Certificate:
    return x509.load_pem_x509_certificate(Authority(folder.pki).server.read_bytes())


def names(folder: FleetFolder) -> set[str]:
    certificate = server_certificate(folder)
    found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    return {str(name.value) for name in found.value}


def test_keys_are_private(folder: FleetFolder) -> None:
    assert Authority(folder.pki).ensure(("centre.example",), NOW)
    modes = {path.name: path.stat().st_mode & 0o777 for path in folder.pki.iterdir()}
    assert modes == {"ca.pem": 0o644, "ca.key": 0o600, "server.pem": 0o644, "server.key": 0o600}
    assert folder.root.stat().st_mode & 0o777 == folder.pki.stat().st_mode & 0o777 == 0o700


def test_certificate_passes_strict_verification(folder: FleetFolder) -> None:
    authority = Authority(folder.pki)
    authority.ensure(("centre.example", "192.0.2.1", "2001:db8::1"), dt.datetime.now(dt.UTC))
    for name in ("centre.example", "192.0.2.1", "2001:db8::1"):
        handshake(authority, name)
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(authority, "else.example")


def handshake(authority: Authority, name: str) -> None:
    """Do a TLS handshake in memory with a strict client that trusts the authority."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(authority.server, authority.server_key)
    trusting = ssl.create_default_context(cafile=str(authority.ca))
    trusting.verify_flags |= ssl.VERIFY_X509_STRICT
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = (
        trusting.wrap_bio(down, up, server_hostname=name),
        server.wrap_bio(up, down, server_side=True),
    )
    finished = set[int]()
    for _ in range(8):
        for number, side in enumerate(sides):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
            finished.add(number)
    assert finished == {0, 1}


def test_valid_certificate_is_kept(authority: Authority) -> None:
    before = authority.server.read_bytes()
    assert not authority.ensure(("centre.example",), NOW)
    assert not authority.ensure((), NOW)
    assert authority.server.read_bytes() == before


def test_new_host_is_added_without_changing_keys(authority: Authority, folder: FleetFolder) -> None:
    kept = (authority.ca.read_bytes(), authority.server_key.read_bytes())
    assert authority.ensure(("192.0.2.1",), NOW)
    assert names(folder) == {"centre.example", "192.0.2.1"}
    assert (authority.ca.read_bytes(), authority.server_key.read_bytes()) == kept


def test_expiring_certificate_is_renewed(authority: Authority, folder: FleetFolder) -> None:
    assert not authority.ensure((), NOW + dt.timedelta(days=SERVER_DAYS - RENEW_DAYS - 1))
    later = NOW + dt.timedelta(days=SERVER_DAYS - RENEW_DAYS)
    assert authority.ensure((), later)
    assert server_certificate(folder).not_valid_after_utc == later + dt.timedelta(days=SERVER_DAYS)
    assert names(folder) == {"centre.example"}


@pytest.mark.parametrize("years", [-20, 3, 15])
def test_a_certificate_renewed_by_a_wrong_clock_is_valid_now(
    authority: Authority, folder: FleetFolder, years: int
) -> None:
    """Otherwise no gateway could connect until that time."""
    authority.ensure((), NOW + dt.timedelta(days=365 * years))
    assert server_certificate(folder).not_valid_before_utc < NOW
    assert server_certificate(folder).not_valid_after_utc > NOW


def test_a_certificate_that_is_not_valid_yet_is_renewed(folder: FleetFolder) -> None:
    authority = Authority(folder.pki)
    authority.ensure(("centre.example",), NOW + dt.timedelta(days=3 * 365))
    assert authority.ensure((), NOW)
    assert server_certificate(folder).not_valid_before_utc < NOW


@pytest.mark.parametrize("host", ["", "a b", "*.example", "a..b", "x" * 70 + ".example"])
def test_invalid_host_is_refused(folder: FleetFolder, host: str) -> None:
    with pytest.raises(FleetError, match="neither"):
        Authority(folder.pki).ensure((host,), NOW)


def test_international_host_name_is_encoded(folder: FleetFolder) -> None:
    Authority(folder.pki).ensure(("München.example",), NOW)
    assert names(folder) == {"xn--mnchen-3ya.example"}


def test_certificate_needs_a_host(folder: FleetFolder) -> None:
    with pytest.raises(FleetError, match="enrol a gateway"):
        Authority(folder.pki).ensure((), NOW)


def test_hosts_are_limited(folder: FleetFolder) -> None:
    authority = Authority(folder.pki)
    authority.ensure([f"c{number}.example" for number in range(MAX_NAMES)], NOW)
    with pytest.raises(FleetError, match="more than"):
        authority.ensure(("one-more.example",), NOW)


@pytest.mark.parametrize("name", ["ca.pem", "ca.key", "server.pem", "server.key"])
def test_damaged_file_is_reported(authority: Authority, folder: FleetFolder, name: str) -> None:
    (folder.pki / name).write_text("spoiled")
    with pytest.raises(FleetError, match=name):
        authority.ensure(("another.example",), NOW)


def test_key_of_another_type_is_refused(authority: Authority) -> None:
    other = ed25519.Ed25519PrivateKey.generate().private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    authority.server_key.write_bytes(other)
    with pytest.raises(FleetError, match="elliptic"):
        authority.ensure(("another.example",), NOW)


def test_existing_authority_key_is_kept(authority: Authority, folder: FleetFolder) -> None:
    key = (folder.pki / "ca.key").read_bytes()
    authority.ca.unlink()
    authority.server.unlink()
    assert authority.ensure(("centre.example",), NOW)
    assert (folder.pki / "ca.key").read_bytes() == key
