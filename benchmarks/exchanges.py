"""Benchmark: assured exchanges per second through the real server, and what limits the rate.

The core of an exchange, without sockets and parsing, is measured part by part.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import tempfile
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks import exchange_steps, instructions, load, server
from benchmarks.exchange_steps import KINDS, PARTS, SENDERS
from benchmarks.load import Measurement
from benchmarks.report import Settings, Topic, milliseconds, number, table

FULL: Final = 0.9
"""Share of the processor time of a core, or of all cores, above which it counts as saturated."""


class Case(NamedTuple):
    """The number of connections, and whether they use TLS."""

    clients: int
    tls: bool = False

    def __str__(self) -> str:
        return f"{self.clients} {'TLS' if self.tls else 'plain'}"


CASES: Final = (Case(1), Case(50), Case(500), Case(50, tls=True))

ROUNDS: Final = 5
"""Measurements of each part of the core, alternating."""

EXCHANGES: Final = 4_000
"""Exchanges of a measurement of the core."""


def measure(settings: Settings) -> Topic:
    """Measure each case on the same running gateway."""
    folder = settings.folder / "exchanges"
    server.prepare(folder, max(case.clients for case in CASES))
    with server.gateway(folder) as gateway:
        found = [(case, _run(settings, gateway, case)) for case in CASES]
    blocks = (
        "`fieldpost run` is one process and the load generator, a program in C, another. Each"
        " connection has one exchange in flight (`assured`, `received`, `deliver`, empty"
        " result), and every answer is checked. Processor use is in % of one core; Python runs"
        " one thread at a time, but SQLite and the sockets run in parallel to it.",
        table(
            (
                *("connections", "exchanges/s", "median, ms", "99 %, ms", "wrong answers"),
                *("event loop", "database", "load generator", "saturated"),
            ),
            [_row(case, measured) for case, measured in found],
        ),
        *measure_core(settings),
    )
    return Topic("exchanges", "Assured exchanges through the gateway", blocks)


def measure_core(settings: Settings) -> tuple[str, str]:
    """Measure the parts of the core of each kind of exchange; return a text and a table."""
    rows = []
    for kind in KINDS:
        found: dict[str, list[float]] = {part: [] for part in PARTS}
        for _ in range(round(settings.choose(ROUNDS, 1))):
            for part, times in found.items():
                times.append(_core_time(settings, part, kind))
        handle, units, stored, empty, whole = (statistics.median(found[part]) for part in PARTS)
        others = whole - stored - empty
        counted = None if settings.quick else instructions.count(f"core_{kind}")
        parts = (handle, units - handle, stored - units, empty, others, whole)
        rows.append(
            (
                kind.replace("_qos", " QoS ").replace("mqtt", "MQTT").replace("xmpp", "XMPP"),
                *(f"{number(1e6 * part)} ({100 * part / whole:.0f})" for part in parts[:-1]),
                number(1e6 * whole),
                "not counted" if counted is None else f"{counted:,}",
            )
        )
    text = (
        f"The core of an exchange in one process, without sockets and parsing: {SENDERS} sessions"
        " get decoded requests (`assured` and `deliver`; PUBLISH; PUBLISH, PUBREL) with a reading"
        " for the event log, and pass on encoded answers after the commit, closed loop."
        " Microseconds of processor time, and shares of the whole in %; medians of"
        f" {ROUNDS} rounds. Requests: find the handler and make a unit of work. Units: run in"
        " memory, decode the payload, and encode the answer. Rows: store what a group has changed."
        " Groups: submit and answer units that do nothing. The rest is the commit, fsync, and what"
        " sessions do with answers. Instructions are counted by valgrind, in user space."
    )
    head = ("core of", "requests", "units", "rows", "groups", "commit and answers", "whole, us")
    return text, table((*head, "instructions"), rows)


def _core_time(settings: Settings, part: str, kind: str) -> float:
    times = round(settings.choose(EXCHANGES, SENDERS))
    with tempfile.TemporaryDirectory(dir=settings.folder) as folder:
        return asyncio.run(exchange_steps.repeat_part(part, kind, times, Path(folder))) / times


def _run(settings: Settings, gateway: server.Server, case: Case) -> Measurement:
    options = load.exchange_options(gateway.address, case.clients, tls=case.tls)
    times = settings.choose(2.0, 0.2), settings.choose(6.0, 0.5)
    return load.measure_exchanges(options, *times, gateway.pid)


def _row(case: Case, measured: Measurement) -> tuple[object, ...]:
    used = (measured.server_main, measured.server_others, measured.load)
    return (
        case,
        number(measured.rate),
        milliseconds(measured.median),
        milliseconds(measured.slow),
        measured.errors,
        *(f"{100 * seconds / measured.seconds:.0f}" for seconds in used),
        saturated(measured),
    )


def saturated(measured: Measurement) -> str:
    """Return the component that limits the rate."""
    seconds = measured.seconds
    server_side = measured.server_main + measured.server_others
    if measured.load >= FULL * seconds:
        return "the load generator"
    if server_side >= FULL * seconds:
        return "the server"
    others = measured.machine - server_side - measured.load
    if measured.machine >= FULL * seconds * (os.cpu_count() or 1) and others > measured.load:
        return "the machine, by other processes"
    return "none: waits for commits"
