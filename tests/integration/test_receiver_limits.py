"""The receiver at its limits: size, concurrency, full disk, rate, stop."""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import os
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random

import aiohttp
import pytest

from sync.common.fleet_folder import FleetFolder
from sync.receiver.limits import ReceiverLimits
from sync.receiver.server import ListenAddress, bind_socket, running_receiver
from sync.receiver.tls import ensure_own_certificate
from tests.helpers.fleet import (
    GATEWAY,
    HOST,
    OTHER,
    Answer,
    Centre,
    Client,
    client,
    identity,
    make_fleet,
    running_centre,
    segment,
)
from tests.helpers.fleet_tables import put
from tests.helpers.raw_put import (
    close,
    partial_path,
    put_head,
    raw_request,
    start_upload,
    wait_for_partial_files,
)

LARGE = Random(1).randbytes(300_000).hex()
"""A text that does not fit into the buffer of an upload."""


async def test_too_large_body_answers_413_before_it_is_sent(tmp_path: Path) -> None:
    async with running_centre(tmp_path / "fleet", ReceiverLimits(linger_s=0.1)) as centre:
        size = ReceiverLimits().body_bytes + 1
        status, answer = await raw_request(centre, put_head(centre, f"Content-Length: {size}"))
        assert status.startswith("HTTP/1.1 413 ")  # Python 3.13 has another reason phrase
        assert json.loads(answer.rsplit(b"\r\n", 1)[1])["reason"] == "size"
        assert centre.files(landed=False) == []


async def test_largest_body_is_received(centre: Centre) -> None:
    data = bytes(ReceiverLimits().body_bytes)
    head = put_head(centre, f"Content-Length: {len(data)}", data=data)
    status, answer = await raw_request(centre, head, data)
    assert status == "HTTP/1.1 400 Bad Request"
    assert b'"magic"' in answer


