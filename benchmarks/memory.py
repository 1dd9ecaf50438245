"""Benchmark: resident memory of the server, idle and with idle sessions of XMPP and MQTT."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks import peer, server, usage
from benchmarks.report import Goal, Settings, Topic, table
from benchmarks.usage import Memory

SESSIONS: Final = 500

IDLE_AIM: Final = 35e6
"""Resident bytes of a server without sessions."""

BOTH_IDLE_AIM: Final = 42e6
"""Resident bytes of a server without sessions that has MQTT beside XMPP."""

TLS_AIM: Final = 60e6
"""Resident bytes of a server with `SESSIONS` TLS sessions."""

PLAIN_SESSION_AIM: Final = 24e3
TLS_SESSION_AIM: Final = 46e3
"""Resident bytes of a session."""


class Client(NamedTuple):
    """A protocol's client: the name of the listener, its login, and its request for an answer."""

    listener: str
    login: Callable[[peer.Target, int, ssl.SSLContext | None], socket.socket]
    ping: Callable[[socket.socket], None]


XMPP: Final = Client("xmpp", peer.login, peer.ping)
MQTT: Final = Client("mqtts", peer.login_mqtt, peer.ping_mqtt)


def measure(settings: Settings) -> Topic:
    """Measure a new server for each kind of session."""
    usage.raise_descriptors()
    folder, both = settings.folder / "memory", settings.folder / "both"
    sessions = round(settings.choose(SESSIONS, 20))
    server.prepare(folder, 2 * sessions)
    server.prepare(both, sessions, **server.MQTT)
    ca = folder / "pki" / "ca.pem"
    idle, *plain = _with_sessions(folder, sessions, None)
    _idle, *encrypted = _with_sessions(folder, sessions, ca)
    _idle, *many = _with_sessions(folder, 2 * sessions, ca)
    both_idle, *mqtt = _with_sessions(both, sessions, both / "pki" / "ca.pem", MQTT)
    rows = [
        ("idle, after start", *_sizes(idle), ""),
        ("idle, with MQTT beside XMPP", *_sizes(both_idle), ""),
    ]
    for kind, count, before, found in (
        ("plain", sessions, idle, plain),
        ("TLS", sessions, idle, encrypted),
        ("TLS", 2 * sessions, idle, many),
        ("MQTT TLS", sessions, both_idle, mqtt),
    ):
        for state, size in zip(("bound, idle", "each has sent a request"), found, strict=True):
            each = f"{_each(size, before, count) / 1e3:.0f}"
            rows.append((f"{count} {kind} sessions, {state}", *_sizes(size), each))
    blocks = (
        "Memory of the server's process; 1 MB is a million bytes. RSS counts pages that are"
        " shared with other processes in full, PSS counts them in part. What a session needs to"
        " read is freed again after 30 to 60 seconds without input.",
        table(("state", "RSS, MB", "PSS, MB", "KB per session"), rows),
    )
    goals = [
        _goal("the idle server", idle.rss, IDLE_AIM, "MB"),
        _goal(f"the server with {sessions} active TLS sessions", encrypted[1].rss, TLS_AIM, "MB"),
        _goal("an active plain session", _each(plain[1], idle, sessions), PLAIN_SESSION_AIM, "KB"),
        _goal("an active TLS session", _each(encrypted[1], idle, sessions), TLS_SESSION_AIM, "KB"),
        _goal("the idle server with MQTT beside XMPP", both_idle.rss, BOTH_IDLE_AIM, "MB"),
        _goal(
            "an active MQTT TLS session, compared with XMPP's,",
            _each(mqtt[1], both_idle, sessions),
            _each(encrypted[1], idle, sessions),
            "KB",
        ),
    ]
    return Topic("memory", "Resident memory", blocks, goals)


def _with_sessions(
    folder: Path, sessions: int, ca: Path | None, client: Client = XMPP
) -> tuple[Memory, Memory, Memory]:
    """Return a new server's resident memory without sessions, with so many, and after each of them
    has sent a request."""
    with server.gateway(folder, protocol=client.listener) as gateway, ExitStack() as stack:
        idle = usage.memory(gateway.pid)
        tls = None if ca is None else peer.trusting(ca)
        connections = [
            stack.enter_context(client.login(gateway.address, number, tls))
            for number in range(sessions)
        ]
        bound = usage.memory(gateway.pid)
        for connection in connections:
            client.ping(connection)
        return idle, bound, usage.memory(gateway.pid)


def _goal(what: str, size: float, aim: float, unit: str) -> Goal:
    scale = {"KB": 1e3, "MB": 1e6}[unit]
    text = f"{what} has {size / scale:.1f} {unit} resident (goal: at most {aim / scale:.0f} {unit})"
    return Goal(text, size <= aim)


def _sizes(found: Memory) -> tuple[str, str]:
    return f"{found.rss / 1e6:.1f}", f"{found.pss / 1e6:.1f}"


def _each(found: Memory, idle: Memory, sessions: int) -> float:
    return (found.rss - idle.rss) / sessions
