"""Renewal of the gateway's certificate: time, request, checks, failures."""

from __future__ import annotations

import contextlib
import datetime as dt
import ssl
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from sync.common.enrolment import (
    Enrolment,
    EnrolmentError,
    new_token,
    read_enrolment,
    write_enrolment,
)
from sync.uplink.http_client import client_tls_context
from sync.uplink.interfaces import Notice
from sync.uplink.renewal import (
    CHECK_INTERVAL_S,
    CertificateRenewal,
    ValidityPeriod,
    is_due,
    make_request,
    validity_of,
)
from sync.uplink.responses import AccessDenial, Outcome, TemporaryFailure
from tests.helpers.manual_time import ManualTime, in_background
from tests.helpers.pki import LoopbackPki, make_pki

GATEWAY = "gw.example"
BEGIN = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
LIFE = dt.timedelta(days=90)
MINUTE = dt.timedelta(minutes=1)


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> LoopbackPki:
    return make_pki(tmp_path_factory.mktemp("pki"))


class Centre:
    """A centre that signs requests or gives a fixed answer, and records used enrolments."""

    def __init__(self, pki: LoopbackPki, at: dt.datetime) -> None:
        self.pki = pki
        self.at = at
        self.name = GATEWAY
        self.early = dt.timedelta()
        self.answers: list[bytes | Outcome] = []
        self.used: list[str] = []
        self.requests = 0

    async def certify(self, request: bytes) -> bytes | Outcome:
        self.requests += 1
        if self.answers:
            return self.answers.pop(0)
        if self.name != GATEWAY:
            _, request = make_request(self.name)
        begins = self.at - self.early
        return self.pki.sign(request, begins, begins + LIFE)

    def use(self, enrolment: Enrolment) -> None:
        self.used.append(enrolment.certificate)


