"""Authorization: tokens, other gateways, revocation, log lines."""

from __future__ import annotations

import logging
import os

import pytest

from sync.common.enrolment import new_token
from sync.receiver.gateways import GatewayRegistry
from tests.helpers.fleet import GATEWAY, HOST, OTHER, Centre, identity, segment
from tests.helpers.raw_put import put_head, raw_request


@pytest.mark.parametrize(
    "authorization",
    ["", "Bearer", "Bearer ", "Basic abc", f"Bearer {new_token()}", "Bearer " + "a" * 4_000],
    ids=["none", "no token", "a space", "basic", "another token", "too long"],
)
async def test_invalid_tokens_answer_401(centre: Centre, authorization: str) -> None:
    answer = await centre.client.put(segment(), Authorization=authorization)
    assert (answer.status, answer.body["reason"]) == (401, "token")
    assert answer.headers["www-authenticate"] == "Bearer"
    assert centre.files() == []


async def test_token_of_invalid_bytes_answers_401(centre: Centre) -> None:
    head = put_head(centre, "Content-Length: 0").replace("Bearer ", "Bearer \xe4")
    status, _ = await raw_request(centre, head)
    assert status == "HTTP/1.1 401 Unauthorized"


async def test_unknown_gateway_and_wrong_token_get_the_same_answer(centre: Centre) -> None:
    answers = []
    for gateway in (GATEWAY, "unknown.example"):
        name, wrong = identity(gateway=gateway), f"Bearer {new_token()}"
        answers.append(await centre.client.put(segment(name), name, Authorization=wrong))
    assert answers[0].status == answers[1].status == 401
    assert answers[0].body == answers[1].body


async def test_token_of_another_gateway_answers_403(centre: Centre) -> None:
    foreign = f"Bearer {centre.client.tokens[OTHER]}"
    answer = await centre.client.put(segment(), Authorization=foreign)
    assert (answer.status, answer.body["reason"]) == (403, "gateway")
    assert (await centre.client.head(Authorization=foreign)).status == 403
    assert centre.files() == []


async def test_revocation_and_renewal_take_effect_at_once(centre: Centre) -> None:
    gateways = GatewayRegistry(centre.folder)
    assert (await centre.client.put(segment())).status == 201
    gateways.revoke(GATEWAY, 1)
    assert (await centre.client.put(segment())).status == 401
    fresh = new_token()
    gateways.enrol(GATEWAY, "https://h:1", fresh, 2, renew=True)
    assert (await centre.client.put(segment())).status == 401
    centre.client.tokens[GATEWAY] = fresh
    assert (await centre.client.put(segment())).status == 200


async def test_damaged_record_excludes_its_own_gateway_only(centre: Centre) -> None:
    os.utime(centre.folder.gateways, ns=(1, 1))
    assert (await centre.client.put(segment())).status == 201
    (centre.folder.gateways / f"{GATEWAY}.json").write_text("{")
    answer = await centre.client.put(segment())
    assert (answer.status, answer.body["reason"]) == (503, "enrolment")
    name = identity(gateway=OTHER)
    assert (await centre.client.put(segment(name), name)).status == 201


async def test_refusal_is_one_log_line(centre: Centre, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "fieldpost.fleet")
    secret = new_token()
    await centre.client.put(segment(), Authorization=f"Bearer {secret}")
    await centre.client.put(segment())
    (record,) = [record for record in caplog.records if record.name == "fieldpost.fleet"]
    facts = record.__dict__["facts"]
    assert (facts["status"], facts["reason"], facts["peer"]) == (401, "token", HOST)
    assert secret not in str(facts)
