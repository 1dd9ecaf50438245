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
        self.shown: list[str] = []
        self.asked = 0

    async def certify(self, request: bytes) -> bytes | Outcome:
        self.asked += 1
        if self.answers:
            return self.answers.pop(0)
        if self.name != GATEWAY:
            _, request = make_request(self.name)
        begins = self.at - self.early
        return self.pki.sign(request, begins, begins + LIFE)

    def use(self, enrolment: Enrolment) -> None:
        self.shown.append(enrolment.certificate)


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

    async def tell(self, notice: Notice) -> None:
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
            send_notice=self.tell,
            now=lambda: self.centre.at.timestamp(),
            sleep=self.time.sleep,
        )
        async with in_background(renewal.run()):
            yield

    async def look(self) -> None:
        """Finish a check and advance to the next day."""
        nap = await self.time.nap()
        assert nap.seconds == CHECK_INTERVAL_S
        nap.end()


MakeSite = Callable[..., GatewaySite]


@pytest.fixture
def site(pki: LoopbackPki, tmp_path: Path) -> MakeSite:
    return lambda at, token="": GatewaySite(pki, tmp_path, at, token)


def test_is_due_in_the_last_third() -> None:
    life = ValidityPeriod(0, 90)
    assert [is_due(life, now) for now in (-5, 0, 60, 60.1, 90, 1_000)] == [False] * 3 + [True] * 3


async def test_valid_certificate_is_not_renewed(site: MakeSite) -> None:
    here = site(BEGIN + LIFE / 2)
    async with here.running():
        await here.look()
        await here.time.nap()
    assert (here.centre.asked, here.notices) == (0, [])
    assert read_enrolment(here.path) == here.first


async def test_renewed_certificate_is_written_and_used(site: MakeSite) -> None:
    here = site(BEGIN + LIFE * 2 / 3 + MINUTE)
    async with here.running():
        await here.look()
        await here.time.nap()
    assert here.centre.asked == 1
    assert here.names() == ["certificate-renewed"]
    written = read_enrolment(here.path)
    assert here.centre.shown == [written.certificate]
    assert written.key != here.first.key
    assert replace(written, certificate="", key="", token="k" * 43) == replace(
        here.first, certificate="", key="", token="k" * 43
    )
    assert validity_of(written.certificate).begins == here.centre.at.timestamp()
    client_tls_context(written)


@pytest.mark.parametrize(
    "answer",
    [TemporaryFailure("the link is down"), AccessDenial("401: no"), b"<html>", b"\xff", b""],
)
async def test_failure_causes_a_notice_and_a_retry_the_next_day(
    site: MakeSite, answer: bytes | Outcome
) -> None:
    here = site(BEGIN + LIFE * 0.9)
    here.centre.answers = [answer, answer]
    async with here.running():
        await here.look()
        assert read_enrolment(here.path) == here.first
        await here.look()
        await here.look()
        await here.time.nap()
    assert here.names() == ["certificate-failed"] * 2 + ["certificate-renewed"]
    assert here.centre.asked == 3


async def test_unusable_certificates_are_refused(site: MakeSite) -> None:
    here = site(BEGIN + LIFE * 0.9)
    here.centre.answers = [here.first.certificate.encode()]
    async with here.running():
        await here.look()
        here.centre.name = "other.example"
        await here.look()
        here.centre.name = GATEWAY
        here.centre.early = LIFE
        await here.look()
        await here.time.nap()
    assert here.names() == ["certificate-failed"] * 4
    assert read_enrolment(here.path) == here.first
    assert here.centre.shown == []
    assert all(here.first.key not in notice.text for notice in here.notices)


def nameless(request: bytes, at: dt.datetime) -> bytes:
    """Return a certificate for the key of a request, without names."""
    made = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([]))
        .issuer_name(x509.Name([]))
        .public_key(x509.load_pem_x509_csr(request).public_key())
        .serial_number(1)
        .not_valid_before(at)
        .not_valid_after(at + LIFE)
        .sign(ec.generate_private_key(ec.SECP256R1()), hashes.SHA256())
    )
    return made.public_bytes(serialization.Encoding.PEM)


@pytest.mark.parametrize("padded", [False, True])
async def test_invalid_answers_have_no_effect(
    site: MakeSite, monkeypatch: pytest.MonkeyPatch, padded: bool
) -> None:
    here = site(BEGIN + LIFE * 0.9)
    sign = here.centre.certify

    async def certify(request: bytes) -> bytes | Outcome:
        if padded:
            answer = await sign(request)
            assert isinstance(answer, bytes)
            return answer + bytes(14_000)
        return nameless(request, here.centre.at)

    monkeypatch.setattr(here.centre, "certify", certify)
    async with here.running():
        await here.look()
        await here.time.nap()
    assert here.names() == ["certificate-failed"] * 2
    assert read_enrolment(here.path) == here.first


async def test_replaced_enrolment_file_is_not_overwritten(site: MakeSite) -> None:
    here = site(BEGIN + LIFE * 0.9)
    other = replace(here.first, token=new_token())
    async with here.running():
        write_enrolment(here.path, other)
        await here.look()
    assert here.names() == ["certificate-failed"]
    assert read_enrolment(here.path) == other


@pytest.mark.parametrize("token", ["", "k" * 43])
async def test_expired_certificate_is_not_used_with_a_token(site: MakeSite, token: str) -> None:
    here = site(BEGIN + LIFE + MINUTE, token)
    async with here.running():
        await here.look()
        await here.time.nap()
    written = read_enrolment(here.path)
    assert here.centre.shown == ([""] if token else []) + [written.certificate]
    assert written.token == token


async def test_no_renewal_without_certificate(site: MakeSite, pki: LoopbackPki) -> None:
    here = site(BEGIN)
    write_enrolment(here.path, Enrolment(GATEWAY, "https://a", new_token(), pki.ca))
    renewal = CertificateRenewal(
        here.path, read_enrolment(here.path), here.centre, send_notice=here.tell, now=lambda: 0.0
    )
    await renewal.run()
    assert here.centre.asked == 0


def test_certificate_and_key_must_match(site: MakeSite, pki: LoopbackPki) -> None:
    here = site(BEGIN)
    key, _ = make_request(GATEWAY)
    with pytest.raises(EnrolmentError, match="do not match"):
        client_tls_context(replace(here.first, key=key))
    torn = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
    with pytest.raises(EnrolmentError, match="cannot be read"):
        validity_of(torn)
    assert isinstance(client_tls_context(here.first), ssl.SSLContext)
