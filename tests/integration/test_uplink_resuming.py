"""Interrupted uploads, resumed by the transport."""

from __future__ import annotations

import asyncio

import pytest

from sync.uplink.https_transport import HttpsTransport
from sync.uplink.responses import AccessDenial, Acknowledgement, Outcome, TemporaryFailure
from tests.helpers.backlog import SqliteBacklog
from tests.helpers.lossy_network import Uploading, seal_segment
from tests.helpers.pki import LoopbackPki
from tests.helpers.scripted_centre import (
    Centre,
    DisconnectAfter,
    Script,
    accept,
    accept_and_disconnect,
    answers,
    no_answer,
    running_scripted_centre,
)

LARGE = 100_000
DONE = [(1, "acknowledged")]


async def put(
    pki: LoopbackPki, backlog: SqliteBacklog, *scripts: Script, tries: int = 1
) -> tuple[list[Outcome], Centre]:
    """Send one large segment repeatedly, without an uploader."""
    waiting = await seal_segment(backlog, padding=LARGE)
    async with running_scripted_centre(pki, backlog.gateway, *scripts) as centre:
        transport = HttpsTransport(centre.enrolment)
        outcomes = [await transport.put(waiting) for _ in range(tries)]
        await transport.close()
    return outcomes, centre


def calls(centre: Centre) -> list[tuple[str, str | None]]:
    """Return the method of each request and the offset of its body."""
    ranges = [(got.method, got.headers.get("Content-Range", "")) for got in centre.requests]
    return [(method, text.partition("-")[0].removeprefix("bytes ")) for method, text in ranges]


@pytest.mark.parametrize("stored", [1, 20_000, 65_536, -1])
async def test_interrupted_body_is_resumed(
    uploading: Uploading, backlog: SqliteBacklog, stored: int
) -> None:
    data = (await seal_segment(backlog, padding=LARGE)).data
    stored %= len(data)
    async with uploading(accept, DisconnectAfter(stored), segments=0) as shipping:
        await shipping.end_sleeps(1)
        await backlog.wait_for_states(DONE)
        resumed = [("HEAD", ""), ("PUT", ""), ("HEAD", ""), ("PUT", str(stored))]
        assert calls(shipping.centre) == resumed
        last = shipping.centre.requests[-1]
        assert last.headers["Content-Range"] == f"bytes {stored}-{len(data) - 1}/{len(data)}"
        assert last.headers["Content-Length"] == str(len(data) - stored)
        assert last.body == data
        assert len({got.headers["X-Fieldpost-SHA256"] for got in shipping.centre.requests}) == 1
        assert shipping.notices.names() == ["unreachable", "shipping"]


@pytest.mark.parametrize("stored", [0, None])
async def test_body_without_or_with_complete_partial_is_sent_whole(
    uploading: Uploading, backlog: SqliteBacklog, stored: int | None
) -> None:
    data = (await seal_segment(backlog, padding=LARGE)).data
    first = DisconnectAfter(len(data) if stored is None else stored)
    async with uploading(accept, first, segments=0) as shipping:
        await shipping.end_sleeps(1)
        await backlog.wait_for_states(DONE)
        assert calls(shipping.centre)[2:] == [("HEAD", ""), ("PUT", "")]
        assert shipping.centre.requests[-1].body == data


async def test_lost_acknowledgement_of_a_large_body_costs_a_head_request(
    uploading: Uploading, backlog: SqliteBacklog
) -> None:
    segment = await seal_segment(backlog, padding=LARGE)
    stored = answers(200, {}, X_Fieldpost_Digest=segment.digest.hex())
    async with uploading(accept, accept_and_disconnect, stored, segments=0) as shipping:
        await shipping.end_sleeps(1)
        await backlog.wait_for_states(DONE)
        assert [method for method, _ in calls(shipping.centre)] == ["HEAD", "PUT", "HEAD"]


async def test_changed_offset_is_followed_and_contradictions_end_in_a_whole_body(
    pki: LoopbackPki, backlog: SqliteBacklog
) -> None:
    def at(status: int, offset: str) -> Script:
        return answers(status, {"reason": "range", "error": "no"}, X_Fieldpost_Offset=offset)

    outcomes, centre = await put(pki, backlog, at(404, "70000"), at(416, "100"), accept)
    assert [start for _, start in calls(centre)] == ["", "70000", "100"]
    contradictory = [at(404, "70000"), at(416, "1"), at(416, "2"), at(416, "3")]
    other = SqliteBacklog()
    outcomes, centre = await put(pki, other, *contradictory)
    other.close()
    assert [start for _, start in calls(centre)] == ["", "70000", "1", "2", ""]
    assert isinstance(outcomes[0], Acknowledgement)
    assert outcomes[0].new


@pytest.mark.parametrize("offset", ["-1", "x", "1_000", "٣", "9" * 30, "", "1e3"])
async def test_invalid_offset_is_zero(
    pki: LoopbackPki, backlog: SqliteBacklog, offset: str
) -> None:
    headers = {"X_Fieldpost_Offset": offset} if offset.isascii() else {}
    _, centre = await put(pki, backlog, answers(404, {}, **headers))
    assert calls(centre) == [("HEAD", ""), ("PUT", "")]


async def test_head_outcomes(pki: LoopbackPki, backlog: SqliteBacklog) -> None:
    outcomes, centre = await put(
        pki,
        backlog,
        answers(503, {}, Retry_After="9"),
        answers(401, {}),
        answers(405, {}),
        answers(500, {}),
        answers(200, {}, X_Fieldpost_Digest="00" * 32),
        answers(409, {"reason": "conflict", "error": "other bytes"}),
        tries=4,
    )
    assert outcomes[0] == TemporaryFailure("503: no reason given", 9.0)
    assert isinstance(outcomes[1], AccessDenial)
    assert [type(outcome) for outcome in outcomes[2:]] == [TemporaryFailure, type(outcomes[3])]
    assert [method for method, _ in calls(centre)] == ["HEAD", "HEAD", "HEAD", "PUT", "HEAD", "PUT"]


async def test_small_body_is_resent_without_head_request(uploading: Uploading) -> None:
    async with uploading(DisconnectAfter(10), DisconnectAfter(20)) as shipping:
        await shipping.end_sleeps(1)
        await shipping.backlog.wait_for_states(DONE)
        assert {method for method, _ in calls(shipping.centre)} == {"PUT"}
        assert shipping.centre.requests[-1].body == shipping.backlog.data()[0]


@pytest.mark.parametrize("stored", [0, 50_000])
async def test_early_refusal_is_read(pki: LoopbackPki, backlog: SqliteBacklog, stored: int) -> None:
    busy = DisconnectAfter(stored, answers(503, {"error": "busy"}, Retry_After="7"))
    (outcome,), _ = await put(pki, backlog, accept, busy)
    assert isinstance(outcome, TemporaryFailure)
    assert outcome.after in (7.0, None)  # None: the cut is seen first, and the wait is our own


async def test_cancelling_in_a_body_is_prompt(uploading: Uploading, backlog: SqliteBacklog) -> None:
    await seal_segment(backlog, padding=LARGE)
    async with uploading(accept, DisconnectAfter(10, no_answer), segments=0) as shipping:
        await shipping.centre.wait_for_requests(2)
    assert asyncio.all_tasks() == {asyncio.current_task()}
