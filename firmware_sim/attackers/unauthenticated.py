"""Attacks without an account: on connections, TLS, log-in, and the XML parser before log-in.

Each attack connects from its own loopback address, because the limits apply per address.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import Any, Final

from firmware_sim.attackers import stanzas
from firmware_sim.attackers.attack import Attack, Work
from firmware_sim.attackers.wire import Client, ConnectionClosed, Counts, Target

_CONNECTIONS: Final = 80  # that one attack opens at a time, of 50 that one address may have
_PAUSE_S: Final = 0.02  # between two of those
_LISTEN_S: Final = 20.0  # that a silent connection is kept, if it is let be
_GUESSES_S: Final = 0.2  # between two guesses of a password
_HUGE: Final = 50_000  # bytes of a body: above the largest stanza before log-in


def _on_many_connections(attempt: Callable[[Client], Coroutine[Any, Any, None]]) -> Work:
    """Return an attack that makes an attempt on each of many connections at the same time."""

    async def one(target: Target, counts: Counts) -> None:
        counts.sent += 1
        with (
            contextlib.suppress(ConnectionClosed, OSError, TimeoutError),
            contextlib.closing(await Client.connect(target, counts)) as client,
        ):
            await attempt(client)
            async with asyncio.timeout(_LISTEN_S):
                await client.listen()

    async def work(target: Target, counts: Counts, _account: str) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(_CONNECTIONS):
                group.create_task(one(target, counts))
                await asyncio.sleep(_PAUSE_S)

    return work


async def _send_nothing(_client: Client) -> None:
    """Leave the connection silent."""


async def _half_handshake(client: Client) -> None:
    client.open()
    await client.until("</stream:features>")
    client.send(stanzas.STARTTLS)
    await client.until("<proceed")
    client.writer.write(stanzas.HALF_HELLO)


async def guesses(target: Target, counts: Counts, _account: str) -> None:
    """Try wrong passwords, several on each connection."""
    with contextlib.closing(await Client.connect(target, counts)) as client:
        await client.secure()
        while True:
            counts.sent += 1
            await client.log_in("admin", f"guess{counts.sent}")
            await asyncio.sleep(_GUESSES_S)


async def huge_before_log_in(target: Target, counts: Counts, _account: str) -> None:
    """Send an oversized stanza before log-in."""
    with contextlib.closing(await Client.connect(target, counts)) as client:
        await client.secure()
        counts.sent += 1
        client.send(stanzas.message("", _HUGE))
        await client.listen()


ATTACKS: Final = (
    Attack(
        "silent connections",
        "connects 80 times and sends nothing",
        _on_many_connections(_send_nothing),
        ("connections", "authenticate_time"),
        address=3,
    ),
    Attack(
        "half handshakes",
        "begins 80 TLS handshakes and abandons them",
        _on_many_connections(_half_handshake),
        ("connections", "authenticate_time", "tls"),
        address=4,
    ),
    Attack(
        "guessed passwords",
        "guesses passwords of an account",
        guesses,
        ("authentication", "authentication_limit"),
        address=5,
    ),
    Attack(
        "huge stanzas before log-in",
        "sends a stanza above the maximum size before it logs in",
        huge_before_log_in,
        ("policy-violation",),
        address=6,
    ),
)
