"""The receiver's answers to gateways over TLS: uploads, authorization, high watermarks."""

from __future__ import annotations

import logging
import os
import zlib
from collections.abc import AsyncIterator

import pytest

from sync.common.enrolment import new_token
from sync.receiver.gateways import GatewayRegistry
from sync.segment import Identity, digest_of, identity_path
from tests.helpers.fleet import EPOCH, GATEWAY, HOST, OTHER, Answer, Centre, identity, segment
from tests.helpers.raw_put import put_head, raw_request

LANDED = f"landing/{identity_path(identity())}.seg"


async def test_segment_lands_once_and_a_conflict_is_set_aside(centre: Centre) -> None:
    data, other = segment(), segment(text="pump off")
    path, versions = centre.folder.root / LANDED, set()
    for status in (201, 200):
        answer = await centre.client.put(data)
        assert (answer.status, answer.body) == (status, {"digest": digest_of(data).hex()})
        assert (centre.files(), centre.files(landed=False)) == ([LANDED], [])
        assert path.read_bytes() == data
        assert path.stat().st_mode & 0o777 == 0o600
        versions.add((path.stat().st_ino, path.stat().st_mtime_ns))
    assert len(versions) == 1
    answer = await centre.client.put(other)
    assert (answer.status, answer.body["reason"]) == (409, "conflict")
    assert path.read_bytes() == data
    (aside,) = centre.files(landed=False)
    assert (centre.folder.root / aside).read_bytes() == other


async def test_head_answers_digest(centre: Centre) -> None:
    assert (await centre.client.head()).status == 404
    await centre.client.put(segment())
    answer = await centre.client.head()
    assert answer.status == 200
    assert answer.headers["x-fieldpost-digest"] == digest_of(segment()).hex()
    assert answer.headers["server"] == "fieldpost"
    assert (await centre.client.head(identity(2, 3))).status == 404


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "short"),
        (b"x" * 500, "magic"),
        (segment()[:-1], "checksum"),
        (segment()[:-40] + bytes(8) + segment()[-32:], "checksum"),
    ],
)
async def test_malformed_segment_answers_400(centre: Centre, data: bytes, reason: str) -> None:
    answer = await centre.client.put(data)
    assert (answer.status, answer.body["reason"]) == (400, reason)
    assert answer.body["error"]
    assert centre.files() == centre.files(landed=False) == []


@pytest.mark.parametrize("sealed", [identity(1, 4), identity(2, 3), identity(gateway=OTHER)])
async def test_path_of_another_segment_answers_400(centre: Centre, sealed: Identity) -> None:
    answer = await centre.client.put(segment(sealed), identity())
    assert (answer.status, answer.body["reason"]) == (400, "name")
    assert centre.files() == []


@pytest.mark.parametrize("sum_", ["", "00", "g" * 64, "0" * 64])
async def test_wrong_or_missing_sha256_answers_400(centre: Centre, sum_: str) -> None:
    answer = await centre.client.put(segment(), X_Fieldpost_SHA256=sum_)
    assert (answer.status, answer.body["reason"]) == (400, "sha256")
    assert centre.files() == []


@pytest.mark.parametrize(
    "path",
    [
        f"{GATEWAY}/01JD0000000000000000000000/logs/01-3",
        f"{GATEWAY}/01JD0000000000000000000000/logs/3-1",
        f"{GATEWAY}/01JD0000000000000000000000/pumps/1-3",
        f"{GATEWAY}/%2e%2e/logs/1-3",
        f"{GATEWAY}/..%2f..%2fpki/logs/1-3",
        f"{GATEWAY}/01jd0000000000000000000000/logs/1-3",
    ],
)
async def test_invalid_segment_path_is_refused(centre: Centre, path: str) -> None:
    head = put_head(centre, f"Content-Length: {len(segment())}", data=segment())
    head = head.replace(identity_path(identity()), path)
    status, answer = await raw_request(centre, head, segment())
    assert status == "HTTP/1.1 400 Bad Request"
    assert b'"identity"' in answer or b'"count"' in answer
    assert centre.files() == centre.files(landed=False) == []


