"""The uploader with a scripted HTTPS server."""

from __future__ import annotations

import asyncio
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from sync.common.enrolment import Enrolment, EnrolmentError, new_token
from sync.segment import encode, identity_path
from sync.uplink.http_client import HttpsLimits
from sync.uplink.https_transport import HttpsTransport
from sync.uplink.interfaces import WaitingSegment
from sync.uplink.responses import Acknowledgement, TemporaryFailure
from tests.helpers.backlog import SqliteBacklog
from tests.helpers.lossy_network import Uploading
from tests.helpers.pki import LoopbackPki, make_pki
from tests.helpers.scripted_centre import (
    Centre,
    Script,
    accept,
    accept_and_disconnect,
    answers,
    endless_answer,
    invalid_answer,
    no_answer,
    running_scripted_centre,
)
from tests.helpers.segments import header, logs, readings

if TYPE_CHECKING:
    from aiohttp.web import Request, StreamResponse


IDLE = 300.0
WAITING, DONE, ASIDE = "waiting", "acknowledged", "aside"


async def test_segments_alternate_over_one_connection(uploading: Uploading) -> None:
    async with uploading(segments=3) as shipping:
        assert (await shipping.time.next_sleep()).seconds == IDLE
        assert shipping.backlog.states() == [(1, DONE), (6, DONE), (11, DONE)]
        names = [identity_path(header(first, first + 4).identity) for first in (11, 1, 6)]
        assert [got.path for got in shipping.centre.requests] == [
            f"/v1/segments/{n}" for n in names
        ]
        assert {got.method for got in shipping.centre.requests} == {"PUT"}
        assert sorted(got.body for got in shipping.centre.requests) == sorted(
            shipping.backlog.data()
        )
        assert len({got.connection for got in shipping.centre.requests}) == 1
        for got in shipping.centre.requests:
            assert got.headers["Authorization"] == f"Bearer {shipping.centre.enrolment.token}"
            assert got.headers["X-Fieldpost-SHA256"] == sha256(got.body).hexdigest()
            assert got.headers["Content-Length"] == str(len(got.body))
            assert "Transfer-Encoding" not in got.headers
        assert shipping.notices.all == []


async def test_lost_answer_is_repeated_as_duplicate(uploading: Uploading) -> None:
    # The client itself tries a PUT once more, at once, when its connection was cut: hence two.
    async with uploading(accept_and_disconnect, accept_and_disconnect) as shipping:
        await shipping.end_sleeps(1)
        await shipping.backlog.wait_for_states([(1, DONE)])
        assert [got.body for got in shipping.centre.requests] == shipping.backlog.data() * 3
        assert shipping.notices.names() == ["unreachable", "shipping"]


@pytest.mark.parametrize("digest", ["00" * 32, "", "zz", None, 7, "AA" * 32])
async def test_wrong_digest_is_no_acknowledgement(uploading: Uploading, digest: Any) -> None:
    async with uploading(answers(201, {"digest": digest}), accept) as shipping:
        sleep = await shipping.time.next_sleep()
        assert shipping.backlog.states() == [(1, WAITING)]
        sleep.end()
        await shipping.backlog.wait_for_states([(1, DONE)])
        notice = "wrong-digest" if digest == "00" * 32 else "unreachable"
        assert shipping.notices.names() == [notice, "shipping"]


@pytest.mark.parametrize(
    ("status", "reason", "name"),
    [(409, "conflict", "conflict"), (400, "checksum", "refused"), (413, "size", "refused")],
)
async def test_rejected_segment_is_set_aside(
    uploading: Uploading, status: int, reason: str, name: str
) -> None:
    refusal = answers(status, {"error": "no\nway", "reason": reason})
    async with uploading(refusal, accept, segments=2) as shipping:
        assert (await shipping.time.next_sleep()).seconds == IDLE
        assert shipping.backlog.states() == [(1, DONE), (6, ASIDE)]
        assert shipping.backlog.reasons() == [None, reason]
        assert shipping.notices.names() == [name]
        path = identity_path(header(6, 10).identity)
        assert shipping.notices.all[0].text == f"{path}: {status} {reason}: no way"


