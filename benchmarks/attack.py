"""Benchmark: how long devices wait while others attack the gateway, with and without fronts."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from itertools import chain
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks import attackers, load, server, usage
from benchmarks.load import Measurement
from benchmarks.peer import Target
from benchmarks.peer_servers import free_port
from benchmarks.report import Goal, Settings, Topic, milliseconds, number, table

ROUNDS: Final = 3
"""Measurements of each attack on each gateway, in turn."""

CONNECTIONS: Final = attackers.SUBSCRIBER
"""Connections of devices."""

RATE: Final = 2000
"""Publications a second that they begin together, far below what a gateway can."""

GOAL: Final = 1.5
"""The most times of the quiet 99th percentile that devices at other fronts may wait."""

PROCESSES: Final = (0, 1, 2)

QUIET: Final = "none"

PERCENT: Final = 100

XMPP: Final = ("bytes",)
"""The attacks on the listener of XMPP; all others are on that of MQTT."""

NAMES: Final = {
    QUIET: "none",
    "handshakes": f"{attackers.HANDSHAKES:.0f} TLS handshakes a second, not ended",
    "connections": f"{attackers.SILENT} silent connections, replaced when closed",
    "bytes": f"{attackers.BYTEWISE} connections of XMPP before log-in, {attackers.BYTES:,} bytes a"
    " second in packets of one byte",
    "filters": f"{attackers.SUBSCRIBERS} sessions of a device, each with {attackers.FILTERS}"
    " overlapping filters, again and again",
}

OPTIONS: Final = {
    **server.MQTT,
    "pubsub.auto_create": '["#"]',
    # the defaults, because limits are part of what is measured
    "stanzas_per_second": "100",
    "stanzas_at_once": "500",
    "bytes_per_second": "262144",
    "bytes_at_once": "524288",
}


class Run(NamedTuple):
    """A measurement under an attack; latencies are 99th percentiles in seconds.

    Attributes:
        counts: what the attacker has done (`attackers.Counts`).
        slow: of all devices, including exchanges that end after the measurement.
        flooded, other: of the devices at the front that used most processor time, and at others;
            0.0 if there is one process.
        memory: the peak of the resident bytes of the core, and of the largest front.
    """

    devices: Measurement
    counts: Mapping[str, int]
    slow: float
    flooded: float
    other: float
    memory: tuple[int, int]


class Gateway(NamedTuple):
    """A running gateway: its pid, and the addresses of its listeners."""

    pid: int
    mqtt: Target
    xmpp: Target


def measure(settings: Settings) -> Topic:
    """Measure each attack on running gateways, which differ in their front processes."""
    usage.raise_descriptors()
    counts = PROCESSES[-1:] if settings.quick else PROCESSES
    found: dict[tuple[str, int], list[Run]] = {(name, n): [] for name in NAMES for n in counts}
    beside: dict[str, list[Run]] = {name: [] for name in NAMES if name != QUIET}
    folder = settings.folder
    with ExitStack() as stack:
        gateways = {
            processes: stack.enter_context(_gateway(folder / f"attack-{processes}", processes))
            for processes in counts
        }
        most = gateways[PROCESSES[-1]]
        other = stack.enter_context(_gateway(folder / "attack-beside", PROCESSES[-1]))
        for _ in range(round(settings.choose(ROUNDS, 1))):
            for name in NAMES:
                for processes, gateway in gateways.items():
                    found[name, processes].append(_run(settings, gateway, name, gateway))
                if name != QUIET:
                    beside[name].append(_run(settings, most, name, other))
    blocks = (
        f"{CONNECTIONS} connections of MQTT publish {RATE:,} retained messages a second in all at"
        f" QoS 1, to {CONNECTIONS} topics of nine levels, each when it is due; a wait counts from"
        " then. The program in C checks every answer, and at the end whether the last message of"
        " each connection arrived. Three gateways run, with no, one and two front processes, and"
        f" are measured in turn, {ROUNDS} rounds of 3 seconds; medians of the rounds, in ms. Rate"
        " limits and limits of connections are the defaults. The attacker is a process of its own;"
        f" without an account it uses eight addresses. It shares {os.cpu_count()} cores with"
        " devices and gateways.",
        "All fronts accept from the same sockets, and the kernel gives a connection to the one that"
        " takes it first, so that the connections of devices and of attackers reach all fronts."
        " Each device is counted at the front that has its socket. The flooded front is the one"
        " that used most processor time in the measurement.",
        table(
            (
                *("attack", "fronts", "median", "99 %", "times quiet", "at the flooded front"),
                *("at the other", "times quiet", "core, % of a core", "fronts, %"),
                *("wrong", "missing"),
            ),
            [_row(found, name, processes) for name, processes in found],
        ),
        f"The same attacks on another gateway with {PROCESSES[-1]} fronts on this machine. The"
        " devices use theirs, which has as many, so this is what it costs to share"
        f" {os.cpu_count()} cores:",
        table(
            ("attack", "median", "99 %", "times quiet", "core, % of a core", "fronts, %"),
            [_beside_row(found, name, runs) for name, runs in beside.items()],
        ),
        "What the attackers did in a round, and the peak of the resident memory since the start:",
        table(
            (
                *("attack", "fronts", "connections", "answered", "closed", "bytes sent"),
                *("core, MiB", "largest front, MiB"),
            ),
            [_counts(found, name, processes) for name, processes in found],
        ),
    )
    return Topic("attack", "Devices while a gateway is attacked", blocks, _goals(found, beside))


@contextmanager
def _gateway(folder: Path, processes: int) -> Iterator[Gateway]:
    port = free_port()
    more = {"processes": str(processes), "xmpp.listen": f'"127.0.0.1:{port}"'}
    server.prepare(folder, attackers.SUBSCRIBER + 1, **OPTIONS, **more)
    with server.gateway(folder, protocol="mqtt") as running:
        yield Gateway(running.pid, running.address, Target("127.0.0.1", port))


def _run(settings: Settings, gateway: Gateway, name: str, attacked: Gateway) -> Run:
    """Measure the devices of a gateway while the attack called `name` goes on."""
    topic = "/".join(attackers.LEVELS)
    mqtt = {"protocol": "mqtt", "qos": 1, "topic": topic}
    paced = {"rate": settings.choose(RATE, 200), "list": 1}
    options = load.exchange_options(gateway.mqtt, CONNECTIONS, b"21.5 ") | mqtt | paced
    fronts = usage.children(gateway.pid)
    before: list[float] = []
    ports: dict[int, int] = {}

    counts: dict[str, int] = {}
    with ExitStack() as stack:

        def connected() -> None:
            for place, front in enumerate(fronts):
                ports.update((port, place) for port in usage.peer_ports(front))
            stack.enter_context(_attacking(name, target, counts))
            before.extend(sum(usage.processor(front)) for front in fronts)

        times = settings.choose(0.5, 0.2), settings.choose(3.0, 0.5)
        target = attacked.xmpp if name in XMPP else attacked.mqtt
        devices = load.measure_exchanges(options, *times, gateway.pid, connected=connected)
        used = [sum(usage.processor(f)) - b for f, b in zip(fronts, before, strict=True)]
    by_front: dict[int, list[float]] = {}
    for port, latencies in devices.by_port.items():
        by_front.setdefault(ports.get(int(port), -1), []).extend(latencies)
    flooded = max(range(len(fronts)), key=lambda place: used[place], default=-1)
    others = [one for place, found in by_front.items() if place != flooded for one in found]
    memory = usage.peak(gateway.pid), max(map(usage.peak, fronts), default=0)
    everything = _slow(list(chain.from_iterable(by_front.values())))
    return Run(devices, counts, everything, _slow(by_front.get(flooded, [])), _slow(others), memory)


def _slow(latencies: Sequence[float]) -> float:
    if len(latencies) < 2:
        return 0.0
    return statistics.quantiles(latencies, n=PERCENT)[PERCENT - 2]


@contextmanager
def _attacking(name: str, target: Target, counts: dict[str, int]) -> Iterator[None]:
    """Attack in the block, and fill the counts at its end."""
    if name == QUIET:
        yield
        return
    command = [sys.executable, "-m", "benchmarks.attackers", name, target.host, str(target.port)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        limit = threading.Timer(load.MARGIN, process.kill)
        limit.start()
        try:
            assert process.stdout is not None
            if process.stdout.readline() != "attacking\n":
                raise load.LoadError(f"the attack does not begin: {' '.join(command)}")
            yield
            found, _errors = process.communicate()
            counts.update(json.loads(found))
        finally:
            limit.cancel()
            process.kill()


Found = Mapping[tuple[str, int], Sequence[Run]]


def _row(found: Found, name: str, processes: int) -> tuple[object, ...]:
    runs, quiet = found[name, processes], found[QUIET, processes]
    devices = [run.devices for run in runs]
    has_two = processes > 1
    return (
        NAMES[name],
        processes,
        milliseconds(statistics.median(one.median for one in devices)),
        milliseconds(_all(runs)),
        f"{_all(runs) / _all(quiet):.2f}",
        milliseconds(statistics.median(run.flooded for run in runs)) if has_two else "",
        milliseconds(_other(runs)) if has_two else "",
        f"{_other(runs) / _other(quiet):.2f}" if has_two and _other(quiet) else "",
        *_percents(devices),
        sum(one.errors for one in devices),
        sum(one.missing for one in devices),
    )


def _beside_row(found: Found, name: str, runs: Sequence[Run]) -> tuple[object, ...]:
    devices = [run.devices for run in runs]
    return (
        NAMES[name],
        milliseconds(statistics.median(one.median for one in devices)),
        milliseconds(_all(runs)),
        f"{_all(runs) / _all(found[QUIET, PROCESSES[-1]]):.2f}",
        *_percents(devices),
    )


def _percents(devices: Sequence[Measurement]) -> Iterator[str]:
    """Yield how much of a core the core and the fronts took."""
    for seconds in ([one.server for one in devices], [one.fronts for one in devices]):
        shares = (s / one.seconds * PERCENT for s, one in zip(seconds, devices, strict=True))
        yield number(statistics.median(shares))


def _all(runs: Sequence[Run]) -> float:
    return statistics.median(run.slow for run in runs)


def _other(runs: Sequence[Run]) -> float:
    return statistics.median(run.other for run in runs)


def _counts(found: Found, name: str, processes: int) -> tuple[object, ...]:
    runs = found[name, processes]
    done = [
        number(statistics.median(run.counts.get(what, 0) for run in runs))
        for what in ("connections", "answered", "closed", "sent")
    ]
    memory = (f"{max(run.memory[of] for run in runs) / usage.MIB:.1f}" for of in (0, 1))
    return (NAMES[name], processes, *done, *memory)


def _goals(found: Found, beside: Mapping[str, Sequence[Run]]) -> list[Goal]:
    most = PROCESSES[-1]
    goals = []
    for name in NAMES:
        if name == QUIET:
            continue
        quiet, under = _other(found[QUIET, most]), _other(found[name, most])
        ratio = under / quiet if quiet else 0.0
        text = f"devices at the other front under {name}: {ratio:.2f} times the quiet 99 %"
        floor = _all(beside[name]) / _all(found[QUIET, most])
        text += f", goal {GOAL}; {floor:.2f} times if another gateway is attacked"
        goals.append(Goal(text, reached=0 < ratio <= GOAL))
    every = (*found.values(), *beside.values())
    wrong = sum(run.devices.errors + run.devices.missing for runs in every for run in runs)
    goals.append(Goal(f"{wrong} wrong answers and missing messages", reached=not wrong))
    return goals
