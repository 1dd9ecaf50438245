"""The receiver's metrics and health pages."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random

import aiohttp
import pytest

from sync.common.errors import FleetError
from sync.common.fleet_folder import FleetFolder
from sync.common.metrics import Histogram, exposition, single
from sync.receiver.limits import ReceiverLimits
from sync.receiver.metrics import COMMIT_BOUNDS_S, PREFIX, Metrics
from sync.receiver.server import ListenAddress, bind_socket, running_receiver
from sync.receiver.tls import ensure_own_certificate
from sync.segment import MAX_FILE
from sync.storage import object_store
from sync.storage.locations import open_storage
from tests.helpers.fleet import GATEWAY, HOST, OTHER, Client, client, identity, make_fleet, segment
from tests.helpers.object_store import BUCKET, FaultyProxy, environment
from tests.helpers.stored import stored

_SAMPLE = re.compile(r'([a-z_]+)((?:\{[a-z]+="[^"]*"(?:,[a-z]+="[^"]*")*\})?) ([-+0-9.e]+|\+Inf)')


def parse_samples(text: str) -> dict[str, float]:
    """Parse the samples of a page, and check each line."""
    samples, types = dict[str, float](), set[str]()
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            types.add(line.split()[2])
        elif not line.startswith("# HELP "):
            sample = _SAMPLE.fullmatch(line)
            assert sample, line
            family = re.sub(r"_(bucket|sum|count)$", "", sample[1])
            assert types & {sample[1], family}, f"{line} has no type"
            assert sample[1].startswith(PREFIX)
            samples[sample[1].removeprefix(PREFIX) + sample[2]] = float(sample[3])
    return samples


def test_histogram_is_cumulative() -> None:
    histogram = Histogram((0.1, 1.0))
    for value in (0.05, 0.1, 0.5, 7.0):
        histogram.observe(value)
    assert dict(histogram.samples()) == {
        '_bucket{le="0.1"}': 2,
        '_bucket{le="1.0"}': 3,
        '_bucket{le="+Inf"}': 4,
        "_sum": 7.65,
        "_count": 4,
    }


def test_gateways_are_counted_by_age_of_last_request() -> None:
    times = iter([0.0, 80_000.0, 86_300.0, 86_500.0])
    metrics = Metrics(lambda: next(times))
    for gateway in ("a", "b", "c"):
        metrics.record_arrival(gateway)
    samples = parse_samples(exposition(PREFIX, metrics.families(5)))
    assert {key: value for key, value in samples.items() if key.startswith("gateways")} == {
        'gateways{last="5m"}': 1,
        'gateways{last="1h"}': 0,
        'gateways{last="1d"}': 1,
        'gateways{last="longer"}': 1,
        'gateways{last="none"}': 2,
    }


def test_unknown_methods_share_one_series() -> None:
    metrics = Metrics()
    for method in ("GET", "BREW", "X" * 100):
        metrics.count_request(method, 405, "request")
    samples = parse_samples(exposition(PREFIX, metrics.families(0)))
    assert samples['requests_total{method="other",status="405",reason="request"}'] == 2


def test_large_numbers_are_exact() -> None:
    text = exposition(PREFIX, [single("a", "gauge", "A.", 2**53 - 1.0)])
    assert parse_samples(text) == {"a": 2**53 - 1.0}


@pytest.fixture
async def receiver(tmp_path: Path) -> AsyncIterator[tuple[Client, str]]:
    """Yield a client of a receiver and the URL of its monitoring pages."""
    tokens = make_fleet(tmp_path / "fleet")
    folder = FleetFolder(tmp_path / "fleet")
    with bind_socket(ListenAddress(HOST, 0)) as listener:
        url = "http://{}:{}".format(*listener.getsockname())
        limits = ReceiverLimits(landing_quota_bytes=MAX_FILE + 2 * len(segment()))
        async with (
            running_receiver(
                folder, ListenAddress(HOST, 0), ensure_own_certificate(folder), limits, listener
            ) as address,
            client(address, tokens, folder.pki / "ca.pem") as sender,
        ):
            yield sender, url


async def fetch(url: str) -> tuple[int, str, str]:
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        return answer.status, answer.content_type, await answer.text()


async def test_metrics_page(receiver: tuple[Client, str]) -> None:
    sender, url = receiver
    await sender.put(segment())
    await sender.put(segment())
    await sender.put(segment(), Authorization="")
    status, kind, text = await fetch(f"{url}/metrics")
    assert (status, kind) == (200, "text/plain")
    samples = parse_samples(text)
    expected = {
        'requests_total{method="PUT",status="201",reason="ok"}': 1,
        'requests_total{method="PUT",status="401",reason="token"}': 1,
        "received_bytes_total": 2 * len(segment()),
        'segments_total{outcome="new"}': 1,
        'segments_total{outcome="same"}': 1,
        'segments_total{outcome="other"}': 0,
        "segment_commit_seconds_count": 2,
        'segment_commit_seconds_bucket{le="+Inf"}': 2,
        'gateways{last="5m"}': 1,
        'gateways{last="none"}': 1,
        "uploads_in_progress": 0,
        "partial_uploads": 0,
        "partial_upload_bytes": 0,
    }
    assert {name: samples[name] for name in expected} == expected
    buckets = [name for name in samples if name.startswith("segment_commit_seconds_bucket")]
    assert len(buckets) == len(COMMIT_BOUNDS_S) + 1
    assert samples["disk_free_bytes"] > 0
    assert samples["certificate_expiry_timestamp_seconds"] > 1.7e9
    assert GATEWAY not in text
    assert OTHER not in text


async def test_health_page_and_liveness(receiver: tuple[Client, str]) -> None:
    sender, url = receiver
    assert await fetch(f"{url}/health") == (200, "application/json", '{"status": "ok"}')
    for first in (1, 4, 7):
        name = identity(first, first + 2)
        assert (await sender.put(segment(name), name)).status == 201
    assert await fetch(f"{url}/health") == (503, "application/json", '{"status": "full"}')
    assert await fetch(f"{url}/live") == (200, "application/json", '{"status": "live"}')


async def test_a_bucket_that_is_away_is_answered_503_and_shown(
    tmp_path: Path, s3: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(object_store, "RETRIES", 0)
    tokens = make_fleet(tmp_path / "fleet")
    folder = FleetFolder(tmp_path / "fleet")
    limits = ReceiverLimits(retry_after_s=3600, spool_bytes=MAX_FILE + 1)
    with (
        FaultyProxy(s3, Random(1)).running() as proxy,
        bind_socket(ListenAddress(HOST, 0)) as listener,
    ):
        for name, value in environment(proxy.url).items():
            monkeypatch.setenv(name, value)
        remote = open_storage(f"s3://{BUCKET}/fleet")
        url = "http://{}:{}".format(*listener.getsockname())
        own = ensure_own_certificate(folder)
        async with (
            running_receiver(
                folder, ListenAddress(HOST, 0), own, limits, listener, remote
            ) as address,
            client(address, tokens, folder.pki / "ca.pem") as sender,
        ):
            assert (await sender.put(segment())).status == 201
            assert stored(remote, "landing").values()
            proxy.kinds, proxy.share = ("503",), 1.0
            answer = await sender.head()
            assert (answer.status, answer.headers["retry-after"]) == (503, "3600")
            assert (await fetch(f"{url}/health"))[0] == 200, "the spool has room"
            other = identity(4, 6)
            assert (await sender.put(segment(other), other)).status == 201
            assert (await sender.put(segment(other), other)).status == 200
            status, _, text = await fetch(f"{url}/health")
            assert (status, json.loads(text)) == (503, {"status": "away"})
            samples = parse_samples((await fetch(f"{url}/metrics"))[2])
            assert samples["spooled_bytes"] == len(segment(other))
        with pytest.raises(FleetError, match="segments wait in"):
            async with running_receiver(folder, ListenAddress(HOST, 0), own, ReceiverLimits()):
                raise AssertionError
