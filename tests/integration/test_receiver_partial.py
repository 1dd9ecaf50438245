"""Interrupted uploads: offsets, resumption, concurrency."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sync.receiver.incoming_files import PartialUploads
from sync.receiver.limits import ReceiverLimits
from tests.helpers.fleet import GATEWAY, OTHER, Answer, Centre, identity, running_centre, segment
from tests.helpers.raw_put import (
    close,
    open_upload,
    partial_path,
    put_head,
    raw_request,
    wait_for_partial_files,
)

DATA = segment(text=random.Random(1).randbytes(20_000).hex())
TOTAL = len(DATA)
OFFSET = "x-fieldpost-offset"


PART = partial_path(DATA)


@pytest.fixture
async def centre(tmp_path: Path) -> AsyncIterator[Centre]:
    limits = ReceiverLimits(linger_s=0.1, buffer_bytes=1)
    async with running_centre(tmp_path / "fleet", limits) as running:
        yield running


async def cut(centre: Centre, data: bytes, length: int = TOTAL, start: int = 0) -> None:
    """Send the first bytes of a body and close the connection."""
    lines = [f"Content-Length: {length}"]
    if start:
        lines.append(f"Content-Range: bytes {start}-{start + length - 1}/{start + length}")
    _, writer = await open_upload(centre, data, DATA, *lines)
    part = centre.folder.root / PART
    async with asyncio.timeout(10):
        while not (part.exists() and part.stat().st_size == start + len(data)):
            await centre.client.head()
    await close(writer)
    await wait_for_partial_files(centre, 0)


async def rest(centre: Centre, start: int) -> Answer:
    """Send the rest of a body."""
    return await centre.client.put(
        DATA, body=DATA[start:], Content_Range=f"bytes {start}-{TOTAL - 1}/{TOTAL}"
    )


async def offset(centre: Centre) -> int:
    answer = await centre.client.head(data=DATA)
    assert answer.status == 404
    return int(answer.headers[OFFSET])


async def test_interrupted_upload_is_resumed_and_lands(
    centre: Centre, caplog: pytest.LogCaptureFixture
) -> None:
    assert await offset(centre) == 0
    await cut(centre, DATA[:5_000])
    assert await offset(centre) == 5_000
    await cut(centre, DATA[5_000:9_000], TOTAL - 5_000, 5_000)
    assert await offset(centre) == 9_000
    assert centre.files() == []
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert (await rest(centre, 9_000)).status == 201
    assert [(centre.folder.root / name).read_bytes() for name in centre.files()] == [DATA]
    assert centre.files(landed=False) == []
    assert (await centre.client.head(data=DATA)).status == 200
    assert (await centre.client.put(DATA)).status == 200


async def test_wrong_offset_answers_416_with_the_right_one(centre: Centre) -> None:
    answer = await rest(centre, 100)
    assert (answer.status, answer.headers[OFFSET]) == (416, "0")
    await cut(centre, DATA[:5_000])
    for start in (4_999, 5_001):
        answer = await rest(centre, start)
        assert (answer.status, answer.body["reason"]) == (416, "offset")
        assert answer.headers[OFFSET] == "5000"
    assert (await rest(centre, 5_000)).status == 201


async def test_wrong_sha256_discards_the_partial_upload(centre: Centre) -> None:
    await cut(centre, b"x" * 5_000)
    answer = await rest(centre, 5_000)
    assert (answer.status, answer.body["reason"]) == (400, "sha256")
    assert centre.files() == centre.files(landed=False) == []
    assert await offset(centre) == 0
    assert (await centre.client.put(DATA)).status == 201


async def test_partial_upload_belongs_to_its_gateway(centre: Centre) -> None:
    await cut(centre, DATA[:5_000])
    answer = await centre.client.head(identity(gateway=OTHER), data=DATA)
    assert answer.headers[OFFSET] == "0"


@pytest.mark.parametrize(
    ("value", "status"),
    [
        (f"bytes 10-{TOTAL - 2}/{TOTAL}", 400),
        (f"bytes 11-{TOTAL - 1}/{TOTAL}", 400),
        (f"bytes 10-{TOTAL - 1}/*", 400),
        ("bytes */10", 400),
        ("lines 10-11/12", 400),
        (f"bytes 20-{TOTAL - 11}/{TOTAL - 10}", 400),
        (f"bytes {2**24}-{2**24 + TOTAL - 11}/{2**24 + TOTAL - 10}", 413),
    ],
)
async def test_content_range_must_be_the_rest(centre: Centre, value: str, status: int) -> None:
    answer = await centre.client.put(DATA[10:], Content_Range=value)
    assert answer.status == status
    assert centre.files() == []


async def test_empty_content_range_is_refused(centre: Centre) -> None:
    head = put_head(centre, "Content-Length: 0", "Content-Range: bytes 5-4/5")
    status, _ = await raw_request(centre, head)
    assert status == "HTTP/1.1 400 Bad Request"


async def test_invalid_sha256_is_refused_in_head(centre: Centre) -> None:
    assert (await centre.client.head(X_Fieldpost_SHA256="g" * 64)).status == 400


async def test_resuming_sender_takes_over_from_its_old_connection(centre: Centre) -> None:
    """As on a mobile link, where the receiver does not notice that a connection is dead."""
    length = f"Content-Length: {TOTAL}"
    _, first = await open_upload(centre, DATA[:5_000], DATA, length)
    await wait_for_partial_files(centre, 1)
    assert 0 <= await offset(centre) <= 5_000
    await wait_for_partial_files(centre, 0)
    _, second = await open_upload(centre, DATA[:6_000], DATA, length)
    await wait_for_partial_files(centre, 1)
    stored = await offset(centre)
    assert (await rest(centre, stored)).status == 201
    for writer in (first, second):
        writer.transport.abort()


async def test_partial_upload_of_another_receiver_answers_503(centre: Centre) -> None:
    await cut(centre, DATA[:5_000])
    other_receiver = PartialUploads(centre.folder, ReceiverLimits())
    with other_receiver.open(GATEWAY, hashlib.sha256(DATA).digest(), 5_000):
        answer = await rest(centre, 5_000)
        assert (answer.status, answer.body["reason"]) == (503, "held")
        assert answer.headers["retry-after"]
    assert (await rest(centre, 5_000)).status == 201


async def test_only_sent_bytes_of_a_resumed_upload_count_against_the_rate(tmp_path: Path) -> None:
    limits = ReceiverLimits(bytes_per_s=1, rate_window_s=TOTAL)
    async with running_centre(tmp_path / "fleet", limits) as centre:
        part = centre.folder.root / PART
        part.parent.mkdir()
        part.write_bytes(DATA[:5_000])
        assert (await rest(centre, 5_000)).status == 201
        assert (await centre.client.put(segment(identity(4, 6)), identity(4, 6))).status == 201
