"""Benchmark: resident memory of the server, idle and with idle sessions, plain and TLS."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Final

from benchmarks import peer, server, usage
from benchmarks.report import Goal, Settings, Topic, table
from benchmarks.usage import Memory

SESSIONS: Final = 500

IDLE_AIM: Final = 35e6
"""Resident bytes of a server without sessions."""

TLS_AIM: Final = 60e6
"""Resident bytes of a server with `SESSIONS` TLS sessions."""

PLAIN_SESSION_AIM: Final = 24e3
TLS_SESSION_AIM: Final = 46e3
"""Resident bytes of a session."""


def measure(settings: Settings) -> Topic:
    """Measure a new server for each kind of session."""
    usage.raise_descriptors()
    folder = settings.folder / "memory"
    sessions = round(settings.choose(SESSIONS, 20))
    server.prepare(folder, 2 * sessions)
    ca = folder / "pki" / "ca.pem"
    idle, plain = _with_sessions(folder, sessions, None)
    _idle, encrypted = _with_sessions(folder, sessions, ca)
    _idle, many = _with_sessions(folder, 2 * sessions, ca)
    rows = (
        _row("idle, after start", idle, idle, sessions),
        _row(f"{sessions} plain sessions, bound, idle", plain, idle, sessions),
        _row(f"{sessions} TLS sessions, bound, idle", encrypted, idle, sessions),
        _row(f"{2 * sessions} TLS sessions, bound, idle", many, idle, 2 * sessions),
    )
    blocks = (
        "Memory of the server's process; 1 MB is a million bytes. RSS counts pages that are"
        " shared with other processes in full, PSS counts them in part.",
        table(("state", "RSS, MB", "PSS, MB", "KB per session"), rows),
    )
    each = {
        "plain": ((plain.rss - idle.rss) / sessions, PLAIN_SESSION_AIM),
        "TLS": ((encrypted.rss - idle.rss) / sessions, TLS_SESSION_AIM),
    }
    goals = [
        _goal("the idle server", idle.rss, IDLE_AIM, "MB"),
        _goal(f"the server with {sessions} TLS sessions", encrypted.rss, TLS_AIM, "MB"),
        *(_goal(f"a {kind} session", size, aim, "KB") for kind, (size, aim) in each.items()),
    ]
    return Topic("memory", "Resident memory", blocks, goals)


def _with_sessions(folder: Path, sessions: int, ca: Path | None) -> tuple[Memory, Memory]:
    """Return a new server's resident memory without sessions, and with so many."""
    with server.gateway(folder) as gateway, ExitStack() as stack:
        idle = usage.memory(gateway.pid)
        tls = None if ca is None else peer.trusting(ca)
        for number in range(sessions):
            stack.enter_context(peer.login(gateway.address, number, tls))
        return idle, usage.memory(gateway.pid)


def _goal(what: str, size: float, aim: float, unit: str) -> Goal:
    scale = {"KB": 1e3, "MB": 1e6}[unit]
    text = f"{what} has {size / scale:.1f} {unit} resident (goal: at most {aim / scale:.0f} {unit})"
    return Goal(text, size <= aim)


def _row(state: str, found: Memory, idle: Memory, sessions: int) -> tuple[object, ...]:
    each = (found.rss - idle.rss) / sessions / 1e3
    sizes = (f"{size / 1e6:.1f}" for size in found)
    return (state, *sizes, f"{each:.0f}" if found is not idle else "")
