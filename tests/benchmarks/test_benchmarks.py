from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks import attackers, backlog, cluster, payload, peer, queue_payload, server
from benchmarks.__main__ import SPARK, TOPICS, main
from benchmarks.exchange_steps import KINDS, Core, SensorStream, transaction
from benchmarks.ingest_page import Run, growth_blocks
from benchmarks.payload import DOMAIN
from benchmarks.peer_servers import DURABLE, find_program
from benchmarks.queue_payload import ITEM, NODE, RETRACTED, STANZA, TOPIC
from benchmarks.relay_steps import GROUP, PAIRS, RelayedMessages
from edge import topics
from edge.engine.rules.quota import Usage
from edge.engine.store import events
from edge.engine.store.database import MessageBytes
from edge.features.outbox.store import dead_letters
from edge.features.outbox.store.dead_letters import DeadLetter
from edge.ops.transactions import changing
from sync.ingest.ingest import STEPS
from tests.helpers.store import Gateway, new_database


def test_the_assured_iq_has_the_documented_size() -> None:
    key = payload.msg_id(0xFFFFFFFF, 499, 99_999_999)
    assert len(payload.assured(b"a01f305f5e0ff", key)) == payload.STANZA_BYTES == 413


def test_the_measured_exchange_uses_the_gateways_handlers_and_can_be_repeated() -> None:
    subject = SensorStream()
    with transaction(subject) as tx:
        first = subject.exchange(tx)
        assert subject.exchange(tx) == first
        assert tx.row("SELECT count(*) FROM held") == (0,)
        names = [event.name for event in events.read(tx, events.READINGS, 0, 10, 1000)]
        assert names == ["Temperature", "Temperature"]


@pytest.mark.parametrize("kind", KINDS)
async def test_the_measured_core_logs_a_reading_in_each_exchange(kind: str, tmp_path: Path) -> None:
    core = await Core.open(tmp_path, kind, 2)
    await core.exchange(6)
    store = core.store
    assert await store.run(lambda tx: events.last_numbers(tx, events.READINGS)) == (0, 6)
    assert await store.run(lambda tx: tx.row("SELECT count(*) FROM held")) == (0,)
    await core.close()


def test_the_measured_relay_finishes_each_message_after_three_groups() -> None:
    with transaction(SensorStream()) as tx:
        relayed = RelayedMessages(tx)
        found = [relayed.relay(tx) for _ in range(2 * PAIRS)]
        assert found == [0] * 2 * GROUP + [1] * GROUP + [2] * (2 * PAIRS - 3 * GROUP)
        assert tx.row("SELECT count(*) FROM held") == (GROUP,)
        assert tx.row("SELECT count(*) FROM outbox") == (2 * GROUP,)
        last = tx.row("SELECT seq FROM main.sqlite_sequence WHERE name = 'outbox'")
        assert last == (PAIRS + 2 * PAIRS - GROUP,), "a message of each pair came before"
        assert tx.row("SELECT count(*) FROM dead") == (0,)


@pytest.mark.long
def test_a_quick_run_measures_every_topic_without_spark_and_writes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if find_program("gcc") is None:
        pytest.skip("no gcc (make interop-packages)")
    scratch, results = tmp_path / "scratch", tmp_path / "results"
    scratch.mkdir()
    topics = [name for name in TOPICS if name not in (*SPARK, "peers", "mqtt")]
    options = ["--quick", "--scratch", str(scratch), "--results", str(results)]
    assert main([*topics, *options]) == 0
    output = capsys.readouterr().out
    assert all(f"({name} took" in output for name in topics)
    assert not results.exists()
    assert not list(scratch.iterdir())


@pytest.mark.long
def test_a_quick_run_compares_all_servers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if find_program("gcc") is None:
        pytest.skip("no gcc (make interop-packages)")
    assert main(["peers", "--quick", "--scratch", str(tmp_path)]) == 0
    output = capsys.readouterr().out
    here = [peer for peer in DURABLE.values() if peer.is_installed(None)]
    assert all(f"| {peer.label} |" in output for peer in here)
    assert not list(tmp_path.iterdir())


def test_the_ingest_page_shows_the_steps_of_the_ingest() -> None:
    steps = {step: float(at) for at, step in enumerate(STEPS, 100)}
    runs = [Run(count, 500 * count, 1.0, 1.0, 1, steps) for count in (4, 40, 40, 40)]
    table = growth_blocks(runs, 4)[1]
    assert "| 101 | 102 | 103 | 104 | 106 |" in table


