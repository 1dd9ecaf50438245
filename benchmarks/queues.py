"""Benchmark: queues with and without a backlog, fan-out, filters, and start with a backlog."""

from __future__ import annotations

import statistics
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks import backlog as waiting
from benchmarks import load, server, usage
from benchmarks.exchanges import saturated
from benchmarks.load import Measurement
from benchmarks.queue_payload import TOPIC
from benchmarks.report import Goal, Settings, Topic, milliseconds, number, table
from edge import topics

WORKERS: Final = (1, 10, 100)
REQUESTS: Final = 5
"""Items that a worker takes at a time."""

BACKLOG: Final = 100_000
ROUNDS: Final = 10
"""Pairs of measurements, with a backlog and without."""

PAIRED_WORKERS: Final = 10
SUBSCRIBERS: Final = 200
FILTERS: Final = 10_000
MATCH_ROUNDS: Final = 5
WAITING: Final = 1_000_000
STARTS: Final = 3

BACKLOG_AIM: Final = 0.8
"""Required ratio of the rate with a backlog to the rate without."""

BACKLOG_MEMORY: Final = 5_000_000
"""Bytes of memory that a backlog may cost."""

START_AIM: Final = 5.0
"""Seconds to `ready` with a million waiting items."""

START_MEMORY: Final = 20_000_000
"""Bytes of memory that a million waiting items may cost at `ready`."""

RAISED: Final = {
    "queue_items": "4000000",
    "items_per_queue": "4000000",
    "queue_bytes": "8589934592",
    "queue_bytes_per_queue": "8589934592",
    "database_bytes": "17179869184",
    "subscriptions": "100000",
    "unsealed_events": "1000000000",
}
"""Options that differ from the defaults, to make room for the backlog."""


class Part(NamedTuple):
    """A part of the page: paragraphs and tables, and its goals."""

    blocks: tuple[str, ...]
    goals: tuple[Goal, ...] = ()


def measure(settings: Settings) -> Topic:
    """Measure all parts, one after the other."""
    usage.raise_descriptors()
    parts = [part(settings) for part in (_workers, _backlog, _fan_out, _matching, _restart)]
    blocks = [block for part in parts for block in part.blocks]
    goals = [goal for part in parts for goal in part.goals]
    return Topic("queues", "Queues, filters and fan-out", blocks, goals)


def _prepare(settings: Settings, name: str, devices: int, items: int = 0, filters: int = 0) -> Path:
    folder = settings.folder / name
    server.prepare(folder, devices, **RAISED)
    waiting.make_nodes(folder)
    waiting.add_items(folder, items)
    waiting.add_filters(folder, filters)
    return folder


def _run_workers(
    settings: Settings, gateway: server.Server, workers: int, *, backlog: bool = False
) -> Measurement:
    host, port, _ca = gateway.address
    times = settings.choose(1.0, 0.2), settings.choose(5.0, 0.4)
    plan = load.Plan(host, port, workers, *times, gateway.pid, REQUESTS, backlog)
    return load.run("benchmarks.queue_load", plan)


def _workers(settings: Settings) -> Part:
    folder = _prepare(settings, "workers", 2 * max(WORKERS))
    with server.gateway(folder) as gateway:
        found = [(workers, _run_workers(settings, gateway, workers)) for workers in WORKERS]
    return Part(
        (
            "Each item is published to a queue node, assigned to a worker and locked, and"
            f" deleted by the worker, which receives a confirmation. Each worker takes {REQUESTS}"
            " items at a time, and there are as many publishers as workers. The latency is from"
            " the publication to the confirmation of the deletion. Event loop and database are"
            " in % of a core.",
            table(
                ("workers", "items/s", "median, ms", "99 %, ms", *_USAGE_COLUMNS),
                [
                    (workers, number(run.rate), milliseconds(run.median), milliseconds(run.slow),
                     *_usage_cells(run))
                    for workers, run in found
                ],
            ),
        )
    )  # fmt: skip


_USAGE_COLUMNS: Final = ("event loop", "database", "saturated")


def _usage_cells(run: Measurement) -> tuple[str, str, str]:
    shares = (100 * used / run.seconds for used in (run.server_main, run.server_others))
    return (*(f"{share:.0f}" for share in shares), saturated(run))  # type: ignore[return-value]


def _backlog(settings: Settings) -> Part:
    items = round(settings.choose(BACKLOG, 500))
    empty = _prepare(settings, "empty", 2 * PAIRED_WORKERS)
    full = _prepare(settings, "full", 2 * PAIRED_WORKERS, items)
    without: list[Measurement] = []
    behind: list[Measurement] = []
    with server.gateway(empty) as idle, server.gateway(full) as busy:
        for _ in range(round(settings.choose(ROUNDS, 1))):
            without.append(_run_workers(settings, idle, PAIRED_WORKERS))
            behind.append(_run_workers(settings, busy, PAIRED_WORKERS, backlog=True))
        memory = usage.memory(busy.pid).rss - usage.memory(idle.pid).rss
    ratios = [a.rate / b.rate for a, b in zip(behind, without, strict=True)]
    ratio = statistics.median(ratios)
    rates = (statistics.median(run.rate for run in runs) for runs in (without, behind))
    sizes = ", ".join(f"{one:.2f}" for one in sorted(ratios))
    return Part(
        (
            f"The same rate with {PAIRED_WORKERS} workers, and a backlog of {items:,} waiting"
            f" items, in {len(ratios)} alternating pairs: one gateway has the backlog, another"
            " one has none. Values are medians.",
            table(
                ("", "items/s"),
                zip(("no backlog", f"{items:,} waiting items"), map(number, rates), strict=True),
            ),
            f"Ratios: {sizes}. The backlog changes the resident memory by {memory / 1e6:+.1f} MB.",
        ),
        (
            Goal(
                f"the rate with a backlog is {ratio:.2f} of the rate without (goal: {BACKLOG_AIM})",
                ratio >= BACKLOG_AIM,
            ),
            Goal(
                f"a backlog takes {memory / 1e6:.1f} MB (goal: at most {BACKLOG_MEMORY / 1e6:.0f})",
                memory <= BACKLOG_MEMORY,
            ),
        ),
    )


