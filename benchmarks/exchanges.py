"""Benchmark: assured exchanges per second through the real server, and what limits the rate."""

from __future__ import annotations

import os
from typing import Final, NamedTuple

from benchmarks import load, server
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
    )
    return Topic("exchanges", "Assured exchanges through the gateway", blocks)


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
