"""The receiver's answers to uploads over TLS."""

from __future__ import annotations

import zlib
from collections.abc import AsyncIterator

import pytest

from sync.segment import Identity, digest_of, identity_path
from tests.helpers.fleet import GATEWAY, OTHER, Centre, identity, segment
from tests.helpers.raw_put import put_head, raw_request

LANDED = f"landing/{identity_path(identity())}.seg"


async def test_segment_lands_once_and_a_conflict_is_set_aside(centre: Centre) -> None:
    data, other = segment(), segment(text="pump off")
    for status in (201, 200):
        answer = await centre.client.put(data)
        assert (answer.status, answer.body) == (status, {"digest": digest_of(data).hex()})
        assert (centre.files(), centre.files(landed=False)) == ([LANDED], [])
        assert (centre.folder.root / LANDED).read_bytes() == data
    answer = await centre.client.put(other)
    assert (answer.status, answer.body["reason"]) == (409, "conflict")
    assert (centre.folder.root / LANDED).read_bytes() == data
    (aside,) = centre.files(landed=False)
    assert (centre.folder.root / aside).read_bytes() == other


async def test_head_answers_digest_and_size(centre: Centre) -> None:
    assert (await centre.client.head()).status == 404
    await centre.client.put(segment())
    answer = await centre.client.head()
    assert answer.status == 200
    assert answer.headers["x-fieldpost-digest"] == digest_of(segment()).hex()
    assert answer.headers["content-length"] == str(len(segment()))
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
