"""Benchmark: resident memory of the server, idle and with idle sessions, plain and TLS."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Final

from benchmarks import peer, server, usage
from benchmarks.report import Goal, Settings, Topic, table
from benchmarks.usage import Memory

SESSIONS: Final = 500

AIM: Final = 80_000_000
"""Bytes that the server may have resident with `AIM_SESSIONS` TLS sessions."""


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
    goal = Goal(
        f"the server has {encrypted.rss / 1e6:.0f} MB resident with {sessions} TLS sessions"
        f" (goal: less than {AIM / 1e6:.0f} MB)",
        encrypted.rss < AIM,
    )
    return Topic("memory", "Resident memory", blocks, [goal])


def _with_sessions(folder: Path, sessions: int, ca: Path | None) -> tuple[Memory, Memory]:
    """Return a new server's resident memory without sessions, and with so many."""
    with server.gateway(folder) as gateway, ExitStack() as stack:
        idle = usage.memory(gateway.pid)
        tls = None if ca is None else peer.trusting(ca)
        for number in range(sessions):
            stack.enter_context(peer.login(gateway.address, number, tls))
        return idle, usage.memory(gateway.pid)


def _row(state: str, found: Memory, idle: Memory, sessions: int) -> tuple[object, ...]:
    each = (found.rss - idle.rss) / sessions / 1e3
    sizes = (f"{size / 1e6:.1f}" for size in found)
    return (state, *sizes, f"{each:.0f}" if found is not idle else "")
