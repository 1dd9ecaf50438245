from __future__ import annotations

import asyncio
import json
import os
import platform
import re
import socket
import time
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from edge.config import load
from edge.config.load import Address, Config
from edge.engine.limits.flash_meter import KernelCounters, WriteMeter
from edge.engine.store import events
from edge.engine.store.database import Transaction
from edge.engine.store.events import NewEvent
from edge.engine.store.group_commit import Store
from edge.errors import StoreError
from edge.event_counts import LOGIN_REASONS, MAX_LABELS, EventCounts
from edge.features.accounts.store import accounts
from edge.features.eventlog.store.uplink_view import Notice
from edge.features.queues.store import queue_items
from edge.features.queues.store.depth_events import Depth
from edge.features.queues.store.queue_items import Lock, NewQueuedItem
from edge.ops.certificates import der, pki
from edge.ops.checks.finding import WRONG, Finding
from edge.ops.checks.health import Health
from edge.ops.gateway.control import (
    ConnectedSession,
    DeviceConnections,
    FrontStatus,
    ProcessStatus,
)
from edge.ops.gateway.uplink import Route
from edge.web import http, metrics, page, server, status_snapshot
from edge.web.hosts import KnownHosts
from edge.web.http import Request, RequestError, Response
from edge.web.server import MAX_CONNECTIONS, Server
from edge.web.site import Site
from edge.web.status_snapshot import ProcessFigures, Snapshot, SnapshotReader, Sources
from tests.helpers import queue_rows, waiting
from tests.helpers.store import new_database, opened

WAIT_S = 10.0
PYTHON = platform.python_version()
NOW = 1_760_000_000_000
SETTINGS = load.parse(b'[gateway]\ndomain = "gw.example"')
FOLDER = Path("no gateway")
ASK = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
USED = {"sessions": 3, "paused": 1}
REQUESTS = {"xmpp": 17, "mqtt": 4}
SESSIONS = [
    ConnectedSession(
        account="pump1", resource="<fw>", address="192.0.2.1", since=NOW, seen=NOW, unacknowledged=9
    ),
    ConnectedSession(account="pump1", resource="old", since=NOW - 1, seen=NOW - 1, detached=True),
    ConnectedSession(
        account="valve", resource="esp", protocol="mqtt", version="3.1.1", unacknowledged=None
    ),
    ConnectedSession(
        account="valve", resource="app", protocol="mqtt", version="5.0", transport="websocket"
    ),
]


class Judged:
    """The judgement that a test sets."""

    health = Health([], [])

    async def check(self) -> Health:
        return self.health


DISK_FULL = Finding("disk", WRONG, "<4 MiB> are free: new messages are refused", "free disk space")


class Gateway(NamedTuple):
    store: Store
    judged: Judged
    reader: SnapshotReader
    site: Site
    server: Server


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Gateway]:
    async with opened(new_database(tmp_path)) as store:
        yield new_gateway(store)


def running(settings: Config = SETTINGS) -> ProcessStatus:
    return ProcessStatus(
        version="1.2.3", boot="b", service=12.5, uptime=7200.0, synchronised=True, used=USED,
        limits=msgspec.to_builtins(settings.limits),
        sessions={"xmpp": 2, "mqtt": 1, "mqtt websocket": 1},
    )  # fmt: skip


def new_gateway(store: Store, settings: Config = SETTINGS) -> Gateway:
    judged = Judged()
    meter = WriteMeter(store, settings.flash, lambda: KernelCounters(8192, 4096))
    sources = Sources(
        FOLDER, settings, store, lambda: running(settings), judged.check, lambda: REQUESTS, meter,
        connections, EventCounts(),
    )  # fmt: skip
    reader = SnapshotReader(sources)
    page_site = Site(reader)
    store.before_commit = reader.keep_events
    hosts = KnownHosts(settings.web.names, socket.gethostname())
    return Gateway(store, judged, reader, page_site, Server(page_site.respond, hosts.is_known))


async def connections() -> DeviceConnections:
    return DeviceConnections(sessions=SESSIONS, seen={"valve": NOW})


async def read_status(gateway: Gateway) -> tuple[Snapshot, ProcessFigures, Health]:
    return await gateway.reader.snapshot(), gateway.reader.process(), gateway.judged.health