class GatewaySite:
    """A gateway's folder with its centre and a manual clock."""

    def __init__(self, pki: LoopbackPki, folder: Path, at: dt.datetime, token: str) -> None:
        key, request = make_request(GATEWAY)
        certificate = pki.sign(request, BEGIN, BEGIN + LIFE).decode()
        self.path = folder / "gw.json"
        self.first = Enrolment(GATEWAY, "https://a", token, pki.ca, certificate, key)
        write_enrolment(self.path, self.first)
        self.centre = Centre(pki, at)
        self.time = ManualTime()
        self.notices: list[Notice] = []

    async def add(self, notice: Notice) -> None:
        self.notices.append(notice)

    def names(self) -> list[str]:
        return [notice.name for notice in self.notices]

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run until the first check is done."""
        renewal = CertificateRenewal(
            self.path,
            read_enrolment(self.path),
            self.centre,
            send_notice=self.add,
            now=lambda: self.centre.at.timestamp(),
            sleep=self.time.sleep,
        )
        async with in_background(renewal.run()):
            yield

    async def finish_check(self) -> None:
        """Finish a check and advance to the next day."""
        sleep = await self.time.next_sleep()
        assert sleep.seconds == CHECK_INTERVAL_S
        sleep.end()


MakeSite = Callable[..., GatewaySite]


@pytest.fixture
def site(pki: LoopbackPki, tmp_path: Path) -> MakeSite:
    return lambda at, token="": GatewaySite(pki, tmp_path, at, token)


def test_is_due_in_the_last_third() -> None:
    life = ValidityPeriod(0, 90)
    assert [is_due(life, now) for now in (-5, 0, 60, 60.1, 90, 1_000)] == [False] * 3 + [True] * 3


async def test_valid_certificate_is_not_renewed(site: MakeSite) -> None:
    setup = site(BEGIN + LIFE / 2)
    async with setup.running():
        await setup.finish_check()
        await setup.time.next_sleep()
    assert (setup.centre.requests, setup.notices) == (0, [])
    assert read_enrolment(setup.path) == setup.first


async def test_renewed_certificate_is_written_and_used(site: MakeSite) -> None:
    setup = site(BEGIN + LIFE * 2 / 3 + MINUTE)
    async with setup.running():
        await setup.finish_check()
        await setup.time.next_sleep()
    assert setup.centre.requests == 1
    assert setup.names() == ["certificate-renewed"]
    written = read_enrolment(setup.path)
    assert setup.centre.used == [written.certificate]
    assert written.key != setup.first.key
    assert replace(written, certificate="", key="", token="k" * 43) == replace(
        setup.first, certificate="", key="", token="k" * 43
    )
    assert validity_of(written.certificate).begins == setup.centre.at.timestamp()
    client_tls_context(written)


@pytest.mark.parametrize(
    "answer",
    [TemporaryFailure("the link is down"), AccessDenial("401: no"), b"<html>", b"\xff", b""],
)
async def test_failure_causes_a_notice_and_a_retry_the_next_day(
    site: MakeSite, answer: bytes | Outcome
) -> None:
    setup = site(BEGIN + LIFE * 0.9)
    setup.centre.answers = [answer, answer]
    async with setup.running():
        await setup.finish_check()
        assert read_enrolment(setup.path) == setup.first
        await setup.finish_check()
        await setup.finish_check()
        await setup.time.next_sleep()
    assert setup.names() == ["certificate-failed"] * 2 + ["certificate-renewed"]
    assert setup.centre.requests == 3


async def test_unusable_certificates_are_refused(site: MakeSite) -> None:
    setup = site(BEGIN + LIFE * 0.9)
    setup.centre.answers = [setup.first.certificate.encode()]
    async with setup.running():
        await setup.finish_check()
        setup.centre.name = "other.example"
        await setup.finish_check()
        setup.centre.name = GATEWAY
        setup.centre.early = LIFE
        await setup.finish_check()
        setup.centre.early = -MINUTE  # the centre's clock is ahead
        await setup.finish_check()
        await setup.time.next_sleep()
    assert setup.names() == ["certificate-failed"] * 5
    assert read_enrolment(setup.path) == setup.first
    assert setup.centre.used == []
    assert all(setup.first.key not in notice.text for notice in setup.notices)


def nameless(request: bytes, at: dt.datetime) -> bytes:
    """Return a certificate for the key of a request, without names."""
    certificate = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([]))
        .issuer_name(x509.Name([]))
        .public_key(x509.load_pem_x509_csr(request).public_key())
        .serial_number(1)
        .not_valid_before(at)
        .not_valid_after(at + LIFE)
        .sign(ec.generate_private_key(ec.SECP256R1()), hashes.SHA256())
    )
    return certificate.public_bytes(serialization.Encoding.PEM)


@pytest.mark.parametrize("padded", [False, True])
async def test_invalid_answers_have_no_effect(
    site: MakeSite, monkeypatch: pytest.MonkeyPatch, padded: bool
) -> None:
    setup = site(BEGIN + LIFE * 0.9)
    sign = setup.centre.certify

    async def certify(request: bytes) -> bytes | Outcome:
        if padded:
            answer = await sign(request)
            assert isinstance(answer, bytes)
            return answer + bytes(14_000)
        return nameless(request, setup.centre.at)

    monkeypatch.setattr(setup.centre, "certify", certify)
    async with setup.running():
        await setup.finish_check()
        await setup.time.next_sleep()
    assert setup.names() == ["certificate-failed"] * 2
    assert read_enrolment(setup.path) == setup.first


async def test_replaced_enrolment_file_is_not_overwritten(site: MakeSite) -> None:
    setup = site(BEGIN + LIFE * 0.9)
    other = replace(setup.first, token=new_token())
    async with setup.running():
        write_enrolment(setup.path, other)
        await setup.finish_check()
    assert setup.names() == ["certificate-failed"]
    assert read_enrolment(setup.path) == other


@pytest.mark.parametrize("token", ["", "k" * 43])
async def test_expired_certificate_is_not_used_with_a_token(site: MakeSite, token: str) -> None:
    setup = site(BEGIN + LIFE + MINUTE, token)
    async with setup.running():
        await setup.finish_check()
        await setup.time.next_sleep()
    written = read_enrolment(setup.path)
    assert setup.centre.used == ([""] if token else []) + [written.certificate]
    assert written.token == token


async def test_no_renewal_without_certificate(site: MakeSite, pki: LoopbackPki) -> None:
    setup = site(BEGIN)
    write_enrolment(setup.path, Enrolment(GATEWAY, "https://a", new_token(), pki.ca))
    renewal = CertificateRenewal(
        setup.path, read_enrolment(setup.path), setup.centre, send_notice=setup.add, now=lambda: 0.0
    )
    await renewal.run()
    assert setup.centre.requests == 0


def test_certificate_and_key_must_match(site: MakeSite, pki: LoopbackPki) -> None:
    setup = site(BEGIN)
    key, _ = make_request(GATEWAY)
    with pytest.raises(EnrolmentError, match="do not match"):
        client_tls_context(replace(setup.first, key=key))
    torn = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
    with pytest.raises(EnrolmentError, match="cannot be read"):
        validity_of(torn)
    assert isinstance(client_tls_context(setup.first), ssl.SSLContext)
