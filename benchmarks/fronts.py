"""Benchmark: one front process beside none, for both protocols, in turn."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Final, NamedTuple

from benchmarks import load, server, usage
from benchmarks.load import Measurement
from benchmarks.report import Goal, Settings, Topic, milliseconds, number, table

ROUNDS: Final = 5
"""Measurements of each case with and without a front, in turn."""

GOALS: Final = {"1": 0.9, "plain": 1.6, "TLS": 2.0}
"""The least ratios of the rates: of one connection, and of more without and with TLS."""


class Case(NamedTuple):
    """The protocol, its QoS if it is MQTT, the number of connections, and whether they use TLS."""

    qos: int
    clients: int
    tls: bool = False

    def __str__(self) -> str:
        protocol = f"MQTT QoS {self.qos}" if self.qos else "XMPP"
        return f"{protocol}, {self.clients} {'TLS' if self.tls else 'plain'}"

    @property
    def listener(self) -> str:
        """Return the name of the listener."""
        if not self.qos:
            return "xmpp"
        return "mqtts" if self.tls else "mqtt"

    @property
    def goal(self) -> float:
        """Return the least ratio of the rates."""
        return GOALS["1" if self.clients == 1 else "TLS" if self.tls else "plain"]


CASES: Final = tuple(
    Case(qos, clients, tls)
    for qos in (0, 1, 2)
    for clients, tls in ((1, False), (50, False), (500, False), (50, True))
)


def measure(settings: Settings) -> Topic:
    """Measure each case on two running gateways, which differ in their processes."""
    usage.raise_descriptors()
    found: dict[Case, list[tuple[Measurement, Measurement]]] = {case: [] for case in CASES}
    folders = [settings.folder / f"fronts-{processes}" for processes in (0, 1)]
    for processes, folder in enumerate(folders):
        devices = max(case.clients for case in CASES)
        server.prepare(folder, devices, processes=str(processes), **server.MQTT)
    for case in CASES:
        with ExitStack() as stack:
            gateways = [
                stack.enter_context(server.gateway(folder, protocol=case.listener))
                for folder in folders
            ]
            for _ in range(round(settings.choose(ROUNDS, 1))):
                without, with_front = (_run(settings, each, case) for each in gateways)
                found[case].append((without, with_front))
    goals = [
        Goal(f"{case}: {ratio:.2f}, goal {case.goal}", reached=ratio >= case.goal)
        for case, runs in found.items()
        for ratio in (_ratio(runs),)
    ]
    blocks = (
        "Two gateways run, one without and one with a front process (`[gateway] processes`), and"
        f" are measured in turn, {ROUNDS} rounds of 3 seconds; medians. The load generator is a"
        " program in C that checks every answer; each connection has one exchange in flight:"
        " `assured` and `deliver`, or a publication to a retained node. Processor time in"
        " microseconds for an exchange. If core, front and load generator have only two cores"
        " together, they wait for each other; the processor time of the core is what bounds a"
        " gateway with a core for each.",
        table(
            (
                *("case", "without, exchanges/s", "with a front", "ratio", "core without, us"),
                *("core with, us", "front, us", "99 % without, ms", "with", "wrong answers"),
            ),
            [_row(case, runs) for case, runs in found.items()],
        ),
    )
    return Topic("fronts", "One front process beside none", blocks, goals)


def _run(settings: Settings, gateway: server.Server, case: Case) -> Measurement:
    options = load.exchange_options(gateway.address, case.clients, tls=case.tls)
    if case.qos:
        options |= {"protocol": "mqtt", "qos": case.qos}
    times = settings.choose(0.7, 0.2), settings.choose(3.0, 0.5)
    return load.measure_exchanges(options, *times, gateway.pid)


def _ratio(runs: list[tuple[Measurement, Measurement]]) -> float:
    return statistics.median(with_front.rate / without.rate for without, with_front in runs)


def _row(case: Case, runs: list[tuple[Measurement, Measurement]]) -> tuple[object, ...]:
    without, with_front = zip(*runs, strict=True)

    def microseconds(seconds: Callable[[Measurement], float], of: Sequence[Measurement]) -> str:
        return number(statistics.median(seconds(one) / one.exchanges * 1e6 for one in of))

    return (
        case,
        number(statistics.median(one.rate for one in without)),
        number(statistics.median(one.rate for one in with_front)),
        f"{_ratio(runs):.2f}",
        microseconds(lambda one: one.server, without),
        microseconds(lambda one: one.server, with_front),
        microseconds(lambda one: one.fronts, with_front),
        milliseconds(statistics.median(one.slow for one in without)),
        milliseconds(statistics.median(one.slow for one in with_front)),
        sum(one.errors for one in (*without, *with_front)),
    )