def _run_fan_out(settings: Settings, gateway: server.Server, subscribers: int) -> Measurement:
    host, port, _ca = gateway.address
    times = settings.choose(1.0, 0.2), settings.choose(4.0, 0.4)
    return load.run("benchmarks.fan_load", load.Plan(host, port, subscribers, *times, gateway.pid))


def _fan_out(settings: Settings) -> Part:
    subscribers = round(settings.choose(SUBSCRIBERS, 10))
    folder = _prepare(settings, "fan", subscribers + 1)
    with server.gateway(folder) as gateway:
        run = _run_fan_out(settings, gateway, subscribers)
    return Part(
        (
            f"One publication to {subscribers} subscribers at level 0, each with a connection of"
            " its own; the next publication starts when all have received it.",
            table(
                ("publications/s", "notifications/s", "median, ms", "99 %, ms", *_USAGE_COLUMNS),
                [
                    (number(run.rate), number(run.rate * subscribers), milliseconds(run.median),
                     milliseconds(run.slow), *_usage_cells(run))
                ],
            ),
        )
    )  # fmt: skip


def _matching(settings: Settings) -> Part:
    filters = round(settings.choose(FILTERS, 300))
    folders = [_prepare(settings, f"filters{count}", 2, filters=count) for count in (0, filters)]
    rounds = range(round(settings.choose(MATCH_ROUNDS, 1)))
    with server.gateway(folders[0]) as none, server.gateway(folders[1]) as many:
        runs = [(_run_fan_out(settings, none, 1), _run_fan_out(settings, many, 1)) for _ in rounds]
    trie, scan = _match_times(filters)
    ratio = statistics.median(with_.rate / without.rate for without, with_ in runs)
    return Part(
        (
            "Publications to one subscriber, while accounts without a session are subscribed to"
            f" topic filters that do not match, in {len(runs)} alternating pairs. In memory, the"
            f" tree of {filters:,} filters finds the matches in {trie * 1e6:.1f} us; comparing the"
            f" name with each filter would take {scan * 1e6:,.0f} us.",
            table(
                ("filters", "publications/s", "median, ms"),
                [
                    (f"{count:,}", number(statistics.median(run.rate for run in found)),
                     milliseconds(statistics.median(run.median for run in found)))
                    for count, found in zip((0, filters), zip(*runs, strict=True), strict=True)
                ],
            ),
            f"Ratio of the rates: median {ratio:.2f}.",
        )
    )  # fmt: skip


def _match_times(count: int) -> tuple[float, float]:
    """Return the seconds that the filter tree takes to match a name, and that a scan takes."""
    filters = [waiting.FILTERS[n % len(waiting.FILTERS)].format(n=n) for n in range(count)]
    tree: topics.Trie[int] = topics.Trie()
    for value, one in enumerate(filters):
        tree.add(one, value)
    began = time.perf_counter()
    for _ in range(1000):
        tree.match(TOPIC)
    matched = time.perf_counter()
    for _ in range(3):
        [one for one in filters if topics.matches(one, TOPIC)]
    return (matched - began) / 1000, (time.perf_counter() - matched) / 3


class Start(NamedTuple):
    """Seconds to `ready`, and the resident bytes then."""

    seconds: float
    rss: int


def _restart(settings: Settings) -> Part:
    items = round(settings.choose(WAITING, 1000))
    folders = [_prepare(settings, "none", 4), _prepare(settings, "million", 4, items)]
    starts: list[list[Start]] = [[], []]
    for _ in range(round(settings.choose(STARTS, 1))):
        for folder, found in zip(folders, starts, strict=True):
            found.append(_start(folder))
    with ExitStack() as stack:
        gateway = stack.enter_context(server.gateway(folders[1]))
        worked = _run_workers(settings, gateway, 1, backlog=True)
    none, many = (
        Start(statistics.median(s.seconds for s in found), max(s.rss for s in found))
        for found in starts
    )
    more = many.rss - none.rss
    return Part(
        (
            f"Start of a gateway with {items:,} waiting items, in a database of"
            f" {(folders[1] / 'fieldpost.db').stat().st_size / 1e6:,.0f} MB; medians of"
            f" {len(starts[0])}. Afterwards one worker processes {number(worked.rate)} items per"
            " second.",
            table(
                ("waiting items", "ready after, s", "RSS, MB"),
                [
                    (name, number(found.seconds), f"{found.rss / 1e6:.1f}")
                    for name, found in (("none", none), (f"{items:,}", many))
                ],
            ),
        ),
        (
            Goal(
                f"ready in {many.seconds:.2f} s with {items:,} waiting items (goal: less than"
                f" {START_AIM:.0f})",
                many.seconds < START_AIM,
            ),
            Goal(
                f"{items:,} waiting items take {more / 1e6:.1f} MB at the start (goal: at most"
                f" {START_MEMORY / 1e6:.0f})",
                more <= START_MEMORY,
            ),
        ),
    )


def _start(folder: Path) -> Start:
    began = time.perf_counter()
    with server.gateway(folder) as gateway:
        return Start(time.perf_counter() - began, usage.memory(gateway.pid).rss)
