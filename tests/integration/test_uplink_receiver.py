"""The uplink and the centre's own receiver: both ends of one contract, over real TLS."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

import pytest

from sync.format import Enrolment, Identity, new_token
from sync.uplink import (
    BatchLimits,
    Bell,
    Conflict,
    Denied,
    HttpsTransport,
    Landed,
    Refused,
    Sealer,
    Uploader,
    Waiting,
)
from tests.helpers.backlog import FixedFacts, Notices, SqliteBacklog
from tests.helpers.fleet import GATEWAY, OTHER, identity, running_centre, segment
from tests.helpers.manual_time import ManualTime
from tests.helpers.segments import logs, readings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.helpers.fleet import Centre


@pytest.fixture
async def centre(tmp_path: Path) -> AsyncIterator[Centre]:
    async with running_centre(tmp_path / "fleet") as running:
        yield running


def enrolment(centre: Centre, token: str | None = None) -> Enrolment:
    host, port = centre.client.address
    ca = (centre.folder.pki / "ca.pem").read_text()
    return Enrolment(GATEWAY, f"https://{host}:{port}", token or centre.client.tokens[GATEWAY], ca)


async def put(centre: Centre, data: bytes, name: Identity, token: str | None = None) -> object:
    transport = HttpsTransport(enrolment(centre, token))
    try:
        return await transport.put(Waiting(name, data[-32:], data))
    finally:
        await transport.close()


async def test_what_is_sealed_lands_as_it_was_and_is_acknowledged(centre: Centre) -> None:
    backlog = SqliteBacklog(GATEWAY)
    backlog.write("readings", readings(25))
    backlog.write("logs", logs(5))
    notices = Notices(backlog)
    time = ManualTime()
    transport = HttpsTransport(enrolment(centre))
    uploader = Uploader(GATEWAY, backlog, transport, tell=notices.tell, bell=Bell(time.sleep))
    sealer = Sealer(
        GATEWAY,
        backlog,
        FixedFacts(),
        BatchLimits(events=10),
        clock=lambda: 0.0,
        sealed=uploader.wake,
        tell=notices.tell,
    )
    assert await sealer.flush() == 4
    task = asyncio.create_task(uploader.run())
    try:
        await backlog.until([(first, "acknowledged") for first in (1, 11, 21, 1)])
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        await transport.close()
    found = [(centre.folder.root / name).read_bytes() for name in centre.files()]
    assert sorted(found) == sorted(backlog.data())
    assert notices.all == []
    backlog.close()


async def test_each_answer_is_understood(centre: Centre) -> None:
    data = segment()
    assert await put(centre, data, identity()) == Landed(data[-32:], True)
    assert await put(centre, data, identity()) == Landed(data[-32:], False)
    assert isinstance(await put(centre, segment(text="other"), identity()), Conflict)
    damaged = data[:-1] + bytes([data[-1] ^ 1])
    outcome = await put(centre, damaged, identity())
    assert isinstance(outcome, Refused)
    assert outcome.reason == "checksum"
    outcome = await put(centre, data, identity(4, 6))
    assert isinstance(outcome, Refused)
    assert outcome.reason == "name"


async def test_a_token_that_is_not_ours_is_denied(centre: Centre) -> None:
    data = segment()
    assert isinstance(await put(centre, data, identity(), new_token()), Denied)
    assert isinstance(await put(centre, data, identity(), centre.client.tokens[OTHER]), Denied)
    assert centre.files() == []
