"""Tests of held messages whose senders never return: they expire and leave capacity to others.

Sources fill their limit and disconnect; a device without an outbox reboots during each exchange,
so that it cannot continue. Source: XEP QoS, "Memory attacks".
"""

from __future__ import annotations

import pytest

from edge.config.limits import Limits
from edge.engine.rules.quota import FEW_MESSAGES
from tests.helpers.store import Gateway, MakeGateway, Reply, assured, deliver, log

HONEST = "honest@gw.example/fw"
ABSENT = "absent@gw.example"
TEXT = "<message xmlns='jabber:client'><body>open</body></message>"
MINUTE = 60.0
HOURS = 180 * MINUTE
LIMITS = Limits(
    held_messages=64,
    held_messages_per_source=8,
    held_grace=30 * MINUTE,
    held_ttl=24 * 60 * MINUTE,
    outbox_messages_per_account=32,
)
ORPHANS = [f"orphan{number}" for number in range(8)]
"""Enough sources to fill the capacity for sources with many messages; the last gets less."""


@pytest.fixture
def gateway(make_gateway: MakeGateway) -> Gateway:
    return make_gateway(LIMITS, accounts_of=("honest", "absent", "amnesiac", *ORPHANS))


def outcome(reply: Reply | None) -> str:
    assert reply is not None
    return "/".join(reply.error) if reply.error else reply.type


def offer(gateway: Gateway, name: str, msg_id: str, to: str = "gw.example") -> str:
    return outcome(gateway.send(f"{name}@gw.example/fw", assured(msg_id, log("x"), to)))


def exchange(gateway: Gateway, msg_id: str, to: str = "gw.example", message: str = "") -> None:
    """Complete the exchange of a message of the honest device."""
    message = message or log("x")
    assert outcome(gateway.send(HONEST, assured(msg_id, message, to))) == "result"
    assert outcome(gateway.send(HONEST, deliver(msg_id, to))) == "result"


def held(gateway: Gateway) -> int:
    return int(gateway.count("SELECT count(*) FROM held"))


def fill(gateway: Gateway, count: int = 8, to: str = "gw.example") -> int:
    """Let sources fill their limits and disconnect; return the number of held messages."""
    accepted = 0
    for name in ORPHANS[:count]:
        for number in range(LIMITS.held_messages_per_source + 1):
            accepted += offer(gateway, name, f"m{number}", to) == "result"
        gateway.end(f"{name}@gw.example/fw")
    return accepted


def test_abandoned_messages_do_not_block_other_sources(gateway: Gateway) -> None:
    accepted = fill(gateway)
    assert 7 / 8 * LIMITS.held_messages <= accepted < LIMITS.held_messages
    for number in range(50):
        exchange(gateway, f"h{number}")
    for number in range(FEW_MESSAGES):
        assert offer(gateway, "honest", f"open{number}") == "result"
    assert held(gateway) == accepted + FEW_MESSAGES


@pytest.mark.parametrize("interval", [MINUTE, 10 * MINUTE])
def test_rebooting_device_blocks_neither_others_nor_itself(
    gateway: Gateway, interval: float
) -> None:
    """It offers a message, reboots, forgets the message, and offers another one, repeatedly."""
    limit = LIMITS.held_messages_per_source
    end, last, refused, accepted = gateway.clock.service + HOURS, 0.0, 0, 0
    number = 0
    while gateway.clock.service < end:
        number += 1
        if offer(gateway, "amnesiac", f"boot{number}") == "result":
            accepted, last = accepted + 1, gateway.clock.service
        else:
            refused += 1
            assert gateway.clock.service - last <= LIMITS.held_grace + interval
        gateway.end("amnesiac@gw.example/fw")
        exchange(gateway, f"h{number}")
        assert held(gateway) <= limit
        gateway.clock.service += interval
    assert accepted > HOURS / max(interval, LIMITS.held_grace / limit) * 0.9
    assert (refused > 0) is (interval * limit < LIMITS.held_grace)
    evictions = gateway.events("system", "evicted")
    assert len(evictions) == accepted - held(gateway)
    assert {event.source for event in evictions} == {"amnesiac@gw.example/fw"}


def test_messages_in_custody_do_not_fill_the_outbox(gateway: Gateway) -> None:
    fill(gateway, 4, ABSENT)
    for number in range(FEW_MESSAGES):
        exchange(gateway, f"h{number}", ABSENT, TEXT)
    gateway.clock.service += LIMITS.held_ttl + 1
    gateway.run_timers()
    exchange(gateway, "later", ABSENT, TEXT)
