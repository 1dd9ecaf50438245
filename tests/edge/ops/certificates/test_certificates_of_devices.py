"""The gateway's certificates as OpenSSL sees them: devices', the server's, the revocation list."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from edge.engine.store.database import Transaction
from edge.errors import SetupError
from edge.ops import current_time, setup
from edge.ops.certificates import certificates, der, pki
from edge.ops.devices import devices
from sync.common.certificates import common_name, pem
from tests.helpers import issued_certificates
from tests.helpers.folder import change, query

DAY = 24 * 3600 * 1000
YEAR = 365 * DAY


def provision(folder: Path, name: str = "pump1") -> Path:
    place = devices.add(folder, name, None, trusted=True, certificate=True).certificate
    assert place is not None
    return place


def read(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


def crl_of(folder: Path) -> x509.CertificateRevocationList:
    return x509.load_pem_x509_crl(pki.files(folder).crl.read_bytes())


def server_context(folder: Path) -> ssl.SSLContext:
    paths = pki.files(folder)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(paths.server, paths.server_key)
    context.load_verify_locations(paths.ca)
    context.load_verify_locations(paths.crl)
    context.verify_mode = ssl.CERT_REQUIRED
    context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF | ssl.VERIFY_X509_STRICT
    return context


def shake_hands(server: ssl.SSLContext, place: Path) -> bytes | None:
    """Shake hands in memory as the device of `place`; return the certificate the server saw."""
    client = ssl.create_default_context(cafile=str(place / "ca.pem"))
    client.verify_flags |= ssl.VERIFY_X509_STRICT
    client.load_cert_chain(place / "cert.pem", place / "key.pem")
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    device = client.wrap_bio(down, up, server_hostname="gw.example")
    gateway = server.wrap_bio(up, down, server_side=True)
    for _ in range(3):
        for end in (device, gateway):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
    return gateway.getpeercert(binary_form=True)


def test_newer_revocation_list_wins_within_one_second(folder: Path) -> None:
    places = {name: provision(folder, name) for name in ("pump1", "pump2", "pump3")}
    server = server_context(folder)
    for name, place in places.items():
        assert shake_hands(server, place) is not None
        devices.revoke(folder, name)
        server.load_verify_locations(pki.files(folder).crl)
        with pytest.raises(ssl.SSLCertVerificationError, match="certificate revoked"):
            shake_hands(server, place)


def issue(
    ca: pki.Authority, jid: str, days: int = 1, now: int | None = None
) -> tuple[certificates.Issued, x509.Certificate]:
    issued = certificates.issue(ca, jid, days, current_time.now().wall if now is None else now)
    return issued, x509.load_pem_x509_certificate(issued.contents["cert.pem"].data)


@pytest.mark.parametrize(
    ("jid", "head"),
    [
        ("pump1@gw.example", b"\x0c\x10"),
        (f"pump1@{'a' * 60}.{'b' * 60}.example", b"\x0c\x81\x87"),
        (f"{'x' * 64}@{'d' * 253}", b"\x0c\x82\x01\x3e"),
    ],
    ids=["short", "128 bytes and more", "longest"],
)
def test_certificate_names_the_jid(folder: Path, jid: str, head: bytes) -> None:
    _, certificate = issue(pki.load(folder), jid)
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    (name,) = names
    assert isinstance(name, x509.OtherName)
    assert name.type_id.dotted_string == "1.3.6.1.5.5.7.8.5"
    assert name.value == head + jid.encode()


def test_certificate_is_for_clients_only(folder: Path) -> None:
    certificate = read(provision(folder) / "cert.pem")
    usage = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(usage) == [ExtendedKeyUsageOID.CLIENT_AUTH]
    constraints = certificate.extensions.get_extension_for_class(x509.BasicConstraints)
    assert (constraints.critical, constraints.value.ca) == (True, False)
    ca = read(pki.files(folder).ca)
    certificate.verify_directly_issued_by(ca)
    key_of_ca = ca.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    issuer = certificate.extensions.get_extension_for_class(x509.AuthorityKeyIdentifier).value
    assert issuer.key_identifier == key_of_ca.digest


def test_validity_starts_early_and_ends_with_the_ca(folder: Path) -> None:
    ca, now = pki.load(folder), current_time.now().wall

    def dates(days: int, at: int) -> tuple[datetime.datetime, datetime.datetime]:
        created, certificate = issue(ca, "p@gw.example", days, at)
        ends = certificate.not_valid_after_utc
        assert created.not_after == round(ends.timestamp() * 1000)
        assert created.serial == f"{certificate.serial_number:x}"
        return certificate.not_valid_before_utc, ends

    one = datetime.timedelta(days=1)
    assert dates(30, now) == (pki.to_datetime(now) - one, pki.to_datetime(now) + 30 * one)
    assert dates(3650, now + 15 * YEAR)[1] == ca.certificate.not_valid_after_utc
    with pytest.raises(SetupError, match="the gateway's CA expired on 20"):
        certificates.issue(ca, "p@gw.example", 1, now + 21 * YEAR)


def test_new_gateway_has_an_empty_revocation_list(folder: Path) -> None:
    crl, ca = crl_of(folder), pki.load(folder)
    assert list(crl) == []
    assert crl.next_update_utc == ca.certificate.not_valid_after_utc
    assert crl.is_signature_valid(ca.key.public_key())
    assert pki.files(folder).crl.stat().st_mode & 0o777 == 0o644


def test_revocation_list_names_revoked_certificates(folder: Path) -> None:
    numbers = [number_of(folder)]
    serials = set()
    for name in ("pump1", "pump2"):
        serials.add(read(provision(folder, name) / "cert.pem").serial_number)
        devices.revoke(folder, name)
        numbers.append(number_of(folder))
        assert {entry.serial_number for entry in crl_of(folder)} == serials
    assert numbers == sorted(set(numbers))
    devices.remove(folder, "pump1")
    assert {entry.serial_number for entry in crl_of(folder)} == serials


def number_of(folder: Path) -> int:
    number = crl_of(folder).extensions.get_extension_for_class(x509.CRLNumber)
    return number.value.crl_number


def write_crl(folder: Path, now: int) -> None:
    def unit(tx: Transaction) -> None:
        tx.now = tx.now._replace(wall=now)
        certificates.write_crl(tx, folder, pki.load(folder))

    change(folder, unit)


@pytest.mark.parametrize("shift", [-10 * YEAR, -DAY, 0, DAY, 10 * YEAR])
def test_revocation_list_survives_a_wrong_clock(folder: Path, shift: int) -> None:
    now = current_time.now().wall
    write_crl(folder, now + shift)
    first = number_of(folder)
    write_crl(folder, now)  # the clock is right again
    assert number_of(folder) > first
    assert crl_of(folder).last_update_utc <= pki.to_datetime(now)


def test_expired_ca_cannot_sign_a_revocation_list(folder: Path) -> None:
    before = pki.files(folder).crl.read_bytes()
    with pytest.raises(SetupError, match="the gateway's CA expired on 20"):
        write_crl(folder, current_time.now().wall + 21 * YEAR)
    assert pki.files(folder).crl.read_bytes() == before


def test_server_certificate_is_renewed_in_its_last_third(folder: Path) -> None:
    paths, now = pki.files(folder), current_time.now().wall
    before, key = read(paths.server), paths.server_key.read_bytes()
    assert not pki.renew_server(folder, "gw.example", now)
    assert not pki.renew_server(folder, "gw.example", now + 3 * YEAR)
    later = now + 4 * YEAR
    assert pki.renew_server(folder, "gw.example", later)
    after = read(paths.server)
    assert paths.server_key.read_bytes() == key
    assert after.public_key() == before.public_key()
    assert after.serial_number != before.serial_number
    assert after.not_valid_before_utc == before.not_valid_before_utc
    assert after.not_valid_after_utc == pki.to_datetime(later + 5 * YEAR)
    names = after.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["gw.example"]
    assert paths.server.stat().st_mode & 0o777 == 0o644
    assert not pki.renew_server(folder, "gw.example", later)


def test_server_certificate_is_renewed_for_further_names(folder: Path) -> None:
    paths, now = pki.files(folder), current_time.now().wall
    before = read(paths.server)
    names = ["gw1.site.example", "192.168.1.10"]
    assert pki.renew_server(folder, "gw.example", now, names)
    after = read(paths.server)
    assert after.public_key() == before.public_key()
    found = after.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert found.get_values_for_type(x509.DNSName) == ["gw.example", names[0]]
    assert found.get_values_for_type(x509.IPAddress) == [ipaddress.ip_address(names[1])]
    for fewer in (names, names[1:], []):
        assert not pki.renew_server(folder, "gw.example", now, fewer)


def test_devices_accept_the_renewed_certificate(folder: Path) -> None:
    place = provision(folder)
    assert pki.renew_server(folder, "gw.example", current_time.now().wall + 4 * YEAR)
    assert shake_hands(server_context(folder), place) is not None


def test_server_certificate_ends_with_the_ca(folder: Path) -> None:
    now, ca = current_time.now().wall, der.read(pki.files(folder).ca)
    for years in (4, 9, 14, 18, 19):
        pki.renew_server(folder, "gw.example", now + years * YEAR)
    assert der.read(pki.files(folder).server).ends == ca.ends
    assert not pki.renew_server(folder, "gw.example", ca.ends - DAY)


def test_certificate_of_another_ca_is_not_renewed(folder: Path, tmp_path: Path) -> None:
    setup.init(tmp_path / "other", "other.example")
    foreign = pki.files(tmp_path / "other").server.read_bytes()
    pki.files(folder).server.write_bytes(foreign)
    assert not pki.renew_server(folder, "gw.example", current_time.now().wall + 5 * YEAR)
    assert pki.files(folder).server.read_bytes() == foreign


def test_unusable_ca_is_reported_in_one_line(folder: Path, tmp_path: Path) -> None:
    paths = pki.files(folder)
    key = paths.ca_key.read_bytes()
    setup.init(tmp_path / "other", "gw.example")
    paths.ca_key.write_bytes(pki.files(tmp_path / "other").ca_key.read_bytes())
    with pytest.raises(SetupError, match=r"ca\.key is not the key of .*ca\.pem"):
        pki.load(folder)
    paths.ca_key.write_bytes(b"no key")
    with pytest.raises(SetupError, match=r"ca\.key is damaged"):
        pki.load(folder)
    paths.ca_key.write_bytes(key)
    paths.ca.unlink()
    with pytest.raises(SetupError, match=r"ca\.pem cannot be read: No such file"):
        pki.load(folder)


def test_unsupported_key_type_is_reported(folder: Path) -> None:
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ed25519

    ca, now = pki.load(folder), current_time.now().wall
    certificate = (
        x509.CertificateBuilder()
        .subject_name(common_name("gw.example"))
        .issuer_name(ca.certificate.subject)
        .public_key(ed25519.Ed25519PrivateKey.generate().public_key())
        .serial_number(1)
        .not_valid_before(pki.to_datetime(now))
        .not_valid_after(pki.to_datetime(now + DAY))
        .sign(ca.key, hashes.SHA256())
    )
    pki.files(folder).server.write_bytes(pem(certificate))
    with pytest.raises(SetupError, match="is not an elliptic-curve key"):
        pki.renew_server(folder, "gw.example", now + DAY)


def test_issued_certificate_is_recorded(folder: Path) -> None:
    certificate = read(provision(folder) / "cert.pem")
    (row,) = query(folder, issued_certificates.list_all)
    assert row.not_after == certificate.not_valid_after_utc.timestamp() * 1000
    serial = f"{certificate.serial_number:x}"
    assert (row.name, row.serial, row.revoked) == ("pump1", serial, None)