@pytest.mark.parametrize(
    ("call", "code", "status", "reason"),
    [
        *((call, errno.ENOSPC, 507, "full") for call in ("write", "fsync", "link")),
        *((call, errno.EDQUOT, 507, "full") for call in ("write", "fsync", "link")),
        ("fsync", errno.EIO, 503, "storage"),
    ],
)
async def test_full_or_failing_disk_lands_nothing(
    centre: Centre,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    call: str,
    code: int,
    status: int,
    reason: str,
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patched:
        patched.setattr(os, call, refuse)
        answer = await centre.client.put(segment(text=LARGE))
    assert (answer.status, answer.body["reason"]) == (status, reason)
    assert int(answer.headers["retry-after"]) > 0
    assert "storage" in caplog.text
    assert centre.files() == centre.files(landed=False) == []
    assert (await centre.client.put(segment())).status == 201


async def test_concurrent_uploads_of_one_gateway_are_limited(tmp_path: Path) -> None:
    limits = ReceiverLimits(uploads_per_gateway=2)
    async with running_centre(tmp_path / "fleet", limits) as centre:
        writers = [await start_upload(centre) for _ in range(2)]
        await wait_for_partial_files(centre, 2)
        answer = await centre.client.put(segment())
        assert (answer.status, answer.body["reason"]) == (429, "busy")
        assert answer.headers["retry-after"] == "5"
        name = identity(gateway=OTHER)
        assert (await centre.client.put(segment(name), name)).status == 201
        await close(*writers)
        await wait_for_partial_files(centre, 0)
        assert (await centre.client.put(segment())).status == 201


async def test_concurrent_uploads_of_all_gateways_are_limited(tmp_path: Path) -> None:
    async with running_centre(tmp_path / "fleet", ReceiverLimits(uploads=1)) as centre:
        writer = await start_upload(centre, OTHER)
        await wait_for_partial_files(centre, 1)
        answer = await centre.client.put(segment())
        assert (answer.status, answer.body["reason"]) == (503, "busy")
        assert answer.headers["retry-after"] == "5"
        await close(writer)
        await wait_for_partial_files(centre, 0)
        assert (await centre.client.put(segment())).status == 201


@pytest.mark.parametrize(
    "limits",
    [
        ReceiverLimits(linger_s=0.1, stall_timeout_s=0.05),
        ReceiverLimits(linger_s=0.1, body_timeout_s=0.05),
    ],
)
async def test_stalled_body_times_out(tmp_path: Path, limits: ReceiverLimits) -> None:
    async with running_centre(tmp_path / "fleet", limits) as centre:
        head = put_head(centre, f"Content-Length: {len(segment())}", data=segment())
        status, answer = await raw_request(centre, head, segment()[:-10])
        assert status == "HTTP/1.1 408 Request Timeout"
        assert b"slow" in answer
        assert centre.files() == []
        assert set(centre.files(landed=False)) <= {partial_path(segment())}


async def test_connection_without_request_is_closed(tmp_path: Path) -> None:
    async with running_centre(tmp_path / "fleet", ReceiverLimits(idle_timeout_s=0.05)) as centre:
        assert await raw_request(centre, "") == ("", b"")
        assert await raw_request(centre, "PUT /v1") == ("", b"")


async def refused_at_stop(connected: Client) -> Answer:
    """Send requests on an open connection until the receiver refuses new ones."""
    async with asyncio.timeout(10):
        while True:
            answer = await connected.put(segment(identity(4, 6)), identity(4, 6))
            if answer.status == 503:
                return answer


async def test_stop_waits_for_requests_in_progress(tmp_path: Path) -> None:
    tokens = make_fleet(tmp_path / "fleet")
    folder = FleetFolder(tmp_path / "fleet")
    metrics = bind_socket(ListenAddress(HOST, 0))
    health = "http://{}:{}/health".format(*metrics.getsockname())
    running = running_receiver(
        folder, ListenAddress(HOST, 0), ensure_own_certificate(folder), ReceiverLimits(), metrics
    )
    address = await running.__aenter__()
    data = segment()
    started, proceed = asyncio.Event(), asyncio.Event()

    async def body() -> AsyncIterator[bytes]:
        yield data[:-5]
        started.set()
        await proceed.wait()
        yield data[-5:]

    async with client(address, tokens, folder.pki / "ca.pem") as connected:
        length = str(len(data))
        put = asyncio.create_task(connected.put(data, None, body(), Content_Length=length))
        await started.wait()
        await wait_for_partial_files(Centre(folder, connected), 1)
        other = identity(4, 6)
        assert (await connected.put(segment(other), other)).status == 201, "and stays connected"
        stopping = asyncio.create_task(running.__aexit__(None, None, None))
        assert (await refused_at_stop(connected)).body["reason"] == "stopping"
        async with connected.session.get(health) as answer:
            assert (answer.status, await answer.json()) == (503, {"status": "stopping"})
        proceed.set()
        assert (await put).status == 201
        await stopping
        with pytest.raises(aiohttp.ClientConnectorError):
            await connected.put(data)


async def test_upload_longer_than_the_drain_timeout_is_aborted(tmp_path: Path) -> None:
    limits = ReceiverLimits(drain_timeout_s=0.05, close_timeout_s=0.05)
    async with running_centre(tmp_path / "fleet", limits) as centre:
        writer = await start_upload(centre)
        await wait_for_partial_files(centre, 1)
    assert centre.files() == []
    assert set(centre.files(landed=False)) <= {partial_path(b"")}
    writer.transport.abort()


async def test_start_cleans_up_and_reports_damaged_records(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "fieldpost.fleet")
    folder = FleetFolder(tmp_path / "fleet")
    make_fleet(folder.root)
    (folder.gateways / f"{OTHER}.json").write_text("{")
    leftover = put(folder.incoming / "partial" / GATEWAY / "0.part", b"half", at=1)
    async with running_receiver(
        folder, ListenAddress(HOST, 0), ensure_own_certificate(folder), ReceiverLimits()
    ):
        assert not leftover.exists()
    assert [record.getMessage() for record in caplog.records] == ["damaged", "cleaned"]


@pytest.mark.parametrize(
    "limits",
    [
        ReceiverLimits(requests_per_s=0.02, rate_window_s=100),
        ReceiverLimits(bytes_per_s=1, rate_window_s=2 * len(segment())),
    ],
    ids=["requests", "bytes"],
)
async def test_rate_limit_applies_to_one_gateway(tmp_path: Path, limits: ReceiverLimits) -> None:
    async with running_centre(tmp_path / "fleet", limits) as centre:
        statuses = [(await centre.client.put(segment())).status for _ in range(2)]
        assert statuses == [201, 200]
        answer = await centre.client.put(segment())
        assert (answer.status, answer.body["reason"]) == (429, "rate")
        assert int(answer.headers["retry-after"]) > 0
        name = identity(gateway=OTHER)
        assert (await centre.client.put(segment(name), name)).status == 201


@pytest.mark.parametrize(
    "limits", [ReceiverLimits(reserve_bytes=2**62), ReceiverLimits(landing_quota_bytes=10)]
)
async def test_body_without_disk_space_answers_507_before_it_is_sent(
    tmp_path: Path, limits: ReceiverLimits
) -> None:
    async with running_centre(tmp_path / "fleet", limits) as centre:
        answer = await centre.client.put(segment())
        assert (answer.status, answer.body["reason"]) == (507, "full")
        assert answer.headers["retry-after"] == "300"
        assert centre.files() == centre.files(landed=False) == []
        assert (await centre.client.head()).status == 404, "HEAD is answered"
