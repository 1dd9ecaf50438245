from __future__ import annotations

import itertools
from typing import Any

import pytest
from pyspark.sql import SparkSession

from sync.reports import queues
from sync.reports.queues import DAILY, DAILY_DONE
from sync.reports.shared.thresholds import DEPTH_EVENT_S, DEPTH_GAP_S, STUCK_S
from tests.helpers.small_tables import START, at, event, events, named_rows, report_rows, table

pytestmark = pytest.mark.spark

STEP = int(DEPTH_EVENT_S)
MIDNIGHT = 12 * 3600
BEFORE = MIDNIGHT - 4 * STEP
"""Seconds after the tables' START; a run of events from here on crosses midnight."""


def depths(queue: str, *samples: tuple[float, float, dict[str, Any]]) -> list[dict[str, Any]]:
    """Return depth events of a queue: time, number of items, tags."""
    row = event(epoch="E1", lane="system", kind="queue", name="depth", topic=queue)
    return [
        row
        | {"seq": place, "time": at(when), "value": float(value)}
        | {"tags": {key: str(one) for key, one in tags.items()}}
        for place, (when, value, tags) in enumerate(samples)
    ]


def every(start: float, count: int, value: float = 3, **tags: Any) -> list[tuple[Any, ...]]:
    return [(start + STEP * place, value, {"delivered": 0, **tags}) for place in range(count)]


def queue_event(kind: str, name: str, value: float | None = None, **columns: Any) -> dict[str, Any]:
    row = event(lane="system", kind=kind, name=name, value=value, topic="jobs")
    return row | columns


CASES = {
    "stuck beyond midnight": depths("a", *every(BEFORE, 8, oldest_s=7, members=2, ready=3)),
    "not yet": depths("b", *every(BEFORE, int(STUCK_S) // STEP)),
    "worked off": depths("c", *every(0, 8), (8 * STEP, 2, {"delivered": 1, "redelivered": 1})),
    "emptied, then stuck": depths(
        "d", *every(0, 9, 5), (9 * STEP, 0, {}), *every(MIDNIGHT, 7, 1, dead=4, timeouts=2)
    ),
    "the gateway was off": depths("e", *every(0, 4), *every(3 * STEP + DEPTH_GAP_S + 1, 4)),
    "only delayed ones": depths("f", *every(0, 9, 3, delayed=3)),
    "tags that are no numbers": depths("g", (0, 1e300, {"delivered": "x", "dead": "-1"})),
}


def test_stuck_queues_are_found_and_no_others(spark: SparkSession) -> None:
    other = [
        queue_event("message", "queue_dead", topic="a"),
        queue_event("message", "queue_dead", topic="a"),
        queue_event("message", "share_items_dead", 3.0),
        queue_event("queue", "purged", 5.0),
        queue_event("queue", "unlocked", 1.0),
        queue_event("queue", "requeued", 2.0, time=at(MIDNIGHT)),
        queue_event("message", "requeued", 9.0),
        queue_event("queue", "purged", 9.0, lane="logs"),
    ]
    rows = events(spark, [*itertools.chain(*CASES.values()), *other])
    report = queues.queues(DAILY.compute(rows), DAILY_DONE.compute(rows))
    found = named_rows(report, queues.TABLE.schema)

    def select(*columns: str) -> list[tuple[Any, ...]]:
        return [tuple(row[name] for name in columns) for row in found]

    assert select("queue", "state", "since", "stuck", "recovered", "longest_stuck_s") == [
        ("a", "stuck", BEFORE, 1, 0, 7 * STEP),
        ("b", "ok", None, 0, 0, None),
        ("c", "ok", None, 1, 1, 7 * STEP),
        ("d", "stuck", MIDNIGHT, 2, 1, 8 * STEP),
        ("e", "ok", None, 0, 0, None),
        ("f", "ok", None, 0, 0, None),
        ("g", "idle", None, 0, 0, None),
        ("jobs", "unknown", None, 0, 0, None),
    ]
    assert select("depth", "depth_max", "ready", "delayed", "dead", "oldest_s", "members")[:7] == [
        (3, 3, 3, None, None, 7, 2),
        (3, 3, None, None, None, None, None),
        (2, 3, None, None, None, None, None),
        (1, 5, None, None, 4, None, None),
        (3, 3, None, None, None, None, None),
        (3, 3, None, 3, None, None, None),
        (0, 0, None, None, None, None, None),
    ]
    assert select("delivered", "redelivered", "timeouts") == [
        *[(0, 0, 0)] * 2,
        (1, 1, 0),
        (0, 0, 14),
        *[(0, 0, 0)] * 4,
    ]
    assert select("dead_items", "purged", "unlocked", "requeued") == [
        (2, 0, 0, 0),
        *[(0, 0, 0, 0)] * 6,
        (3, 5, 1, 2),
    ]
    assert found[0]["last_told"] == BEFORE + 7 * STEP


def test_the_greatest_and_the_last_depth_of_each_run_are_plotted(spark: SparkSession) -> None:
    run = {"gateway": "gw", "queue": "q"}
    rows = [
        run | {"begin": at(0), "end": at(900), "depth": 2, "depth_max": 5},
        run | {"begin": at(1200), "end": at(1200), "depth": 0, "depth_max": 0},
    ]
    depths = report_rows(queues.queue_depths(table(spark, queues.RUNS, rows)), "at", "depth")
    zero = START.timestamp()
    assert [(when - zero, depth) for when, depth in depths] == [(0, 5), (900, 2), (1200, 0)]