async def test_retry_after_is_honoured_within_limits(uploading: Uploading) -> None:
    busy = [
        answers(503, {"error": "busy"}, Retry_After="7"),
        answers(429, None, Retry_After="999999999"),
        answers(507, {"error": "full"}, Retry_After="Sat, 21 Nov 2026 10:01:00 GMT", Date=DATE),
        answers(503, None, Retry_After="soon"),
    ]
    async with uploading(*busy) as shipping:
        assert await shipping.end_sleeps(4) == [7 + 1, 900, 60 + 4, 8]
        await shipping.backlog.wait_for_states([(1, DONE)])
        assert shipping.notices.names() == ["unreachable", "shipping"]


DATE = "Sat, 21 Nov 2026 10:00:00 GMT"


async def test_bad_network_causes_one_notice(uploading: Uploading) -> None:
    limits = HttpsLimits(total=0.3, rate=1e9)
    bad = [
        invalid_answer,
        invalid_answer,
        no_answer,
        endless_answer,
        answers(500),
        answers(302, None, Location="/elsewhere"),
    ]
    async with uploading(*bad, limits=limits) as shipping:
        delays = []
        while shipping.backlog.states() == [(1, WAITING)]:
            sleep = await shipping.time.next_sleep()
            delays.append(sleep.seconds)
            sleep.end()
            await asyncio.sleep(0)
        assert delays[:4] == [1.0, 2.0, 4.0, 8.0]
        assert shipping.notices.names() == ["unreachable", "shipping"]
        assert all(got.path.startswith("/v1/") for got in shipping.centre.requests)
        assert shipping.notices.all[0].text.isprintable()
        assert shipping.centre.enrolment.token not in shipping.notices.all[0].text


async def test_success_resets_the_backoff(uploading: Uploading) -> None:
    async with uploading(answers(500), answers(500), accept, answers(500), segments=2) as shipping:
        assert await shipping.end_sleeps(3) == [1.0, 2.0, 1.0]
        await shipping.backlog.wait_for_states([(1, DONE), (6, DONE)])
        assert shipping.notices.names() == ["unreachable", "shipping"] * 2


async def test_server_of_another_authority_gets_nothing(
    uploading: Uploading, backlog: SqliteBacklog, tmp_path: Path
) -> None:
    other = make_pki(tmp_path)
    enrolment = Enrolment(backlog.gateway, "https://centre", new_token(), other.ca)
    async with uploading(enrolment=enrolment) as shipping:
        assert await shipping.end_sleeps(2) == [1.0, 2.0]
        await shipping.time.next_sleep()
        assert shipping.centre.requests == []
        assert shipping.notices.names() == ["unreachable"]
        assert "ertificate" in shipping.notices.all[0].text
        assert backlog.states() == [(1, WAITING)]


@pytest.mark.parametrize("status", [401, 403])
async def test_denied_token_keeps_segments_and_backs_off(uploading: Uploading, status: int) -> None:
    denied = answers(status, {"error": "not enrolled", "reason": "token"})
    async with uploading(denied, denied, denied, accept) as shipping:
        assert await shipping.end_sleeps(3) == [30.0, 60.0, 120.0]
        await shipping.backlog.wait_for_states([(1, DONE)])
        assert shipping.notices.names() == ["denied", "shipping"]
        assert "not enrolled" in shipping.notices.all[0].text


async def test_wakeup_does_not_shorten_a_backoff(uploading: Uploading) -> None:
    async with uploading(answers(500)) as shipping:
        sleep = await shipping.time.next_sleep()
        for _ in range(3):
            shipping.uploader.wake()
            await asyncio.sleep(0)
        assert len(shipping.centre.requests) == 1
        sleep.end()
        await shipping.backlog.wait_for_states([(1, DONE)])


