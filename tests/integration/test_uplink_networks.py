"""The uplink with epochs, scheduling, bandwidth limits, proxies and certificates."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from pathlib import Path

import pytest
from aiohttp import web
from cryptography import x509

from sync.common.enrolment import Enrolment
from sync.segment import identity_path, parse_identity
from sync.uplink.folder_transport import MARKER, FolderTransport
from sync.uplink.https_transport import HttpsTransport
from sync.uplink.renewal import make_request
from sync.uplink.responses import Acknowledgement, TemporaryFailure
from sync.uplink.uploader import MIN_EPOCH_INTERVAL_S, Uploader
from sync.uplink.wakeup import Wakeup
from tests.helpers.backlog import Notices, SqliteBacklog
from tests.helpers.lossy_network import Uploading, seal_segment
from tests.helpers.manual_time import ManualTime, in_background
from tests.helpers.pki import LoopbackPki
from tests.helpers.proxies import proxying
from tests.helpers.scripted_centre import Centre, Script, accept, running_scripted_centre
from tests.helpers.scripted_centre import answers as says
from tests.helpers.segments import EPOCH

IDLE = 300.0
NAME = "centre.example"


def heads(last: int, digest: bytes | str, lane: str = "readings") -> Script:
    text = digest if isinstance(digest, str) else digest.hex()
    return says(200, {"lanes": {lane: {"last": last, "digest": text}}})


async def test_epoch_is_compared_once_at_first(
    uploading: Uploading, backlog: SqliteBacklog
) -> None:
    first = await seal_segment(backlog)
    async with uploading(heads=[heads(5, first.digest)]) as shipping:
        await backlog.wait_for_states([(1, "acknowledged"), (6, "acknowledged")])
        assert (await shipping.time.next_sleep()).seconds == IDLE
        assert shipping.centre.watermark_requests == [
            f"/v1/gateways/{backlog.gateway}/epochs/{EPOCH}"
        ]
        assert (backlog.epoch_reasons, shipping.notices.all) == ([], [])


@pytest.mark.parametrize(
    ("head", "reason"),
    [
        (heads(9, "11" * 32), "centre-ahead"),
        (heads(1, "11" * 32, "logs"), "centre-ahead"),
        (heads(5, "11" * 32), "centre-differs"),
    ],
)
async def test_centre_ahead_or_different_begins_a_new_epoch(
    uploading: Uploading, head: Script, reason: str
) -> None:
    async with uploading(heads=[head]) as shipping:
        await shipping.backlog.wait_for_states([(1, "acknowledged")])
        assert (await shipping.time.next_sleep()).seconds == IDLE
        assert shipping.backlog.epoch_reasons == [reason]
        assert shipping.notices.names() == [reason]
        assert len(shipping.centre.watermark_requests) == 1


@pytest.mark.parametrize("status", [404, 405])
async def test_centre_without_epoch_query_gets_segments(uploading: Uploading, status: int) -> None:
    async with uploading(heads=[says(status)]) as shipping:
        await shipping.backlog.wait_for_states([(1, "acknowledged")])
        assert (shipping.backlog.epoch_reasons, shipping.notices.all) == ([], [])


async def test_nothing_is_sent_before_the_epoch_is_compared(uploading: Uploading) -> None:
    bad = [
        says(500),
        says(200, {"lanes": 1}),
        says(503, {}, Retry_After="7"),
        says(200, None),
        says(401, {"error": "who?"}),
    ]
    async with uploading(heads=bad) as shipping:
        assert await shipping.end_sleeps(4) == [1.0, 2.0, 7 + 4, 8.0]
        assert (await shipping.time.next_sleep()).seconds == 450.0
        assert shipping.centre.requests == []
        assert shipping.notices.names() == ["unreachable", "denied"]


@pytest.mark.parametrize(
    ("last", "begun"), [(5, []), (10, ["centre-differs"]), (90, ["centre-ahead"])]
)
async def test_conflict_is_set_aside_and_the_epoch_compared_again(
    uploading: Uploading, backlog: SqliteBacklog, last: int, begun: list[str]
) -> None:
    first = await seal_segment(backlog)
    digest = first.digest if last == 5 else bytes(32)
    conflict = says(409, {"reason": "conflict", "error": "other bytes"})
    answers = [says(200, {"lanes": {}}), heads(last, digest)]
    async with uploading(conflict, conflict, heads=answers) as shipping:
        assert (await shipping.time.next_sleep()).seconds == IDLE
        assert [state for _, state in backlog.states()] == ["aside", "aside"]
        assert backlog.epoch_reasons == begun
        assert shipping.notices.names() == ["conflict", *begun, "conflict"]
        # After a new epoch, a conflict of the previous one causes no further query.
        assert len(shipping.centre.watermark_requests) == (2 if begun else 3)
        assert len(shipping.centre.requests) == 2


async def test_new_epochs_are_limited_to_one_an_hour(uploading: Uploading) -> None:
    conflict = says(409, {"reason": "conflict", "error": "other bytes"})
    ahead = heads(10_000, bytes(32))
    async with uploading(*[conflict] * 3, segments=0, heads=[ahead] * 4) as shipping:
        await shipping.time.next_sleep()
        assert shipping.backlog.epoch_reasons == ["centre-ahead"]
        for hours, begun in ((0.0, 1), (0.99, 1), (1.0, 2)):
            shipping.seconds = hours * MIN_EPOCH_INTERVAL_S
            await seal_segment(shipping.backlog)
            shipping.uploader.wake()
            await shipping.time.next_sleep()
            assert shipping.backlog.states()[-1][1] == "aside"
            assert shipping.backlog.epoch_reasons == ["centre-ahead"] * begun
        assert len(shipping.centre.watermark_requests) == 4


async def test_begin_epoch_is_retried(uploading: Uploading) -> None:
    async def ahead(centre: Centre, request: web.Request) -> web.StreamResponse:
        shipping.backlog.full = True
        return await heads(9, bytes(32))(centre, request)

    async with uploading(heads=[ahead, heads(9, bytes(32))]) as shipping:
        sleep = await shipping.time.next_sleep()
        assert (sleep.seconds, shipping.backlog.epoch_reasons) == (1.0, [])
        shipping.backlog.full = False
        sleep.end()
        await shipping.backlog.wait_for_states([(1, "acknowledged")])
        assert shipping.backlog.epoch_reasons == ["centre-ahead"]


async def test_new_segments_interleave_with_the_backlog(uploading: Uploading) -> None:
    async with uploading(segments=0) as shipping:
        assert (await shipping.time.next_sleep()).seconds == IDLE
        for _ in range(6):
            await seal_segment(shipping.backlog)

        async def seal_another(centre: Centre, request: web.Request) -> web.StreamResponse:
            await seal_segment(shipping.backlog)
            shipping.uploader.wake()
            return await accept(centre, request)

        shipping.centre.scripts.extend([says(500), accept, accept, seal_another])
        shipping.uploader.wake()
        await shipping.end_sleeps(1)
        await shipping.time.next_sleep()
        names = [got.path.removeprefix("/v1/segments/") for got in shipping.centre.requests[1:]]
        firsts = [parse_identity(name).first_seq for name in names]
        assert firsts[:2] == [26, 1]  # first the newest, then the oldest
        assert 31 in firsts[3:5]  # sealed during the third upload
        assert [first for first in firsts if first <= 11] == [1, 6, 11]
        assert sorted(firsts) == [1, 6, 11, 16, 21, 26, 31]


def by_name(centre: Centre) -> Enrolment:
    """Return the enrolment with a host name that is not loopback."""
    return replace(centre.enrolment, url=centre.enrolment.url.replace("127.0.0.1", NAME))


async def offer(transport: HttpsTransport, backlog: SqliteBacklog) -> object:
    """Send one segment and close the connection."""
    outcome = await transport.put(await seal_segment(backlog))
    await transport.close()
    return outcome


@pytest.mark.parametrize("user", ["", "gw:s%40cret@"])
async def test_proxy_sees_neither_token_nor_segment(
    pki: LoopbackPki, backlog: SqliteBacklog, monkeypatch: pytest.MonkeyPatch, user: str
) -> None:
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    async with running_scripted_centre(pki, backlog.gateway) as centre, proxying() as proxy:
        monkeypatch.setenv("https_proxy", f"http://{user}{proxy.url}")
        enrolment = by_name(centre)
        assert isinstance(await offer(HttpsTransport(enrolment), backlog), Acknowledgement)
        (request,) = proxy.requests
        host = enrolment.url.removeprefix("https://")
        assert request.startswith(f"CONNECT {host} HTTP/1.1\r\n")
        assert ("Proxy-Authorization: Basic Z3c6c0BjcmV0" in request) is bool(user)  # gw:s@cret
        assert enrolment.token not in request
        assert "Proxy-Authorization" not in centre.requests[0].headers

        assert isinstance(await offer(HttpsTransport(centre.enrolment), backlog), Acknowledgement)
        assert len(proxy.requests) == 1  # this machine's own address is reached directly


@pytest.mark.parametrize("answer", ["407 Who are you?", "502 No such centre"])
async def test_refusing_proxy_is_a_temporary_failure(
    pki: LoopbackPki, backlog: SqliteBacklog, monkeypatch: pytest.MonkeyPatch, answer: str
) -> None:
    monkeypatch.setenv("no_proxy", "")
    async with running_scripted_centre(pki, backlog.gateway) as centre, proxying() as proxy:
        proxy.answer = answer
        monkeypatch.setenv("https_proxy", f"http://gw:secret@{proxy.url}")
        outcome = await offer(HttpsTransport(by_name(centre)), backlog)
        assert isinstance(outcome, TemporaryFailure)
        assert answer[:3] in outcome.text
        assert "secret" not in outcome.text
        assert centre.requests == []
        monkeypatch.setenv("https_proxy", f"https://gw:secret@{proxy.url}")
        outcome = await offer(HttpsTransport(by_name(centre)), backlog)
        assert isinstance(outcome, TemporaryFailure)
        assert "https_proxy" in outcome.text
        assert "secret" not in outcome.text


def certified(pki: LoopbackPki, enrolment: Enrolment) -> tuple[Enrolment, int]:
    """Return the enrolment with a certificate instead of the token, and its serial number."""
    key, request = make_request(enrolment.gateway)
    now = dt.datetime.now(dt.UTC)
    day = dt.timedelta(days=1)
    certificate = pki.sign(request, now - day, now + day)
    certified_enrolment = replace(enrolment, token="", certificate=certificate.decode(), key=key)
    return certified_enrolment, serial(certificate)


def serial(certificate: bytes) -> int:
    return x509.load_pem_x509_certificate(certificate).serial_number


async def test_renewed_certificate_is_used_with_the_next_connection(
    pki: LoopbackPki, backlog: SqliteBacklog
) -> None:
    async with running_scripted_centre(pki, backlog.gateway) as centre:
        enrolment, number = certified(pki, centre.enrolment)
        transport = HttpsTransport(enrolment)
        waiting = await seal_segment(backlog)
        assert isinstance(await transport.put(waiting), Acknowledgement)

        async def sign(centre: Centre, _request: web.Request) -> web.StreamResponse:
            now = dt.datetime.now(dt.UTC)
            return web.Response(body=pki.sign(centre.requests[-1].body, now, now + dt.timedelta(1)))

        centre.scripts.append(sign)
        key, request = make_request(enrolment.gateway)
        cert = await transport.certify(request)
        assert isinstance(cert, bytes)
        transport.use(replace(enrolment, certificate=cert.decode(), key=key))
        assert isinstance(await transport.put(waiting), Acknowledgement)
        await transport.close()

        assert [int(got.serial or "", 16) for got in centre.requests] == [
            number,
            number,
            serial(cert),
        ]
        assert len({got.connection for got in centre.requests}) == 2
        assert all("Authorization" not in got.headers for got in centre.requests)
        assert centre.requests[1].path == f"/v1/gateways/{backlog.gateway}/certificate"
        assert centre.requests[1].method == "POST"


async def test_certify_outcomes(pki: LoopbackPki, backlog: SqliteBacklog) -> None:
    answers = [says(404), says(503, {}, Retry_After="5"), says(200, {"lanes": 1})]
    async with running_scripted_centre(pki, backlog.gateway, *answers) as centre:
        transport = HttpsTransport(centre.enrolment)
        outcomes = [await transport.certify(b"request") for _ in answers]
        await transport.close()
    assert [type(each).__name__ for each in outcomes] == ["Rejection", "TemporaryFailure", "bytes"]
    outcome = await transport.certify(b"request")  # the server has stopped
    await transport.close()
    assert isinstance(outcome, TemporaryFailure)


async def test_uploader_waits_for_the_folder(backlog: SqliteBacklog, tmp_path: Path) -> None:
    folder, time_, notices = tmp_path / "stick", ManualTime(), Notices(backlog)
    sealed = [await seal_segment(backlog) for _ in range(2)]
    uploader = Uploader(
        backlog.gateway,
        backlog,
        FolderTransport(folder),
        send_notice=notices.record,
        chance=lambda: 0.5,
        wakeup=Wakeup(time_.sleep),
    )
    async with in_background(uploader.run()):
        sleep = await time_.next_sleep()
        assert (sleep.seconds, notices.names()) == (1.0, ["unreachable"])
        folder.mkdir()
        (folder / MARKER).touch()
        sleep.end()
        assert (await time_.next_sleep()).seconds == IDLE
    assert notices.names() == ["unreachable", "shipping"]
    for segment in sealed:
        path = folder / f"{identity_path(segment.identity)}.seg"
        assert path.read_bytes() == segment.data
