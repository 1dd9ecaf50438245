"""Benchmark: front processes beside none: rate, latency, processor time and memory by process."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks import load, peer, server, usage
from benchmarks.load import Measurement
from benchmarks.report import Goal, Settings, Topic, milliseconds, number, table
from benchmarks.usage import Memory

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


FRONTS: Final = (0, 1, 3)
"""Numbers of front processes; three are measured with the most connections, and in memory."""

MOST: Final = 500
"""Connections."""


PASSED_ON: Final = -1
"""Stands in place of the number of front processes for a gateway without any, before which another
process passes bytes on and does nothing else."""


class Found(NamedTuple):
    """Measurements of a case by the number of front processes, in rounds: of as many exchanges as
    possible, and of half as many a second as without front processes (`PASSED_ON`, too)."""

    full: list[dict[int, Measurement]]
    half: list[dict[int, Measurement]]


def measure(settings: Settings) -> Topic:
    """Measure each case on two running gateways, which differ in their processes; then with three
    fronts, and the memory."""
    usage.raise_descriptors()
    folders = {processes: settings.folder / f"fronts-{processes}" for processes in FRONTS}
    most = round(settings.choose(MOST, 4))
    for processes, folder in folders.items():
        server.prepare(folder, most, processes=str(processes), **server.MQTT)
    cases = dict.fromkeys(case._replace(clients=min(case.clients, most)) for case in CASES)
    few = {processes: folders[processes] for processes in (0, 1)}
    found = {
        case: _measure_case(settings, case, folders if case.clients == most else few)
        for case in cases
    }
    memory = {processes: _memory(folder, most) for processes, folder in folders.items()}
    goals = [
        Goal(f"{case}: {ratio:.2f}, goal {case.goal}", reached=ratio >= case.goal)
        for case, (runs, _half) in found.items()
        for ratio in (_ratio(runs),)
    ]
    for case, (_full, runs) in found.items():
        without, with_front, passed = (_slow(runs, count) for count in (0, 1, PASSED_ON))
        text = f"{case}, half load: 99 % within {milliseconds(with_front)} ms, goal"
        text += f" {milliseconds(without)}; if bytes are only passed on, {milliseconds(passed)}"
        goals.append(Goal(text, reached=with_front <= without))
    wide = {case: runs for case, (runs, _half) in found.items() if case.clients == most}
    blocks = (
        "Gateways run without and with front processes (`[gateway] processes`), and are measured in"
        f" turn, {ROUNDS} rounds of 3 seconds; medians. The load generator is a"
        " program in C that checks every answer; each connection has one exchange in flight:"
        " `assured` and `deliver`, or a publication to a retained node. Processor time in"
        " microseconds for an exchange. If core, front and load generator have only two cores"
        " together, they wait for each other; the processor time of the core is what bounds a"
        " gateway with a core for each. *All of two cores* is the ratio that the rate would have if"
        " these processes were never idle.",
        table(
            (
                *("case", "without, exchanges/s", "with a front", "ratio", "all of two cores"),
                *("core without, us", "core with, us", "front, us", "generator, us"),
                *("99 % without, ms", "with", "wrong answers"),
            ),
            [_row(case, runs) for case, (runs, _half) in found.items()],
        ),
        "At half the rate of a gateway without fronts, whatever the answers take; the time begins"
        " when an exchange is due. *Passed on* is a gateway without fronts, before which a process"
        " in C reads the bytes of each connection, writes them to another one, and does no more:"
        " what any process between devices and gateway costs on this machine.",
        table(
            (
                *("case", "exchanges/s", "median without, ms", "with a front", "passed on"),
                *("99 % without, ms", "with a front", "passed on"),
                *("core without, us", "core with, us", "front, us", "wrong answers"),
            ),
            [_half_row(case, runs) for case, (_full, runs) in found.items()],
        ),
        "With three fronts, beside which two cores have no room, the core's processor time shows"
        " what a gateway with four cores can carry:",
        table(
            ("case", "exchanges/s", "core, us", "fronts, us", "exchanges/s of a busy core"),
            [_wide_row(case, [each[3] for each in runs]) for case, runs in wide.items()],
        ),
        f"Memory in MB, idle and with {most} sessions by XMPP under TLS, of which each has sent a"
        " request. PSS counts the pages that processes share in part, so that it can be added up:",
        table(
            ("fronts", "sessions", "core, PSS", "each front, PSS", "all, PSS", "all, resident"),
            [row for processes, each in memory.items() for row in _memory_rows(processes, each)],
        ),
    )
    return Topic("fronts", "Front processes beside none", blocks, goals)


def _measure_case(settings: Settings, case: Case, folders: dict[int, Path]) -> Found:
    with ExitStack() as stack:
        gateways = {
            count: stack.enter_context(server.gateway(folder, protocol=case.listener))
            for count, folder in folders.items()
        }
        rounds = range(round(settings.choose(ROUNDS, 1)))
        full = [
            {count: _run(settings, each, case) for count, each in gateways.items()} for _ in rounds
        ]
        rate = statistics.median(each[0].rate for each in full) / 2
        compared = {count: gateways[count] for count in (0, 1)}
        compared[PASSED_ON] = stack.enter_context(server.passed_on(gateways[0], settings.folder))
        half = [
            {count: _run(settings, each, case, rate) for count, each in compared.items()}
            for _ in rounds
        ]
        return Found(full, half)


def _memory(folder: Path, sessions: int) -> dict[int, list[Memory]]:
    """Return the memory of the core and each front, by the number of sessions."""
    tls = peer.trusting(folder / "pki" / "ca.pem")
    with server.gateway(folder) as gateway, ExitStack() as stack:
        processes = (gateway.pid, *usage.children(gateway.pid))
        idle = [usage.memory(each) for each in processes]
        for number in range(sessions):
            peer.ping(stack.enter_context(peer.login(gateway.address, number, tls)))
        return {0: idle, sessions: [usage.memory(each) for each in processes]}


def _run(settings: Settings, gateway: server.Server, case: Case, rate: float = 0.0) -> Measurement:
    """Measure a gateway with as many exchanges as possible, or `rate` a second."""
    options = load.exchange_options(gateway.address, case.clients, tls=case.tls) | {"rate": rate}
    if case.qos:
        options |= {"protocol": "mqtt", "qos": case.qos}
    times = settings.choose(0.7, 0.2), settings.choose(3.0, 0.5)
    return load.measure_exchanges(options, *times, gateway.pid)


def _ratio(runs: list[dict[int, Measurement]]) -> float:
    return statistics.median(each[1].rate / each[0].rate for each in runs)


def _slow(runs: list[dict[int, Measurement]], count: int) -> float:
    return statistics.median(each[count].slow for each in runs)


def _microseconds(seconds: Callable[[Measurement], float], of: Iterable[Measurement]) -> float:
    return statistics.median(seconds(one) / one.exchanges * 1e6 for one in of)


def _row(case: Case, runs: list[dict[int, Measurement]]) -> tuple[object, ...]:
    without, with_front = [each[0] for each in runs], [each[1] for each in runs]
    rates = [statistics.median(one.rate for one in each) for each in (without, with_front)]
    used = [
        _microseconds(seconds, with_front)
        for seconds in (
            lambda one: one.server_main,
            lambda one: one.server_others,
            lambda one: one.fronts,
            lambda one: one.load,
        )
    ]
    core, _others, fronts, load = used
    return (
        case,
        *map(number, rates),
        f"{_ratio(runs):.2f}",
        f"{2e6 / sum(used) / rates[0]:.2f}",
        number(_microseconds(lambda one: one.server_main, without)),
        *map(number, (core, fronts, load)),
        milliseconds(statistics.median(one.slow for one in without)),
        milliseconds(statistics.median(one.slow for one in with_front)),
        sum(one.errors for one in (*without, *with_front)),
    )


def _half_row(case: Case, runs: list[dict[int, Measurement]]) -> tuple[object, ...]:
    every = [[each[count] for each in runs] for count in (0, 1, PASSED_ON)]
    without, with_front, _passed = every
    return (
        case,
        number(statistics.median(one.rate for one in without)),
        *(milliseconds(statistics.median(one.median for one in each)) for each in every),
        *(milliseconds(statistics.median(one.slow for one in each)) for each in every),
        *(number(_microseconds(lambda m: m.server_main, each)) for each in (without, with_front)),
        number(_microseconds(lambda m: m.fronts, with_front)),
        sum(one.errors for each in every for one in each),
    )


def _wide_row(case: Case, runs: list[Measurement]) -> tuple[object, ...]:
    core = _microseconds(lambda one: one.server_main, runs)
    return (
        case,
        number(statistics.median(one.rate for one in runs)),
        number(core),
        number(_microseconds(lambda one: one.fronts, runs)),
        number(1e6 / core),
    )


def _memory_rows(processes: int, found: dict[int, list[Memory]]) -> Iterator[tuple[object, ...]]:
    for sessions, (core, *fronts) in found.items():
        yield (
            processes,
            sessions,
            f"{core.pss / 1e6:.1f}",
            ", ".join(f"{each.pss / 1e6:.1f}" for each in fronts),
            f"{sum(each.pss for each in (core, *fronts)) / 1e6:.1f}",
            f"{sum(each.rss for each in (core, *fronts)) / 1e6:.1f}",
        )