async def test_unavailable_store_is_retried(uploading: Uploading, backlog: SqliteBacklog) -> None:
    async with uploading(no_answer) as shipping:
        await shipping.centre.wait_for_requests(1)
    backlog.full = True
    async with uploading(segments=0) as shipping:
        sleep = await shipping.time.next_sleep()
        assert (sleep.seconds, shipping.notices.names()) == (1.0, [])
        assert shipping.centre.requests == []
        sleep.end()
        sleep = await shipping.time.next_sleep()
        assert sleep.seconds == 2.0
        backlog.full = False
        sleep.end()
        await shipping.time.next_sleep()
        assert backlog.states() == [(1, DONE)]
        assert shipping.notices.names() == ["store-unavailable", "shipping"]


async def test_store_that_fills_up_during_an_upload_recovers(uploading: Uploading) -> None:
    async def land_and_fill(centre: Centre, request: Request) -> StreamResponse:
        shipping.backlog.full = True
        return await accept(centre, request)

    async with uploading(land_and_fill) as shipping:
        sleep = await shipping.time.next_sleep()
        shipping.backlog.full = False
        sleep.end()
        await shipping.time.next_sleep()
        assert shipping.backlog.states() == [(1, DONE)]
        assert [got.body for got in shipping.centre.requests] == shipping.backlog.data() * 2
        assert shipping.notices.names() == ["store-unavailable", "shipping"]


@pytest.mark.parametrize("state", ["idle", "backoff", "request"])
async def test_cancelling_is_prompt(uploading: Uploading, state: str) -> None:
    scripts: dict[str, Script] = {"idle": accept, "backoff": answers(500), "request": no_answer}
    async with uploading(scripts[state]) as shipping:
        if state == "request":
            await shipping.centre.wait_for_requests(1)
        else:
            await shipping.time.next_sleep()
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_large_segment_from_two_uploaders(pki: LoopbackPki, backlog: SqliteBacklog) -> None:
    events = [
        event._replace(text=sha256(str(event.seq).encode()).hexdigest() * 40)
        for event in logs(1_000)
    ]
    data = encode(header(1, 1_000, lane="logs"), events)
    assert len(data) > 1024 * 1024
    waiting = WaitingSegment(header(1, 1_000, lane="logs").identity, data[-32:], data)
    async with running_scripted_centre(pki, backlog.gateway) as centre:
        transport = HttpsTransport(centre.enrolment)
        outcomes = [await transport.put(waiting) for _ in range(2)]
        await transport.close()
        await transport.close()
        outcomes.append(await transport.put(waiting))
        await transport.close()
    digest = data[-32:]
    assert outcomes == [
        Acknowledgement(digest, True),
        Acknowledgement(digest, False),
        Acknowledgement(digest, False),
    ]
    assert [got.method for got in centre.requests] == ["HEAD", "PUT", "PUT", "PUT"]
    assert centre.requests[1].body == data


async def test_unreachable_centre_reveals_no_secret(
    backlog: SqliteBacklog, pki: LoopbackPki
) -> None:
    async with running_scripted_centre(pki, backlog.gateway) as centre:
        enrolment = centre.enrolment
    data = encode(header(1, 2), readings(2))
    transport = HttpsTransport(enrolment)
    outcome = await transport.put(WaitingSegment(header(1, 2).identity, data[-32:], data))
    await transport.close()
    assert isinstance(outcome, TemporaryFailure)
    for text in (repr(outcome), repr(transport), str(transport), repr(enrolment)):
        assert enrolment.token not in text


def test_invalid_certificate_is_refused() -> None:
    ca = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
    enrolment = Enrolment("gw.example", "https://127.0.0.1:1", new_token(), ca)
    with pytest.raises(EnrolmentError, match="`ca` is not a certificate"):
        HttpsTransport(enrolment)
