"""The benchmarks of queues send valid requests and fill databases as intended."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks import backlog, peer, queue_payload
from benchmarks.payload import DOMAIN
from benchmarks.queue_payload import GONE, ITEM, NODE, STANZA, TOPIC
from edge.features.pubsub.rules import topic
from tests.helpers.store import Gateway, new_database

WORKER = f"{peer.device(0)}@{DOMAIN}"
PUBLISHER = f"{peer.device(1)}@{DOMAIN}"


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Gateway]:
    made = Gateway(new_database(tmp_path))
    for number in range(2):
        made.add(peer.device(number))
    backlog.make_nodes(tmp_path)
    yield made
    made.close()


def send(gateway: Gateway, full: str, iq: bytes) -> bytes:
    """Send a request that succeeds, and return what the worker is sent."""
    reply = gateway.send(full, iq.decode())
    assert reply is not None
    assert reply.type == "result", reply
    return b"".join(send.stanza for send in gateway.sends(f"{WORKER}/fw"))


def test_benchmark_requests_publish_and_delete_an_item(gateway: Gateway) -> None:
    worker, publisher = f"{WORKER}/fw", f"{PUBLISHER}/fw"
    gateway.send(worker, "<presence/>")
    send(gateway, worker, queue_payload.subscribe(b"s", WORKER.encode(), NODE, 5))
    came = send(gateway, publisher, queue_payload.publish(b"p", NODE, b"i1"))
    came += send(gateway, publisher, queue_payload.publish(b"q", NODE, b"i2"))
    stanzas = [match[0] for match in STANZA.finditer(came)]
    assert b"".join(stanzas) == came
    found = [item[1] for one in stanzas if (item := ITEM.search(one))]
    assert found == [b"i1", b"i2"]
    answer = send(gateway, worker, queue_payload.retract(b"r", NODE, found[0]))
    gone = GONE.search(answer)
    assert gone is not None
    assert gone[1] == b"i1"
    assert ITEM.search(answer) is None
    send(gateway, worker, queue_payload.unsubscribe(b"u", WORKER.encode(), NODE))


def test_benchmark_requests_subscribe_to_a_topic(gateway: Gateway) -> None:
    worker = f"{WORKER}/fw"
    gateway.send(worker, "<presence/>")
    send(gateway, worker, queue_payload.subscribe(b"s", WORKER.encode(), TOPIC))
    came = send(gateway, f"{PUBLISHER}/fw", queue_payload.publish(b"p", TOPIC, b"i1"))
    item = ITEM.search(came)
    assert item is not None
    assert item[1] == b"i1"


def test_the_benchmark_fills_a_queue(gateway: Gateway, tmp_path: Path) -> None:
    backlog.add_items(tmp_path, 30)
    assert gateway.count("SELECT items FROM queues") == 30
    assert gateway.count("SELECT count(*) FROM queue_items WHERE state = 'ready'") == 30


def test_benchmark_filters_match_no_topic(gateway: Gateway, tmp_path: Path) -> None:
    backlog.add_filters(tmp_path, 250)
    assert gateway.count("SELECT count(DISTINCT filter) FROM subscriptions") == 250
    assert gateway.count("SELECT count(DISTINCT account) FROM subscriptions") == 3
    rows = gateway.connection.execute("SELECT filter FROM subscriptions").fetchall()
    assert not [text for (text,) in rows if topic.matches(text, TOPIC)]
