"""Attacks by clients without an account: on connections, TLS, log-in, and the XML parser before it.

Each attack connects from its own loopback address, because the limits apply per address.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import Any, Final

from firmware_sim.attackers import stanzas
from firmware_sim.attackers.attack import Attack, Work
from firmware_sim.attackers.wire import (
    Client,
    ConnectionClosed,
    Counts,
    Credentials,
    Target,
)

_CONNECTIONS: Final = 80  # that one attack opens at a time, of 50 that one address may have
_PAUSE_S: Final = 0.02  # between two of those
_LISTEN_S: Final = 20.0  # that a silent connection is kept, if it is let be
_GUESSES_S: Final = 0.2  # between two guesses of a password
_HUGE: Final = 50_000  # bytes of a body: above the largest stanza before log-in


async def _crowd(
    target: Target,
    counts: Counts,
    one: Callable[[Target, Counts], Coroutine[Any, Any, None]],
) -> None:
    tasks = set()
    try:
        for _ in range(_CONNECTIONS):
            tasks.add(asyncio.ensure_future(one(target, counts)))
            await asyncio.sleep(_PAUSE_S)
        await asyncio.wait(tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _linger(client: Client) -> None:
    with contextlib.suppress(TimeoutError, ConnectionClosed):
        async with asyncio.timeout(_LISTEN_S):
            await client.listen()


async def _silence(target: Target, counts: Counts) -> None:
    counts.sent += 1
    client = await Client.connect(target, counts)
    try:
        await _linger(client)
    finally:
        client.cut()


async def _half_handshake(target: Target, counts: Counts) -> None:
    counts.sent += 1
    client = await Client.connect(target, counts)
    try:
        client.open()
        await client.until("</stream:features>")
        client.send(stanzas.STARTTLS)
        await client.until("<proceed")
        client.writer.write(stanzas.HALF_HELLO)
        await _linger(client)
    except (ConnectionClosed, TimeoutError):
        pass
    finally:
        client.cut()


async def silence(target: Target, counts: Counts, _account: str) -> None:
    """Open many connections and send nothing."""
    await _crowd(target, counts, _silence)


async def half_handshakes(target: Target, counts: Counts, _account: str) -> None:
    """Begin many TLS handshakes and finish none."""
    await _crowd(target, counts, _half_handshake)


async def guesses(target: Target, counts: Counts, _account: str) -> None:
    """Try wrong passwords, several on each connection."""
    client = await Client.connect(target, counts)
    try:
        await client.secure()
        while True:
            counts.sent += 1
            await client.log_in(Credentials("admin", f"guess{counts.sent}"))
            await asyncio.sleep(_GUESSES_S)
    finally:
        client.cut()


async def huge_before_log_in(target: Target, counts: Counts, _account: str) -> None:
    """Send an oversized stanza before log-in."""
    client = await Client.connect(target, counts)
    try:
        await client.secure()
        counts.sent += 1
        client.send(stanzas.message("", _HUGE))
        await client.listen()
    finally:
        client.cut()


def _unauthenticated(
    name: str,
    about: str,
    work: Work,
    rules: tuple[str, ...],
    address: int,
) -> Attack:
    return Attack(name, about, work, rules, unauthenticated=True, address=address)


ATTACKS: Final = (
    _unauthenticated(
        "silent connections",
        "connects 80 times and sends nothing",
        silence,
        ("connections", "authenticate_time"),
        3,
    ),
    _unauthenticated(
        "half handshakes",
        "begins 80 TLS handshakes and abandons them",
        half_handshakes,
        ("connections", "authenticate_time", "tls"),
        4,
    ),
    _unauthenticated(
        "guessed passwords",
        "guesses passwords of an account",
        guesses,
        ("authentication", "authentication_limit"),
        5,
    ),
    _unauthenticated(
        "huge stanzas before log-in",
        "sends a stanza above the maximum size before it logs in",
        huge_before_log_in,
        ("policy-violation",),
        6,
    ),
)