async def rendered(gateway: Gateway, now: int = NOW) -> str:
    snapshot, process, judged = await read_status(gateway)
    return page.render(snapshot, await gateway.reader.queue_reports(), process, judged, now)


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        (b"GET / HTTP/1.1\r\nHost: gw:80 ", Request("GET", "/", "gw:80")),
        (b"GET / HTTP/1.1\r\nhOST:gw", Request("GET", "/", "gw")),
        (b"HEAD /health?x=1 HTTP/1.0", Request("HEAD", "/health", "")),
        (b"GET /a%20b HTTP/1.1\r\nContent-Length: 0", Request("GET", "/a%20b", "")),
        (b"GET / HTTP/1.1\r\nHost: gw\r\nHost: gw", Request("GET", "/", "")),
    ],
)
def test_requests_are_parsed(head: bytes, expected: Request) -> None:
    assert http.parse(head) == expected


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"", 400), (b"GET / HTTP/2", 400), (b"GET http://x/ HTTP/1.1", 400),
        (b"get / HTTP/1.1", 400), (b"GET / HTTP/1.1\r\nno field", 400),
        (b"GET / HTTP/1.1\r\n folded: x", 400), (b"GET / HTTP/1.1\r\nA: \x00", 400),
        (b"GET /" + b"x" * 300 + b" HTTP/1.1", 400), (b"POST / HTTP/1.1", 405),
        (b"GET / HTTP/1.1\r\nContent-Length: 5", 413),
        (b"GET / HTTP/1.1\r\nTransfer-Encoding: chunked", 413),
    ],
)  # fmt: skip
def test_invalid_requests_are_refused(head: bytes, status: int) -> None:
    with pytest.raises(RequestError) as refused:
        http.parse(head)
    assert refused.value.status == status


def test_responses_forbid_caching_and_scripts() -> None:
    head, body = http.serialize(Response(200, "text/html", b"abc")).split(b"\r\n\r\n")
    assert body == b"abc"
    fields = dict(line.split(": ", 1) for line in head.decode().split("\r\n")[1:])
    expected = {"Content-Length": "3", "Connection": "close", "Cache-Control": "no-store"}
    assert fields.items() >= expected.items()
    assert fields["Content-Security-Policy"].startswith("default-src 'none'")
    assert http.serialize(Response(200, "text/html", b"abc"), head_only=True) == head + b"\r\n\r\n"
    assert b"Allow: GET, HEAD" in http.serialize(http.status_response(405))


async def until(is_true: Callable[[], bool]) -> None:
    for _ in range(100_000):
        if is_true():
            return
        await asyncio.sleep(0)
    raise AssertionError("the condition has not become true")


@pytest.fixture
async def address(gateway: Gateway) -> AsyncIterator[Address]:
    (address,) = await gateway.server.start(Address("127.0.0.1", 0))
    yield address
    gateway.server.stop()


async def call(address: Address, request: bytes) -> bytes:
    """Send bytes, and return the response until the connection ends."""
    reader, writer = await asyncio.open_connection(*address)
    try:
        async with asyncio.timeout(WAIT_S):
            writer.write(request)
            return await reader.read()
    except ConnectionResetError:
        return b""
    finally:
        writer.close()


