from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks import backlog, peer, queue_payload
from benchmarks.payload import DOMAIN
from benchmarks.queue_payload import GONE, ITEM, NODE, STANZA, TOPIC
from edge.features.pubsub.rules import topic
from tests.helpers.store import Gateway, new_database

BARE = f"{peer.device(0)}@{DOMAIN}"
WORKER = f"{BARE}/fw"
PUBLISHER = f"{peer.device(1)}@{DOMAIN}/fw"


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
    return b"".join(send.stanza for send in gateway.sends(WORKER))


def test_benchmark_requests_publish_and_delete_an_item(gateway: Gateway) -> None:
    gateway.send(WORKER, "<presence/>")
    send(gateway, WORKER, queue_payload.subscribe(b"s", BARE.encode(), NODE, 5))
    came = send(gateway, PUBLISHER, queue_payload.publish(b"p", NODE, b"i1"))
    came += send(gateway, PUBLISHER, queue_payload.publish(b"q", NODE, b"i2"))
    assert b"".join(match[0] for match in STANZA.finditer(came)) == came
    assert ITEM.findall(came) == [b"i1", b"i2"]
    answer = send(gateway, WORKER, queue_payload.retract(b"r", NODE, b"i1"))
    assert GONE.findall(answer) == [b"i1"]
    assert ITEM.search(answer) is None
    send(gateway, WORKER, queue_payload.unsubscribe(b"u", BARE.encode(), NODE))


def test_benchmark_requests_subscribe_to_a_topic(gateway: Gateway) -> None:
    gateway.send(WORKER, "<presence/>")
    send(gateway, WORKER, queue_payload.subscribe(b"s", BARE.encode(), TOPIC))
    came = send(gateway, PUBLISHER, queue_payload.publish(b"p", TOPIC, b"i1"))
    assert ITEM.findall(came) == [b"i1"]


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
