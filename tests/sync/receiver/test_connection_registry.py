"""Connection limits, minimum throughput and throttled log."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from sync.common.metrics import exposition
from sync.receiver.limits import ReceiverLimits
from sync.receiver.listener import Connection, ConnectionRegistry, client_network
from sync.receiver.log_throttle import LogThrottle
from sync.receiver.metrics import PREFIX, Metrics
from sync.receiver.uploads import MinThroughput

if TYPE_CHECKING:
    Begin = Callable[[str], Connection]

LIMITS = ReceiverLimits(unauthenticated=5, unauthenticated_per_address=2, connections=6)


class FakeTransport(asyncio.Transport):
    """A transport that can only be aborted."""

    def __init__(self, connection: Connection) -> None:
        super().__init__()
        self.aborted = False
        self.connection = connection
        connection.connection_made(self)

    def get_protocol(self) -> Connection:
        return self.connection

    def abort(self) -> None:
        self.aborted = True
        self.connection.connection_lost(None)


def connect(registry: ConnectionRegistry, address: str) -> Connection:
    connection = registry.add(address)
    assert isinstance(connection, Connection)
    return connection


def refusal_reason(registry: ConnectionRegistry, address: str) -> str:
    refused = registry.add(address)
    assert not isinstance(refused, Connection)
    return refused[0]


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8::1", "2001:db8::/64"),
        ("2001:db8::ffff:0:1", "2001:db8::/64"),
        ("fe80::1%eth0", "fe80::/64"),
    ],
)
def test_client_network(address: str, network: str) -> None:
    assert client_network(address) == network


async def test_unauthenticated_connections_are_limited_by_address_and_total() -> None:
    registry = ConnectionRegistry(LIMITS, Metrics(), behind_proxy=False)
    first, second = (connect(registry, "192.0.2.1") for _ in range(2))
    registry.authenticated(FakeTransport(first), "gw.example")
    assert registry.counts() == {"unauthenticated": 1, "gateway": 1, "proxy": 0}
    others = [connect(registry, f"192.0.2.{each}") for each in (1, 2, 3, 4)]
    oldest = FakeTransport(second)
    others.append(connect(registry, "192.0.2.5"))
    assert oldest.aborted
    assert registry.counts() == {"unauthenticated": 5, "gateway": 1, "proxy": 0}
    for connection in (second, *others):
        registry.remove(connection)
        registry.remove(connection)
    assert registry.counts() == {"unauthenticated": 0, "gateway": 1, "proxy": 0}
    first.connection_lost(None)
    assert registry.counts() == {"unauthenticated": 0, "gateway": 0, "proxy": 0}


async def test_unauthenticated_connections_never_use_all_slots() -> None:
    registry = ConnectionRegistry(LIMITS, Metrics(), behind_proxy=False)
    greedy = [FakeTransport(connect(registry, "192.0.2.1")) for _ in range(2)]
    others = [FakeTransport(connect(registry, f"192.0.2.{each}")) for each in (2, 3, 4)]
    connect(registry, "192.0.2.9")
    assert [wire.aborted for wire in (*greedy, *others)] == [True, *[False] * 4]
    assert registry.counts() == {"unauthenticated": 5, "gateway": 0, "proxy": 0}


async def test_idle_connections_of_an_address_make_room_for_a_further_one() -> None:
    metrics = Metrics()
    registry = ConnectionRegistry(LIMITS, metrics, behind_proxy=False)
    wires = [FakeTransport(connect(registry, "192.0.2.1")) for _ in range(2)]
    other = FakeTransport(connect(registry, "192.0.2.2"))
    gateway = FakeTransport(connect(registry, "192.0.2.1"))
    assert [wire.aborted for wire in (*wires, other)] == [True, False, False]
    registry.authenticated(gateway, "gw.example")
    assert registry.counts() == {"unauthenticated": 2, "gateway": 1, "proxy": 0}
    text = exposition(PREFIX, metrics.families(0))
    assert 'connections_refused_total{reason="address"} 1' in text


async def test_authenticated_connections_never_make_room() -> None:
    registry = ConnectionRegistry(LIMITS, Metrics(), behind_proxy=False)
    for each in range(6):
        wire = FakeTransport(connect(registry, f"192.0.2.{each}"))
        registry.authenticated(wire, f"gw-{each}.example")
    assert refusal_reason(registry, "192.0.2.9") == "connections"
    assert registry.counts() == {"unauthenticated": 0, "gateway": 6, "proxy": 0}


async def test_proxy_connections_are_not_unauthenticated() -> None:
    registry = ConnectionRegistry(LIMITS, Metrics(), behind_proxy=True)
    wires = [FakeTransport(connect(registry, "127.0.0.1")) for _ in range(6)]
    assert refusal_reason(registry, "127.0.0.1") == "connections"
    registry.authenticated(wires[0], "gw.example")
    assert not registry.is_unauthenticated(wires[0])
    assert registry.counts() == {"unauthenticated": 0, "gateway": 0, "proxy": 6}


async def test_longest_idle_connection_of_a_gateway_is_aborted() -> None:
    limits = ReceiverLimits(connections_per_gateway=2)
    metrics = Metrics()
    registry = ConnectionRegistry(limits, metrics, behind_proxy=False)
    wires = [FakeTransport(connect(registry, "192.0.2.1")) for _ in range(3)]
    for wire in (*wires[:2], wires[0], wires[2]):
        registry.authenticated(wire, "gw.example")
    assert [wire.aborted for wire in wires] == [False, True, False]
    assert registry.counts() == {"unauthenticated": 0, "gateway": 2, "proxy": 0}
    assert 'connections_refused_total{reason="gateway"} 1' in exposition(
        PREFIX, metrics.families(0)
    )


async def test_request_on_a_closed_connection_has_no_effect() -> None:
    registry = ConnectionRegistry(LIMITS, Metrics(), behind_proxy=False)
    wire = FakeTransport(connect(registry, "192.0.2.1"))
    wire.abort()
    for transport in (wire, None):
        registry.request_received(transport)
        registry.authenticated(transport, "gw.example")
        assert not registry.is_unauthenticated(transport)
    assert registry.counts() == {"unauthenticated": 0, "gateway": 0, "proxy": 0}


def test_throughput_is_averaged_over_windows() -> None:
    now = 0.0
    min_throughput = MinThroughput(256, 60.0, lambda: now)
    for _ in range(3):
        now += 59.0
        assert min_throughput.add(1), "the window is not over"
        now += 1.0
        assert min_throughput.add(256 * 60 - 1)
    now += 60.0
    assert not min_throughput.add(256 * 60 - 1)
    now += 90.0
    assert min_throughput.add(256 * 90)


def test_suppressed_log_lines_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    throttle = LogThrottle(1e-9, 2e9)
    for _ in range(5):
        throttle.log(logging.WARNING, ("a",), "refused")
    assert len(caplog.records) == 2
    throttle.log(logging.WARNING, ("b",), "refused")
    assert len(caplog.records) == 3, "another key has its own limit"