async def test_body_without_content_length_answers_411(centre: Centre) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        yield segment()

    answer = await centre.client.put(segment(), body=pieces())
    assert (answer.status, answer.body["reason"]) == (411, "length")
    assert centre.files() == []


async def test_content_encoding_is_not_decoded(centre: Centre) -> None:
    packed = zlib.compress(segment(), wbits=31)
    answer = await centre.client.put(packed, Content_Encoding="gzip")
    assert answer.status == 400
    assert centre.files() == []


# Authorization


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


# High watermarks of an epoch


async def ask(centre: Centre, epoch: str = EPOCH, gateway: str = GATEWAY) -> Answer:
    headers = {"Authorization": f"Bearer {centre.client.tokens[GATEWAY]}"}
    return await centre.client.send("GET", f"/v1/gateways/{gateway}/epochs/{epoch}", headers)


async def test_high_watermark_covers_landing_and_archive(centre: Centre) -> None:
    answer = await ask(centre)
    assert (answer.status, answer.body) == (200, {"lanes": {}})
    names = [identity(7, 12), identity(1, 3), identity(100, 101), identity(4, 6)]
    for name in names:
        await centre.client.put(segment(name), name)
    expected = {"logs": {"last": 101, "digest": digest_of(segment(names[2])).hex()}}
    assert (await ask(centre)).body == {"lanes": expected}
    for name in names[2:]:
        landed = centre.folder.landing / f"{identity_path(name)}.seg"
        archived = centre.folder.archive / landed.relative_to(centre.folder.landing)
        archived.parent.mkdir(parents=True, exist_ok=True)
        landed.rename(archived)
    assert (await ask(centre)).body == {"lanes": expected}


async def test_longer_segment_of_a_fork_counts_and_other_names_are_ignored(centre: Centre) -> None:
    for name in (identity(2, 9), identity(1, 9), identity(5, 9)):
        await centre.client.put(segment(name), name)
    folder = (centre.folder.landing / identity_path(identity())).parent
    for stray in ("1-999999.seg", "9-1.seg", "01-30.seg", "10-11.part", "notes"):
        (folder / stray).write_bytes(b"")
    body = (await ask(centre)).body
    digest = digest_of(segment(identity(1, 9))).hex()
    assert body == {"lanes": {"logs": {"last": 9, "digest": digest}}}


@pytest.mark.parametrize(
    ("epoch", "gateway", "status"),
    [("..%2f..", GATEWAY, 400), (EPOCH.lower(), GATEWAY, 400), (EPOCH, OTHER, 403)],
)
async def test_invalid_epoch_or_other_gateway_is_refused(
    centre: Centre, epoch: str, gateway: str, status: int
) -> None:
    assert (await ask(centre, epoch, gateway)).status == status


@pytest.mark.parametrize("size", [0, 31])
async def test_truncated_file_is_a_different_segment(centre: Centre, size: int) -> None:
    name = identity(1, 3)
    await centre.client.put(segment(name), name)
    (centre.folder.landing / f"{identity_path(name)}.seg").write_bytes(segment(name)[:size])
    digest = segment(name)[:size].ljust(32, b"\0").hex()
    assert (await ask(centre)).body == {"lanes": {"logs": {"last": 3, "digest": digest}}}
    answer = await centre.client.head()
    assert (answer.status, answer.headers["x-fieldpost-digest"]) == (200, digest)
    assert (await centre.client.put(segment(name), name)).status == 409


async def test_high_watermarks_need_authentication(centre: Centre) -> None:
    path = f"/v1/gateways/{GATEWAY}/epochs/{EPOCH}"
    assert (await centre.client.send("GET", path, {})).status == 401
