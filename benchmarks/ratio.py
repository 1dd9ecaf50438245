"""Benchmark: the real server against the bare loop under the same load, alternating."""

from __future__ import annotations

import statistics
from typing import Final

from benchmarks import load, server
from benchmarks.load import Measurement
from benchmarks.report import Goal, Settings, Topic, number, table

CLIENTS: Final = 50

ROUNDS: Final = 10
"""Pairs of measurements."""

AIM: Final = 0.4
"""Required ratio of the real server's rate to the bare loop's."""


def measure(settings: Settings) -> Topic:
    """Measure pairs while both servers run."""
    folder = settings.folder / "ratio"
    server.prepare(folder, CLIENTS)
    real: list[Measurement] = []
    bare: list[Measurement] = []
    with server.gateway(folder) as gateway, server.bare(settings.folder / "bare") as baseline:
        for _ in range(round(settings.choose(ROUNDS, 1))):
            real.append(_run(settings, gateway, bare=False))
            bare.append(_run(settings, baseline, bare=True))
    ratios = [a.rate / b.rate for a, b in zip(real, bare, strict=True)]
    ratio = statistics.median(ratios)
    blocks = (
        f"{CLIENTS} plain connections, closed loop, {len(ratios)} alternating pairs of runs. The"
        " bare loop has the gateway's parser and group commit, but no TLS, login, routing,"
        " rules, limits or decoding. Values are medians; processor time is the server's, in us"
        " per exchange.",
        table(
            ("", "exchanges/s", "event loop, us", "database, us", "wrong answers"),
            [_row("the gateway", real), _row("the bare loop", bare)],
        ),
        f"Ratio of the rates: median {ratio:.2f}, {_interval(ratios)}.",
    )
    goal = Goal(f"the gateway's rate is {ratio:.2f} of the bare loop's (goal: {AIM})", ratio >= AIM)
    return Topic("bare", "The gateway against the bare loop", blocks, [goal])


def _interval(ratios: list[float]) -> str:
    """Describe the median's confidence interval: of ten pairs, the second to the ninth (98 %)."""
    ordered = sorted(ratios)
    inner = ordered[1:-1] if len(ordered) >= ROUNDS else ordered
    return f"98 % interval {inner[0]:.2f} to {inner[-1]:.2f}"


def _run(settings: Settings, target: server.Server, *, bare: bool) -> Measurement:
    host, port, _ca = target.address
    warm_up, seconds = settings.choose(0.5, 0.2), settings.choose(3.0, 0.5)
    return load.run(load.Plan(host, port, CLIENTS, warm_up, seconds, target.pid, bare=bare))


def _row(name: str, runs: list[Measurement]) -> tuple[object, ...]:
    return (
        name,
        number(statistics.median(run.rate for run in runs)),
        number(statistics.median(1e6 * run.server_main / run.exchanges for run in runs)),
        number(statistics.median(1e6 * run.server_others / run.exchanges for run in runs)),
        sum(run.errors for run in runs),
    )