async def test_only_the_pages_are_served(address: Address) -> None:
    known = ("/", "/health", "/live", "/metrics")
    for path, status in (*((each, 200) for each in known), ("/x", 404)):
        answer = await call(address, f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
        assert answer.startswith(f"HTTP/1.1 {status} ".encode())
    answer = await call(address, b"HEAD / HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert answer.endswith(b"\r\n\r\n")
    assert (await call(address, b"PUT / HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.1 405 ")
    assert (await call(address, b"x" * 10_000)).startswith(b"HTTP/1.1 431 ")


async def test_unknown_host_names_are_refused(gateway: Gateway, address: Address) -> None:
    """A foreign page may point its own name to this machine (DNS rebinding)."""
    paths: list[str] = []

    async def answer(path: str) -> Response:
        paths.append(path)
        return http.status_response(200)

    gateway.server.respond = answer
    for path in ("/", "/health", "/live", "/metrics", "/x"):
        for host in (b"Host: evil.example:9105\r\n", b"", b"Host: localhost\r\n" * 2):
            response = await call(address, b"GET %s HTTP/1.1\r\n%s\r\n" % (path.encode(), host))
            head, body = response.split(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 421 Misdirected Request\r\n")
            assert re.fullmatch(rb".*`names` in \[web\] of fieldpost\.toml.*\n", body)
    response = await call(address, b"HEAD / HTTP/1.1\r\nHost: evil.example\r\n\r\n")
    assert response.startswith(b"HTTP/1.1 421 ")
    assert response.endswith(b"\r\n\r\n")
    assert not paths


async def test_request_may_arrive_in_pieces(address: Address) -> None:
    reader, writer = await asyncio.open_connection(*address)
    for piece in (b"GET /hea", b"lth HTTP/1.1\r\nHost: [::1]:80\r\n", b"\r\n"):
        writer.write(piece)
        await writer.drain()
    async with asyncio.timeout(WAIT_S):
        assert (await reader.read()).startswith(b"HTTP/1.1 200 ")
    writer.close()


async def test_connections_are_limited_in_number_and_time(
    gateway: Gateway, address: Address, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "TIMEOUT", 0.05)
    idle = await asyncio.open_connection(*address)
    async with asyncio.timeout(WAIT_S):
        with suppress(ConnectionResetError):
            assert await idle[0].read() == b""
    monkeypatch.setattr(server, "TIMEOUT", 60.0)
    hold = asyncio.Event()

    async def wait(_path: str) -> Response:
        await hold.wait()
        return http.status_response(200)

    gateway.server.respond = wait
    many = [await asyncio.open_connection(*address) for _ in range(MAX_CONNECTIONS)]
    for _reader, writer in many:
        writer.write(ASK)
    connections = gateway.server.connections
    await until(lambda: sum(each.has_request for each in connections) == MAX_CONNECTIONS)
    assert await call(address, ASK) == b""
    hold.set()
    async with asyncio.timeout(WAIT_S):
        for reader, _writer in many:
            assert (await reader.read()).startswith(b"HTTP/1.1 200 ")
    for _reader, writer in (*many, idle):
        writer.close()


async def test_silent_connections_do_not_block_others(gateway: Gateway, address: Address) -> None:
    silent = [await asyncio.open_connection(*address) for _ in range(MAX_CONNECTIONS)]
    await until(lambda: len(gateway.server.connections) == MAX_CONNECTIONS)
    for _ in range(3):
        answer = await call(address, b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 200 ")
    async with asyncio.timeout(WAIT_S):
        with suppress(ConnectionResetError):
            assert await silent[0][0].read() == b""
    await until(lambda: len(gateway.server.connections) == MAX_CONNECTIONS - 1)
    for _reader, writer in silent:
        writer.close()


async def test_internal_error_is_reported(
    gateway: Gateway, address: Address, monkeypatch: pytest.MonkeyPatch
) -> None:
    faults: list[object] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _loop, context: faults.append(context["exception"]))

    async def fail(_path: str) -> Response:
        raise ZeroDivisionError

    gateway.server.respond = fail
    assert (await call(address, ASK)).startswith(b"HTTP/1.1 500 ")
    assert isinstance(faults[0], ZeroDivisionError)


async def health(gateway: Gateway) -> tuple[int, dict[str, object]]:
    answer = await gateway.site.respond("/health")
    report: dict[str, object] = json.loads(answer.body)
    return answer.status, report


async def test_health_is_the_judgement_and_does_not_depend_on_the_centre(gateway: Gateway) -> None:
    status, report = await health(gateway)
    assert (status, report["status"], report["problems"]) == (200, "ok", [])
    assert report["uplink"] == {
        "last_taken": None, "last_notice": None, "waiting_segments": 0, "waiting_bytes": 0,
    }  # fmt: skip
    gateway.judged.health = Health([DISK_FULL], [])
    status, report = await health(gateway)
    assert (status, report["status"]) == (503, "failing")
    assert report["problems"] == [DISK_FULL._asdict()]


async def test_a_failing_gateway_is_live_and_asks_not_to_be_restarted(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A restart frees no disk, and it ends the sessions to which stored messages are delivered."""
    gateway.judged.health = Health([DISK_FULL], [])

    async def fail(_query: object) -> None:
        raise StoreError("interrupted")

    for _ in range(2):  # the second time with a database that does not answer
        status, report = await health(gateway)
        assert (status, report["status"], report["restart"]) == (503, "failing", False)
        live = await gateway.site.respond("/live")
        assert (live.status, json.loads(live.body)) == (200, {"status": "live"})
        monkeypatch.setattr(gateway.store, "read", fail)


async def test_a_limit_that_is_reached_does_not_fail_the_health_check(gateway: Gateway) -> None:
    settings = load.parse(b'[gateway]\ndomain = "gw.example"\n[limits]\ndead_messages = 1')
    await gateway.store.run(lambda tx: waiting.add_dead_letter(tx, "m1"))
    status, report = await health(new_gateway(gateway.store, settings))
    assert (status, report["status"]) == (200, "degraded")
    assert "dead_messages: 1 of 1" in json.dumps(report["problems"])


async def test_unreadable_database_has_no_page(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(_query: object) -> None:
        raise StoreError("interrupted")

    monkeypatch.setattr(gateway.store, "read", fail)
    for path in ("/", "/metrics"):
        assert (await gateway.site.respond(path)).status == 503
    gateway.judged.health = Health([DISK_FULL], [])
    status, report = await health(gateway)
    assert (status, report["uplink"]) == (503, None)
    assert report["problems"]


LABEL = r'[a-z]+="[^"\\\n]*"'
SAMPLE = re.compile(rf"([a-z_]+)(?:\{{{LABEL}(?:,{LABEL})*\}})? ([-+.\deE]+|\+Inf)")


async def test_metrics_follow_the_format_of_prometheus(gateway: Gateway) -> None:
    text = (await gateway.site.respond("/metrics")).body.decode()
    kinds: dict[str, str] = {}
    samples: dict[str, float] = {}
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split()
            kinds[name] = kind
        elif not line.startswith("# HELP "):
            sample = SAMPLE.fullmatch(line)
            assert sample is not None, line
            family = re.sub(r"_(bucket|sum|count)$", "", sample[1])
            assert family in kinds or sample[1] in kinds, "its type comes before it"
            samples[line.rpartition(" ")[0]] = float(sample[2])
    assert text.count("# HELP") == len(kinds) > 25
    assert set(kinds.values()) == {"counter", "gauge", "histogram"}
    counters = [name for name, kind in kinds.items() if kind == "counter"]
    assert all(name.endswith("_total") for name in counters)
    assert (
        samples.items()
        >= {
            f'fieldpost_info{{version="1.2.3",build="pure",python="{PYTHON}"}}': 1,
            "fieldpost_queue_oldest_item_age_seconds": 0,
            "fieldpost_stanzas_total": 17,
            "fieldpost_mqtt_packets_total": 4,
            'fieldpost_sessions{protocol="xmpp",transport="tcp"}': 2,
            'fieldpost_sessions{protocol="mqtt",transport="tcp"}': 1,
            'fieldpost_sessions{protocol="mqtt",transport="websocket"}': 1,
            "fieldpost_written_bytes_total": 8192,
            'fieldpost_limit_used{limit="sessions"}': 3,
            'fieldpost_limit_allowed{limit="sessions"}': 1000,
            'fieldpost_backlog_bytes{lane="readings"}': 0,
            "fieldpost_rate_limited_connections": 1,
            "fieldpost_uplink_configured": 0,
            'fieldpost_limit_allowed{limit="database_reserve"}': 64 * 2**20,
        }.items()
    )
    assert samples['fieldpost_resident_memory_bytes{process="core"}'] > 2**20
    assert samples['fieldpost_cpu_seconds_total{process="core"}'] > 0
    assert not [name for name in samples if "front" in name]
    assert abs(samples["fieldpost_time_seconds"] - time.time()) < 3600
    assert "fieldpost_uplink_last_upload_timestamp_seconds" not in samples


async def test_each_front_process_has_its_figures(gateway: Gateway) -> None:
    parent, gone = os.getppid(), 2**22 + 1  # more than any process id
    fronts = [
        FrontStatus(number=1, pid=parent, restarts=1, connections=7, confined=True),
        FrontStatus(number=2, pid=None, restarts=2, connections=0, confined=True),
        FrontStatus(number=3, pid=gone, restarts=0, connections=0, confined=True),
    ]
    status = msgspec.structs.replace(running(), fronts=fronts)
    sources = gateway.reader._sources._replace(process_status=lambda: status)
    text = (await Site(SnapshotReader(sources)).respond("/metrics")).body.decode()
    for sample in (
        'front_up{front="1"} 1', 'front_up{front="2"} 0', 'front_restarts_total{front="2"} 2',
        'front_connections{front="1"} 7',
    ):  # fmt: skip
        assert f"\nfieldpost_{sample}\n" in text
    assert set(re.findall(r'cpu_seconds_total{process="([a-z0-9 ]+)"} [\d.]+\n', text)) == {
        "core", "front 1",
    }  # fmt: skip
    assert re.search(r'resident_memory_bytes{process="front 1"} [1-9]\d+\n', text)


async def test_messages_are_counted_from_zero(gateway: Gateway) -> None:
    """Prometheus sees no increase in a time series that begins with 1."""
    text = (await gateway.site.respond("/metrics")).body.decode()
    for labels in (
        'messages_total{qos="0",outcome="refused"}',
        'messages_total{qos="1",outcome="delivered"}',
        'messages_total{qos="2",outcome="accepted"}',
        'messages_dead_lettered_total{qos="2",state="in_doubt"}',
        'failed_logins_total{reason="wrong password"}',
        'events_lost_total{reason="evicted"}',
    ):
        assert f"\nfieldpost_{labels} 0\n" in text


async def test_refusals_failed_logins_losses_and_dead_letters_are_counted(gateway: Gateway) -> None:
    counts = gateway.reader.process().counts
    failed = NewEvent("limit", "192.0.2.1", name="authentication", value=2.0)
    dead = NewEvent("message", "pump1@gw.example", name="dead", qos=1)
    lost = NewEvent("uplink", name="evicted", value=7.0)
    counts.add([failed._replace(text="wrong password"), failed._replace(name="nodes"), dead, lost])
    text = (await gateway.site.respond("/metrics")).body.decode()
    for sample in (
        'fieldpost_failed_logins_total{reason="wrong password"} 2',
        'fieldpost_refusals_total{rule="authentication"} 2',
        'fieldpost_refusals_total{rule="nodes"} 2',
        'fieldpost_messages_dead_lettered_total{qos="1",state="dead"} 1',
        'fieldpost_events_lost_total{reason="evicted"} 7',
    ):
        assert f"\n{sample}\n" in text
    assert "pump1" not in text


def test_label_values_are_bounded() -> None:
    counts = EventCounts()
    counts.add(
        NewEvent("limit", name="authentication", text=f'a "reason" {number}\n')
        for number in range(MAX_LABELS + 5)
    )
    assert len(counts.failed_logins) == MAX_LABELS + 1
    assert counts.failed_logins["other"] == len(LOGIN_REASONS) + 5
    assert "a 'reason' 0 " in counts.failed_logins


async def test_the_age_of_what_waits_and_the_ends_of_certificates_are_shown(
    gateway: Gateway, folder: Path
) -> None:
    await gateway.store.run(
        lambda tx: events.append(tx, events.SYSTEM, NewEvent("system", name="start"))
    )
    reader = SnapshotReader(gateway.reader._sources._replace(folder=folder))
    text = (await Site(reader).respond("/metrics")).body.decode()
    samples = dict(line.rsplit(" ", 1) for line in text.splitlines() if line[0] != "#")
    assert float(samples["fieldpost_uplink_lag_seconds"]) > 0
    end = der.read(pki.files(folder).server).ends / 1000
    assert (
        float(samples['fieldpost_certificate_expiry_timestamp_seconds{certificate="server"}'])
        == end
    )
    assert len([name for name in samples if "certificate_expiry" in name]) == 2


async def test_no_device_node_or_queue_is_a_label(gateway: Gateway) -> None:
    def unit(tx: Transaction) -> None:
        queue = queue_rows.node(tx, "secret-node")
        queue_items.enqueue(
            tx, queue, NewQueuedItem("secret-node", "i1", queue_rows.PUBLISHER, b"")
        )
        waiting.hold(tx, "secret@gw.example", "secret-id")
        accounts.add(tx, "secret", (), trusted=True)

    await gateway.store.run(unit)
    text = (await gateway.site.respond("/metrics")).body.decode()
    assert "secret" not in text
    assert 'fieldpost_waiting_messages{state="held"} 1' in text
    assert 'fieldpost_queue_items{state="waiting"} 1' in text
    assert 'fieldpost_devices{state="offline"} 1' in text


async def test_the_age_of_the_oldest_item_of_all_queues_is_shown(gateway: Gateway) -> None:
    snapshot, process, judged = await read_status(gateway)
    queue = Depth(1, "q", 3, 0, 0, 0, 0, None)
    queues = [queue, queue._replace(oldest=9.0), queue._replace(oldest=2.0)]
    text = metrics.format_metrics(snapshot._replace(queues=queues), process, judged)
    assert "\nfieldpost_queue_oldest_item_age_seconds 10.5\n" in text


async def test_duration_of_commits_is_counted(gateway: Gateway) -> None:
    await gateway.store.run(lambda tx: tx.run("DELETE FROM meta WHERE key = 'decoy'"))
    await gateway.store.run(lambda _tx: None)
    text = (await gateway.site.respond("/metrics")).body.decode()
    assert "fieldpost_commit_duration_seconds_count 1\n" in text
    assert 'fieldpost_commit_duration_seconds_bucket{le="+Inf"} 1\n' in text
    assert "fieldpost_commits_total 1\n" in text


async def test_snapshot_is_cached(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([0.0, 0.0, 0.0, 1.0, 1.0, *[status_snapshot.CACHE_TIME] * 2])
    reader = SnapshotReader(gateway.reader._sources, lambda: next(times))
    reads: list[object] = []
    real = gateway.store.read

    async def read(query: Callable[[Transaction], object]) -> object:
        reads.append(query)
        return await real(query)

    monkeypatch.setattr(gateway.store, "read", read)
    for count in (1, 1, 2):
        await reader.snapshot()
        assert len(reads) == count


async def test_event_loop_lag_covers_the_last_samples(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(status_snapshot, "LAG_INTERVAL", 0.0)
    monkeypatch.setattr(status_snapshot, "LAG_SAMPLES", 3)
    task = asyncio.create_task(gateway.reader.measure_lag())
    await until(lambda: len(gateway.reader._lags) == 3)
    for _ in range(9):
        await asyncio.sleep(0)
    task.cancel()
    assert len(gateway.reader._lags) == 3
    assert gateway.reader.process().loop_lag >= 0


def without_names(text: str) -> str:
    """Remove the names of columns from the cells of tables."""
    return re.sub(r'<td data-name="[a-z ]+">', "<td>", text)


class CheckedPage(HTMLParser):
    """Checks that every element ends, and collects the names of tags and attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.names: set[str] = set()
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names |= {tag, *(name for name, _ in attrs)}
        if tag not in {"meta", "br"}:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


async def test_page_is_one_document_without_scripts(gateway: Gateway) -> None:
    text = await rendered(gateway)
    checked = CheckedPage(text)
    assert not checked.names & {"script", "link", "img", "src", "href", "onclick", "iframe", "form"}
    assert "color-scheme: light dark" in text
    assert "width=device-width" in text
    for fact in (
        "gw.example",
        "Devices can connect, and messages are accepted\n</div>",
        "2 h",
        "clock synchronised",
        "no uplink is configured",
    ):
        assert fact in text
    assert text.count("<p>None.</p>") == 4


async def test_problems_are_highlighted(gateway: Gateway) -> None:
    gateway.judged.health = Health([DISK_FULL], [])
    snapshot, process, judged = await read_status(gateway)
    text = page.render(snapshot, [], process, judged, NOW)
    assert "No device can connect, or no message is accepted" in text
    assert '<span class="bad">&lt;4 MiB&gt; are free: new messages are refused</span>' in text
    assert '<br><span class="soft">free disk space</span>' in text
    degraded = Health([], [DISK_FULL._replace(text="<full>")])
    text = page.render(snapshot, [], process, degraded, NOW)
    assert "messages are accepted, with problems<ul>" in text.replace("\n", "")
    assert "&lt;full&gt;" in text


async def test_the_uplink_and_why_it_does_not_move_are_shown(gateway: Gateway) -> None:
    snapshot, process, judged = await read_status(gateway)

    def shown(**changes: Any) -> str:
        found = snapshot._replace(
            route=Route("https://<centre>.example"), uplink=snapshot.uplink._replace(**changes)
        )
        text = page.render(found, [], process, judged, NOW)
        return text[text.index("<h2>Uplink") : text.index("<h2>Queues")]

    assert "<li>segments go to https://&lt;centre&gt;.example</li>" in shown()
    assert "last upload: never" in shown()
    for seconds, age in ((18_000, "5 h"), (300, "5 min"), (5, "5 s")):
        assert f"last upload: {age} ago" in shown(last_upload=NOW - 1000 * seconds)
    notice = Notice("unreachable", "<no>", NOW - 4000)
    failing = shown(last_upload=NOW - 8000, last_notice=notice)
    assert '<span class="bad">unreachable: &lt;no&gt;</span> (4 s ago)' in failing
    assert "unreachable" not in shown(last_upload=NOW, last_notice=notice)
    success = notice._replace(name="shipping", text="accepts again")
    assert "accepts again" not in shown(last_notice=success)
    lane = snapshot.uplink.lanes[0]._replace(bytes=2**20, oldest=NOW - 90_000_000)
    full = shown(lanes=[lane], quota=2**20, hours_until_full=0.5)
    assert "the backlog uses 1.0 MiB of 1.0 MiB and is full in 30 min" in full
    assert "the centre has not accepted a segment for 1 d 1 h" in full
    assert "no uplink is configured" in page.render(snapshot, [], process, judged, NOW)


_DURABLE_SESSION = """
INSERT INTO durable_sessions SELECT ?, id, 60.0, ? FROM accounts WHERE name = 'valve'
"""


async def test_devices_and_their_sessions_are_shown(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page, "MAX_DEVICES", 3)

    def unit(tx: Transaction) -> None:
        for name in ("pump1", "pump2", "valve", "weir"):
            accounts.add(tx, name, (), trusted=True)
        for resource, expires in (("<away>", tx.now.service + 60.0), ("esp2", None)):
            values = f"valve@gw.example/{resource}", expires
            tx.run(_DURABLE_SESSION, values)

    await gateway.store.run(unit)
    text = await rendered(gateway, NOW + 61_000)
    connected = "2025-10-09 08:53:20 UTC"
    for cells in (
        ("online", "xmpp", connected, "192.0.2.1", "&lt;fw&gt;", "1 min 1 s ago", "0", "0", "9"),
        ("detached", "xmpp", "2025-10-09 08:53:19 UTC", "", "old", "1 min 1 s ago", "0", "0", "0"),
        ("offline", "", "", "", "", "never", "0", "0", ""),
        ("online", "mqtt 3.1.1", "", "", "esp", "", "0", "0", "0"),
        ("online", "mqtt 5.0 websocket", "", "", "app", "", "0", "0", "0"),
        ("away", "", "", "", "esp2", "", "", "0", "0"),
    ):
        assert "".join(f"<td>{cell}</td>" for cell in cells) in without_names(text)
    assert re.search(
        r"<td>away</td><td></td><td>\S+ \S+ UTC</td><td></td><td>&lt;away&gt;</td>",
        without_names(text),
    )
    assert "1 other device" in text


async def test_limits_are_shown_with_their_use_the_fullest_first(gateway: Gateway) -> None:
    settings = load.parse(b'[gateway]\ndomain = "gw.example"\n[limits]\ndead_messages = 2')

    def unit(tx: Transaction) -> None:
        for item in ("d", "e"):
            waiting.add_dead_letter(tx, item)

    await gateway.store.run(unit)
    text = without_names(await rendered(new_gateway(gateway.store, settings)))
    CheckedPage(text)
    meter = '<meter value="1.00" high="0.5"></meter> 100%'
    used = f'<td><span class="bad">2</span></td><td>2 messages</td><td>{meter}</td><td></td>'
    limits = text[text.index("<h2>Limits") :]
    assert f'<tbody>\n<tr><th scope="row">dead_messages</th>{used}' in limits
    assert "database_bytes" not in limits, "it is used by less than 1 %"


async def test_queues_are_shown_with_the_reason_why_they_do_not_move(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(status_snapshot, "MAX_QUEUES", 2)

    def unit(tx: Transaction) -> None:
        accounts.add(tx, "worker", (), trusted=True)
        for name, count in (("<work>", 4), ("away", 2), ("small", 1)):
            queue = queue_rows.node(tx, name)
            new = [NewQueuedItem(name, str(n), queue_rows.PUBLISHER, b"") for n in range(count)]
            items = [queue_items.enqueue(tx, queue, item) for item in new]
            if name == "<work>":
                lock = Lock(0, "<w>@gw.example/fw", tx.now.service + 3600)
                queue_items.lock(tx, queue, items[0], lock)
                queue_items.dead_letter(tx, items[1].row, "given out 5 times")
            else:
                queue_rows.join(tx, queue)

    await gateway.store.run(unit)
    text = await rendered(gateway)
    CheckedPage(text)
    queues = text[text.index("<h2>Queues") : text.index("<h2>Devices")].replace("\n", "")
    figures = '2 ready, 1 locked, 0 delayed, <span class="bad">1 dead</span>, 0 of 0 subscribers'
    assert f'<h3>&lt;work&gt;</h3><p class="soft">{figures} connected, oldest ' in queues
    assert re.search(
        r"<ul><li>delivered to &lt;w&gt;@gw.example/fw .+? ago\), the lock ends .+? \(in \d+ s\);"
        r" delivery 1 of 5</li><li>the queue has no subscribers</li>"
        r"<li>dead: given out 5 times</li></ul>",
        queues,
    )
    assert "0 of 1 subscriber connected" in queues
    assert "<li>no subscriber is connected: worker@gw.example</li>" in queues
    assert "small" not in queues
    assert "Other queues: <code>fieldpost queue list</code>" in queues


async def test_members_are_unknown_if_the_writer_does_not_work(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unit(tx: Transaction) -> None:
        accounts.add(tx, "worker", (), trusted=True)
        queue = queue_rows.node(tx)
        queue_items.enqueue(tx, queue, NewQueuedItem("work", "i", queue_rows.PUBLISHER, b""))
        queue_rows.join(tx, queue)

    await gateway.store.run(unit)

    async def fail(_unit: object) -> None:
        raise StoreError("the disk is full")

    monkeypatch.setattr(gateway.store, "run", fail)
    text = await rendered(gateway)
    assert "subscribers unknown" in text
    assert "it is not known which of the subscribers are connected: worker@gw.example" in text


async def test_warnings_are_shown_without_message_content(gateway: Gateway) -> None:
    dead = NewEvent(
        "message", "<pump>@gw.example", level="Warning", text="secret", tags={"msgId": "secret"},
        value=1.5,
    )  # fmt: skip

    def unit(tx: Transaction) -> None:
        for number in range(status_snapshot.MAX_EVENTS + 5):
            events.append(tx, events.SYSTEM, dead._replace(name=f"dead{number}"))
        events.append(tx, events.SYSTEM, NewEvent("system", name="heartbeat"))

    await gateway.store.run(unit)
    text = await rendered(gateway)
    CheckedPage(text)
    assert "secret" not in text
    assert "heartbeat" not in text
    assert "&lt;pump&gt;@gw.example" in text
    assert len(re.findall("message dead", text)) == status_snapshot.MAX_EVENTS
    assert "message dead24<" in text


async def test_warnings_name_the_account_and_the_reason(gateway: Gateway) -> None:
    failed = NewEvent(
        "limit", "192.0.2.7", name="authentication", level="Warning", text="wrong <password>",
        value=1.0, tags={"account": "pump1", "mechanism": "PLAIN"},
    )  # fmt: skip
    full = NewEvent("limit", "a@gw.example", name="nodes", level="Warning", tags={"limit": "7"})

    def unit(tx: Transaction) -> None:
        for event in (failed, full):
            events.append(tx, events.SYSTEM, event)

    await gateway.store.run(unit)
    text = await rendered(gateway)
    CheckedPage(text)
    for cells in (
        ("limit authentication", "192.0.2.7", "pump1", "wrong &lt;password&gt;", "1"),
        ("limit nodes", "a@gw.example", "", "the limit is 7", ""),
    ):
        assert "".join(f"<td>{cell}</td>" for cell in cells) in without_names(text)


async def test_the_time_without_warnings_is_shown(gateway: Gateway) -> None:
    """The page may start long after the gateway, by a reload of the configuration."""
    times = iter([1000.0, 1100.0, 1120.0])
    reader = SnapshotReader(gateway.reader._sources, lambda: next(times))
    text = page.render(await reader.snapshot(), [], reader.process(), Health([], []), NOW)
    assert "<h2>Warnings of the last 2 min</h2>\n<p>None.</p>" in text


async def test_rolled_back_event_is_replaced(gateway: Gateway) -> None:
    def fault(_tx: Transaction) -> None:
        raise ZeroDivisionError

    def unit(name: str, *, fails: bool = False) -> Callable[[Transaction], None]:
        def run(tx: Transaction) -> None:
            event = NewEvent("message", name=name, level="Error")
            events.append(tx, events.SYSTEM, event)
            if fails:
                tx.before_commit(fault)

        return run

    with pytest.raises(StoreError):
        await gateway.store.run(unit("lost", fails=True))
    await gateway.store.run(unit("kept"))
    names = [row.event.name for row in (await gateway.reader.snapshot()).events]
    assert names == ["kept"]


HOSTS = KnownHosts(["status.site.example", "gw1"], "Pi-3")


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1", "192.0.2.7:9105", "8.8.8.8", "[::1]", "[2001:DB8::7]:9105",
        "[::ffff:192.0.2.7]", "localhost", "LocalHost:9105", "localhost.", "pi-3",
        "PI-3.local:9105", "pi-3.local.:9105", "status.site.example", "Status.Site.Example.:80",
        "gw1:",
    ],
)  # fmt: skip
def test_addresses_and_known_names_are_accepted(host: str) -> None:
    assert HOSTS.is_known(host)


@pytest.mark.parametrize(
    "host",
    [
        "", ".", ":9105", "evil.example", "evil.example:9105", "localhost.evil.example",
        "127.0.0.1.evil.example", "evil.localhost", "pi-3.evil.example", "site.example",
        "x.status.site.example", "gw1.local", "localhost..", "127.1", "0x7f.0.0.1", "0127.0.0.1",
        "2130706433", "::1", "[::1", "[127.0.0.1]", "[evil.example]", "[::1]evil.example",
        "[::1%eth0]", "user@localhost", "localhost:9105:9105", "localhost:http", "localhost:999999",
        "localhost, evil.example", "local host", "١٢٧.0.0.1", "localhos\xb7t",
    ],
)  # fmt: skip
def test_other_hosts_are_refused(host: str) -> None:
    assert not HOSTS.is_known(host)


@pytest.mark.parametrize("own", ["pi", "pi.local", "PI.local."])
def test_machine_name_is_known_with_and_without_local(own: str) -> None:
    hosts = KnownHosts([], own)
    assert hosts.is_known("pi")
    assert hosts.is_known("pi.local")
    assert not hosts.is_known("pi.local.local")


@pytest.mark.parametrize("own", ["", ".", ".local"])
def test_machine_without_a_name_is_known_as_localhost(own: str) -> None:
    hosts = KnownHosts([], own)
    assert hosts.is_known("localhost")
    for host in ("", ".", ".local", "local"):
        assert not hosts.is_known(host)
