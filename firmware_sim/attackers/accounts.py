"""Attacks by clients with an account: what each sends, and the limits that must refuse it.

Each attack uses its own account (`Attack.account`). Some send to the accounts `VICTIM` and `AWAY`.
An attack's `rules` are names of events of kind `limit` in the gateway's event log.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final

from firmware_sim.attackers import stanzas
from firmware_sim.attackers.attack import Attack, Work
from firmware_sim.attackers.wire import Client, ConnectionClosed, Counts, Target, listen_during

VICTIM: Final = "victim"
"""The account of a device that is connected and never reads."""

AWAY: Final = "away"
"""The account of a device that never connects."""

_LARGE: Final = 40_000  # bytes of a large body: below the largest stanza
_HUGE: Final = 200_000  # above it
_STATUS: Final = 6_000  # bytes of a status: above the largest presence
_CONTACTS: Final = 1_000  # that are put into one roster, over and over
_RESOURCES: Final = 128  # sessions that are asked for
_AT_ONCE: Final = 16  # of those at the same time: twice as many as an account may have
_UNREAD: Final = 4096  # bytes that wait for a reader that never reads, beside what waits here
_PAUSE_S: Final = 2.0  # seconds between two such times


def _large(number: int) -> str:
    return stanzas.assured(number, f"<body>{'x' * _LARGE}</body>")


def _churn(number: int) -> str:
    """Return a roster change, or for every fourth number an oversized presence."""
    if number % 4 == 0:
        return stanzas.presence(_STATUS)
    return stanzas.roster_change(number, f"contact{number % _CONTACTS}@elsewhere.example")


def _plain(_number: int, to: str) -> str:
    return stanzas.message(to, 2_000)


def _acknowledged(number: int, to: str) -> str:
    return stanzas.acknowledged(number, f"<body>{number}</body>", to)


def _flooding(make: Callable[..., str], account: str = "") -> Work:
    """Return an attack that floods the gateway, or an account of it, with stanzas.

    `make` returns the stanza for a number and, if `account` is given, for its address.
    """

    async def work(target: Target, counts: Counts, name: str) -> None:
        to = (f"{account}@{target.domain}",) if account else ()
        client = await Client.bound(target, counts, name, "flood")
        await listen_during(client, client.flood(lambda number: make(number, *to)))

    return work


async def huge_stanzas(target: Target, counts: Counts, name: str) -> None:
    """Send one oversized stanza on each connection."""
    with contextlib.closing(await Client.bound(target, counts, name, "huge")) as client:
        counts.sent += 1
        client.send(stanzas.message(target.domain, _HUGE))
        await client.listen()


async def sessions(target: Target, counts: Counts, name: str) -> None:
    """Bind many sessions at once, repeatedly, and keep the sessions that the gateway accepts."""
    kept: list[Client] = []

    async def one(number: int) -> None:
        counts.sent += 1
        with contextlib.suppress(ConnectionClosed, OSError, TimeoutError):
            kept.append(await Client.bound(target, counts, name, f"r{number}"))

    try:
        for first in range(0, _RESOURCES, _AT_ONCE):
            await asyncio.gather(*(one(first + number) for number in range(_AT_ONCE)))
            await asyncio.sleep(_PAUSE_S)
    finally:
        for client in kept:
            client.close()


async def slow_reader(target: Target, counts: Counts, name: str) -> None:
    """Send a flood of plain messages to a device that never reads."""
    with contextlib.closing(await Client.bound(target, counts, VICTIM, "deaf", _UNREAD)) as reader:
        reader.send("<presence/>")
        reader.stop_reading()
        await _flooding(_plain, VICTIM)(target, counts, name)


_OFFLINE: Final = (
    "offline_messages",
    "offline_bytes",
    "offline_messages_per_source",
    "offline_bytes_per_source",
)
_OUTBOX: Final = (
    "outbox_messages_per_account",
    "outbox_bytes_per_account",
    "outbox_messages_per_source",
    "outbox_bytes_per_source",
)

ATTACKS: Final = (
    Attack(
        "msgids never released",
        "offers small assured messages and never releases them",
        _flooding(stanzas.assured),
        ("held_messages_per_source",),
    ),
    Attack(
        "bytes never released",
        "offers large assured messages and never releases them",
        _flooding(_large),
        ("held_bytes_per_source",),
    ),
    Attack(
        "tiny stanzas",
        "sends pings as fast as it can",
        _flooding(stanzas.ping),
        ("rate",),
        answered=False,
    ),
    Attack(
        "malformed requests",
        "offers assured messages without a msgId",
        _flooding(stanzas.without_msg_id),
        ("malformed",),
    ),
    Attack(
        "roster and presence churn",
        "adds and changes contacts, and sends oversized presence",
        _flooding(_churn),
        ("roster_items", "presence_bytes"),
    ),
    Attack(
        "untrusted sender",
        "offers assured messages from an account without rights (`--no-trust`)",
        _flooding(stanzas.assured),
        ("untrusted",),
        trusted=False,
    ),
    Attack(
        "huge stanzas",
        "sends a stanza above the maximum size on each connection",
        huge_stanzas,
        ("policy-violation",),
    ),
    Attack(
        "many sessions",
        "binds 16 sessions at the same time, repeatedly",
        sessions,
        ("sessions", "sessions_per_account"),
    ),
    Attack(
        "a reader that never reads",
        "stops reading while another session floods its account",
        slow_reader,
        _OFFLINE,
    ),
    Attack(
        "plain messages to an absent device",
        "floods a device that never connects with plain messages",
        _flooding(_plain, AWAY),
        _OFFLINE,
    ),
    Attack(
        "custody for an absent device",
        "floods a device that never connects with acknowledged messages",
        _flooding(_acknowledged, AWAY),
        _OUTBOX,
    ),
)
