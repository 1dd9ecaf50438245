"""Micro benchmarks: the time of each step of an assured exchange."""

from __future__ import annotations

from pytest_benchmark.fixture import BenchmarkFixture

from benchmarks.payload import STANZA_BYTES
from benchmarks.relayed import Relayed
from benchmarks.subject import Subject, transaction


def test_parse(benchmark: BenchmarkFixture) -> None:
    stanza = benchmark(Subject().parse)
    assert stanza.size == STANZA_BYTES


def test_parse_and_route(benchmark: BenchmarkFixture) -> None:
    assert callable(benchmark(Subject().route))


def test_exchange_without_commit(benchmark: BenchmarkFixture) -> None:
    subject = Subject()
    with transaction(subject) as tx:
        assert benchmark(subject.exchange, tx) > 0


def test_relay_without_commit(benchmark: BenchmarkFixture) -> None:
    with transaction(Subject()) as tx:
        assert benchmark(Relayed(tx).relay, tx) == 2
