"""Client certificates: authentication, revocation, renewal."""

from __future__ import annotations

import base64
import contextlib
import time
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, rsa
from cryptography.x509.oid import NameOID

from sync.common.enrolment import new_token
from sync.receiver.client_certificates import MAX_REQUEST_BYTES
from sync.receiver.gateways import GatewayRegistry
from sync.receiver.limits import ReceiverLimits
from tests.helpers.fleet import (
    GATEWAY,
    OTHER,
    Answer,
    Centre,
    Client,
    client,
    identity,
    make_fleet,
    running_centre,
    segment,
    write_pair,
)


@contextlib.asynccontextmanager
async def presenting(centre: Centre, certificate: Path) -> AsyncIterator[Client]:
    """Yield a client that presents a certificate."""
    ca = centre.folder.pki / "ca.pem"
    async with client(centre.client.address, centre.client.tokens, ca, certificate) as connected:
        yield connected


async def put(connected: Client, gateway: str = GATEWAY) -> Answer:
    """Upload a segment without a token."""
    name = identity(gateway=gateway)
    return await connected.put(segment(name), name, Authorization=None)


async def test_certificate_authenticates_without_token(centre: Centre, tmp_path: Path) -> None:
    async with presenting(centre, write_pair(centre.folder, tmp_path / "pair.pem")) as connected:
        assert (await put(connected)).status == 201
        assert (await put(connected, OTHER)).status == 403
        for words in (f"Bearer {new_token()}", "Basic Z3c6Z3c=", "Bearer"):
            wrong = await connected.put(segment(), Authorization=words)
            assert wrong.status == 401, "a token has precedence"
    assert (await put(centre.client)).status == 401, "without a certificate and a token"


async def test_revoking_and_renewing_invalidate_the_certificate_at_once(
    centre: Centre, tmp_path: Path
) -> None:
    gateways = GatewayRegistry(centre.folder)
    async with presenting(centre, write_pair(centre.folder, tmp_path / "pair.pem")) as connected:
        assert (await put(connected)).status == 201
        gateways.revoke(GATEWAY, 1)
        assert (await put(connected)).status == 401
        now_ms = time.time_ns() // 10**6
        first = gateways.first_issue(GATEWAY, now_ms)
        gateways.enrol(GATEWAY, "https://h:1", new_token(), now_ms, renew=True)
        assert (await put(connected)).status == 401
    renewed = write_pair(centre.folder, tmp_path / "renewed.pem", issued_ms=first)
    async with presenting(centre, renewed) as connected:
        assert (await put(connected)).status == 200
        second = gateways.first_issue(GATEWAY, now_ms)
        assert second > first, "two renewals in one second are two"
        gateways.enrol(GATEWAY, "https://h:1", new_token(), now_ms, renew=True)
        assert (await put(connected)).status == 401


async def test_certificate_of_a_gateway_that_is_not_enrolled_answers_401(
    centre: Centre, tmp_path: Path
) -> None:
    for name in ("unknown.example", "Not A Gateway", "a" * 250):
        async with presenting(
            centre, write_pair(centre.folder, tmp_path / "pair.pem", name)
        ) as connected:
            assert (await put(connected)).status == 401


async def test_other_certificates_are_refused(centre: Centre, tmp_path: Path) -> None:
    make_fleet(tmp_path / "foreign")
    foreign = type(centre.folder)(tmp_path / "foreign")
    server = tmp_path / "server.pem"
    pki = centre.folder.pki
    server.write_bytes((pki / "server.pem").read_bytes() + (pki / "server.key").read_bytes())
    expired = write_pair(centre.folder, tmp_path / "expired.pem", issued_ms=10**12, days=1)
    for wrong in (write_pair(foreign, tmp_path / "pair.pem"), server, expired):
        async with presenting(centre, wrong) as connected:
            with pytest.raises(aiohttp.ClientError):
                await put(connected)
    assert centre.files() == []


def request(key: object, name: str = OTHER) -> bytes:
    """Return a signing request for any name, signed by its key."""
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    builder = (
        x509.CertificateSigningRequestBuilder()
        .subject_name(subject)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
    )
    edwards = isinstance(key, ed25519.Ed25519PrivateKey | ed448.Ed448PrivateKey)
    algorithm = None if edwards else hashes.SHA256()
    csr = builder.sign(key, algorithm)  # type: ignore[arg-type] # keys of any kind are tried
    return csr.public_bytes(serialization.Encoding.PEM)


async def ask(
    connected: Client, body: bytes, gateway: str = GATEWAY, token: bool = True
) -> tuple[int, bytes]:
    headers = {"Authorization": f"Bearer {connected.tokens[GATEWAY]}"} if token else {}
    url = connected.url(f"/v1/gateways/{gateway}/certificate")
    async with connected.session.post(url, data=body, headers=headers) as response:
        return response.status, await response.read()


async def test_certificate_is_issued_to_requesting_gateway(centre: Centre, tmp_path: Path) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    status, pem = await ask(centre.client, request(key))
    assert status == 200
    certificate = x509.load_pem_x509_certificate(pem)
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == [GATEWAY], "not the name in the request"
    record = GatewayRegistry(centre.folder).get(GATEWAY)
    assert record is not None
    assert record.certificate_ends == certificate.not_valid_after_utc.timestamp() * 1_000
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (tmp_path / "pair.pem").write_bytes(pem + private)
    async with presenting(centre, tmp_path / "pair.pem") as connected:
        assert (await put(connected)).status == 201
        assert (await ask(connected, request(key), token=False))[0] == 200, "by the previous one"
        assert (await ask(connected, request(key), OTHER, token=False))[0] == 403


async def test_only_accepted_key_types_are_certified(centre: Centre) -> None:
    good = [
        ed25519.Ed25519PrivateKey.generate(),
        rsa.generate_private_key(65_537, 2_048),
        ec.generate_private_key(ec.SECP384R1()),
    ]
    bad = [
        rsa.generate_private_key(65_537, 1_024),  # noqa: S505 # that it is weak is the point
        ed448.Ed448PrivateKey.generate(),
        ec.generate_private_key(ec.SECP192R1()),
    ]
    statuses = [(await ask(centre.client, request(key)))[0] for key in (*good, *bad)]
    assert statuses == [200, 200, 200, 400, 400, 400]


async def test_invalid_signing_request_is_refused(centre: Centre) -> None:
    good = x509.load_pem_x509_csr(request(ec.generate_private_key(ec.SECP256R1()))).public_bytes(
        serialization.Encoding.DER
    )
    forged = as_pem(good[:-1] + bytes([good[-1] ^ 1]))
    of_another_version = as_pem(good.replace(b"\x02\x01\x00", b"\x02\x01\x07", 1))
    for body in (b"", b"x", forged, of_another_version):
        assert (await ask(centre.client, body))[0] == 400
    assert (await ask(centre.client, bytes(MAX_REQUEST_BYTES + 1)))[0] == 413
    assert (await ask(centre.client, b"x", token=False))[0] == 401


def as_pem(der: bytes) -> bytes:
    text = base64.encodebytes(der).decode()
    label = "CERTIFICATE REQUEST"
    return f"-----BEGIN {label}-----\n{text}-----END {label}-----\n".encode()


async def test_certificates_per_day_are_limited(tmp_path: Path) -> None:
    limits = ReceiverLimits(certificates_per_day=2)
    async with running_centre(tmp_path / "fleet", limits) as centre:
        body = request(ec.generate_private_key(ec.SECP256R1()))
        statuses = [(await ask(centre.client, body))[0] for _ in range(3)]
    assert statuses == [200, 200, 429]
