from __future__ import annotations

import base64
import datetime
import ssl
from pathlib import Path

import pytest
from cryptography import x509

from edge.errors import SetupError
from edge.ops import current_time
from edge.ops.certificates import der, pki
from sync.common import certificates


def ms(moment: datetime.datetime) -> int:
    return round(moment.timestamp() * 1000)


def test_fields_match_cryptography(folder: Path) -> None:
    paths = pki.files(folder)
    for path in (paths.ca, paths.server):
        certificate, facts = x509.load_pem_x509_certificate(path.read_bytes()), der.read(path)
        assert facts == (
            certificate.issuer.public_bytes(),
            certificate.subject.public_bytes(),
            ms(certificate.not_valid_before_utc),
            ms(certificate.not_valid_after_utc),
        )


def test_names_and_addresses_are_read(folder: Path) -> None:
    paths = pki.files(folder)
    assert der.read_names(paths.server) == ["gw.example"]
    assert der.read_names(paths.ca) == []
    names = ["gw1.site.example", "192.168.1.10", "fd00::1"]
    assert pki.renew_server(folder, "gw.example", current_time.now().wall, names)
    assert der.read_names(paths.server) == ["gw.example", *names]


@pytest.mark.parametrize("year", [1950, 1968, 1999, 2049, 2050, 2150, 9999])
def test_both_time_types_are_read(folder: Path, year: int) -> None:
    ca = pki.load(folder)
    ends = datetime.datetime(year, 2, 3, 4, 5, 6, tzinfo=datetime.UTC)
    begins = ends - datetime.timedelta(days=1)
    certificate = certificates.self_signed("x", ca.key, begins, ends)
    path = folder / "one.pem"
    path.write_bytes(certificates.pem(certificate))
    assert der.read(path)[2:] == (ms(begins), ms(ends))


def test_first_certificate_of_a_chain_is_read(folder: Path) -> None:
    paths = pki.files(folder)
    expected = der.read(paths.server)
    chain = b"Subject: gw.example\n" + paths.server.read_bytes() + paths.ca.read_bytes()
    paths.server.write_bytes(chain)
    assert der.read(paths.server) == expected


def pem(data: bytes) -> bytes:
    text = base64.encodebytes(data)
    return b"-----BEGIN CERTIFICATE-----\n%b-----END CERTIFICATE-----\n" % text


def test_invalid_certificate_is_reported(folder: Path) -> None:
    path = pki.files(folder).server
    data = ssl.PEM_cert_to_DER_cert(path.read_text())
    damaged: list[bytes] = [b"", b"x", b"\xff\xfe", pki.files(folder).server_key.read_bytes()]
    damaged += [pem(data[:size]) for size in range(0, len(data), 7)]
    for text in damaged:
        path.write_bytes(text)
        with pytest.raises(SetupError, match=r"server\.pem is not a certificate"):
            der.read(path)
    path.unlink()
    with pytest.raises(SetupError, match=r"server\.pem cannot be read: No such file"):
        der.read(path)


def test_damage_is_detected_or_harmless(folder: Path) -> None:
    path = pki.files(folder).server
    data = ssl.PEM_cert_to_DER_cert(path.read_text())
    reported = 0
    for at in range(200):  # this covers the dates and names
        path.write_bytes(pem(data[:at] + bytes((data[at] ^ 0xFF,)) + data[at + 1 :]))
        try:
            der.read(path)
        except SetupError:
            reported += 1
    assert reported > 20


def test_version_1_certificate_is_read(folder: Path) -> None:
    facts, text = der.read(pki.files(folder).server), pki.files(folder).server.read_bytes()
    inner = x509.load_pem_x509_certificate(text).tbs_certificate_bytes
    assert inner[4:9] == bytes.fromhex("a003020102"), "the field of the version"
    without = inner[9:]
    shorter = b"\x30\x82" + len(without).to_bytes(2, "big") + without
    path = folder / "one.pem"
    path.write_bytes(pem(b"\x30\x82" + len(shorter).to_bytes(2, "big") + shorter))
    assert der.read(path) == facts


def test_certificate_begins_a_day_ago(tmp_path: Path) -> None:
    now = current_time.now().wall // 1000 * 1000
    pki.create(tmp_path, "gw.example", now)
    assert der.read(pki.files(tmp_path).server).begins == now - 24 * 3600 * 1000
