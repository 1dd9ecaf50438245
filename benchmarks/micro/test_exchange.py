"""Micro benchmarks: the time of each step of an assured exchange."""

from __future__ import annotations

from pytest_benchmark.fixture import BenchmarkFixture

from benchmarks.exchange_steps import SensorStream, transaction
from benchmarks.mqtt_steps import Publications
from benchmarks.payload import STANZA_BYTES
from benchmarks.relay_steps import RelayedMessages


def test_parse(benchmark: BenchmarkFixture) -> None:
    stanza = benchmark(SensorStream().parse)
    assert stanza.size == STANZA_BYTES


def test_parse_and_route(benchmark: BenchmarkFixture) -> None:
    assert callable(benchmark(SensorStream().route))


def test_exchange_without_commit(benchmark: BenchmarkFixture) -> None:
    subject = SensorStream()
    with transaction(subject) as tx:
        assert benchmark(subject.exchange, tx) > 0


def test_relay_without_commit(benchmark: BenchmarkFixture) -> None:
    with transaction(SensorStream()) as tx:
        benchmark(RelayedMessages(tx).relay, tx)


def test_publication_over_mqtt_without_commit(benchmark: BenchmarkFixture) -> None:
    with transaction(SensorStream()) as tx:
        benchmark(Publications(tx, qos=2).publish, tx)