def test_the_attackers_filters_match_what_the_devices_publish() -> None:
    topic = "/".join((peer.device(0), *attackers.LEVELS))
    filters = set(attackers.overlapping(attackers.FILTERS))
    assert len(filters) == attackers.FILTERS
    assert all(topics.matches(filter, topic) for filter in filters)


def test_executors_have_processors_of_their_own() -> None:
    here = sorted(os.sched_getaffinity(0))
    one, others = cluster.pins(1)
    assert one == str(here[0])
    assert others == ",".join(map(str, here[1:] or here))
    assert cluster.pins(len(here)) == [*map(str, here), ",".join(map(str, here))]


BARE = f"{peer.device(0)}@{DOMAIN}"
WORKER = f"{BARE}/fw"
PUBLISHER = f"{peer.device(1)}@{DOMAIN}/fw"


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Gateway]:
    gateway = Gateway(new_database(tmp_path))
    for number in range(2):
        gateway.add(peer.device(number))
    backlog.make_nodes(tmp_path)
    yield gateway
    gateway.close()


def send(gateway: Gateway, full: str, iq: bytes) -> bytes:
    """Send a request that succeeds, and return the stanzas for the worker."""
    reply = gateway.send(full, iq.decode())
    assert reply is not None
    assert reply.type == "result", reply
    return b"".join(send.stanza for send in gateway.sends(WORKER))


def test_benchmark_requests_publish_and_delete_an_item(gateway: Gateway) -> None:
    gateway.send(WORKER, "<presence/>")
    send(gateway, WORKER, queue_payload.subscribe(b"s", BARE.encode(), NODE, 5))
    notifications = send(gateway, PUBLISHER, queue_payload.publish(b"p", NODE, b"i1"))
    notifications += send(gateway, PUBLISHER, queue_payload.publish(b"q", NODE, b"i2"))
    assert b"".join(match[0] for match in STANZA.finditer(notifications)) == notifications
    assert ITEM.findall(notifications) == [b"i1", b"i2"]
    answer = send(gateway, WORKER, queue_payload.retract(b"r", NODE, b"i1"))
    assert RETRACTED.findall(answer) == [b"i1"]
    assert ITEM.search(answer) is None
    send(gateway, WORKER, queue_payload.unsubscribe(b"u", BARE.encode(), NODE))


def test_benchmark_requests_subscribe_to_a_topic(gateway: Gateway) -> None:
    gateway.send(WORKER, "<presence/>")
    send(gateway, WORKER, queue_payload.subscribe(b"s", BARE.encode(), TOPIC))
    notifications = send(gateway, PUBLISHER, queue_payload.publish(b"p", TOPIC, b"i1"))
    assert ITEM.findall(notifications) == [b"i1"]


def test_the_benchmark_fills_a_queue(gateway: Gateway, tmp_path: Path) -> None:
    backlog.add_items(tmp_path, 30)
    assert gateway.count("SELECT items FROM queues") == 30
    assert gateway.count("SELECT count(*) FROM queue_items WHERE state = 'ready'") == 30


def test_benchmark_filters_match_no_topic(gateway: Gateway, tmp_path: Path) -> None:
    backlog.add_filters(tmp_path, 250)
    assert gateway.count("SELECT count(DISTINCT filter) FROM subscriptions") == 250
    assert gateway.count("SELECT count(DISTINCT account) FROM subscriptions") == 3
    rows = gateway.connection.execute("SELECT filter FROM subscriptions").fetchall()
    assert not [text for (text,) in rows if topics.matches(text, TOPIC)]


def test_answered_messages_that_were_not_used_fail_a_benchmark(tmp_path: Path) -> None:
    folder = tmp_path / "gateway"
    server.prepare(folder, 1)
    server.check_effects(folder)
    content = MessageBytes(b"<message/>")
    letter = DeadLetter("a@gw.example/fw", None, "gw.example", 1, content, "no log event")
    with changing(folder) as tx:
        dead_letters.add(tx, letter, Usage(10, 1000))
    with pytest.raises(server.ServerError, match="1 of the measured messages are dead letters"):
        server.check_effects(folder)
