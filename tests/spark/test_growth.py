from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession

from edge.config.limits import Limits
from sync.reports import growth
from sync.reports.growth import DAILY, DEFAULT_CAP, SOON_D
from sync.tables.tables import SEGMENTS
from tests.helpers.small_tables import at, event, events, named_rows, report_rows, table

pytestmark = pytest.mark.spark

DAY = 86_400
MB = 1_000_000


def segment_rows(gateway: str, *used: float) -> list[dict[str, Any]]:
    """Return segments, four a day, with these sizes of the folder."""
    row = {"gateway": gateway, "epoch": "E1", "fate": "accepted"}
    return [
        row
        | {"service_seconds": float(place), "sealed_at": at(place * DAY / 4)}
        | {"size": 1000 + place // 4, "disk_used": int(bytes_used)}
        for place, bytes_used in enumerate(used)
    ]


def system_row(gateway: str, when: float, kind: str, name: str, **columns: Any) -> dict[str, Any]:
    return event(gateway, lane="system", kind=kind, name=name, time=at(when), **columns)


PEAK = [100 * MB] * 5 + [400 * MB] * 3 + [100 * MB] * 8

SEGMENT_ROWS = [
    *segment_rows("steady", *[100 * MB] * 16),
    *segment_rows("peak", *PEAK),
    *segment_rows("fills", *(DEFAULT_CAP - 100 * MB + place * MB for place in range(16))),
    *segment_rows("slow", *(100 * MB + place * MB for place in range(16))),
    *segment_rows("shrinks", *(100 * MB - place * MB for place in range(16))),
    *segment_rows("reported", *(100 * MB + place * MB for place in range(16))),
    *segment_rows("over", *[DEFAULT_CAP] * 16),
    *segment_rows("short", 1, 100 * MB, 200 * MB, 300 * MB),
    *segment_rows("evicts", *[100 * MB] * 16),
    *segment_rows("evicted", *[100 * MB] * 16),
    {**segment_rows("evicted", 9)[0], "fate": "fork", "gateway": "fork"},
]

EVENTS = [
    *(system_row("steady", place * DAY / 2, "system", "heartbeat") for place in range(9)),
    system_row("reported", 0, "system", "wear", tags={"cap": str(DEFAULT_CAP)}),
    system_row("reported", DAY, "system", "wear", tags={"cap": str(150 * MB)}),
    system_row("reported", 2 * DAY, "system", "wear", tags={"cap": "0"}),
    system_row("evicts", 3 * DAY, "uplink", "evicted", value=500.0),
    system_row("evicts", 4 * DAY, "uplink", "evicted"),
    system_row("evicted", 0, "uplink", "evicted", value=7.0),
    system_row("evicted", DAY + 1, "system", "heartbeat"),
]


def test_storage_that_is_full_or_soon_full_is_found(spark: SparkSession) -> None:
    days = DAILY.compute(events(spark, EVENTS))
    segments = table(spark, SEGMENTS, SEGMENT_ROWS)
    rows = named_rows(growth.growth(days, segments), growth.TABLE.schema)
    found = {row["gateway"]: row for row in rows}
    assert {gateway: row["state"] for gateway, row in found.items()} == {
        "steady": "ok",
        "peak": "ok",
        "fills": "soon",
        "slow": "ok",
        "shrinks": "ok",
        "reported": "soon",
        "over": "full",
        "short": "ok",
        "evicts": "full",
        "evicted": "ok",
    }
    trend = ("trend_day", "trend_low", "trend_high", "days_left", "days_low", "days_high")
    assert [found["fills"][name] for name in trend] == [4 * MB] * 3 + [21.3] * 3
    assert [found["steady"][name] for name in trend] == [0, 0, 0, None, None, None]
    assert [found["short"][name] for name in trend] == [None] * 6
    assert found["peak"]["trend_day"] == 0
    assert found["slow"]["days_left"] > SOON_D
    cap = ("disk_used", "cap", "cap_from")
    assert [found["slow"][name] for name in cap] == [115 * MB, DEFAULT_CAP, "default"]
    assert [found["reported"][name] for name in cap] == [115 * MB, 150 * MB, "gateway"]
    size = ("days", "shipped_day", "events_day")
    assert [found["steady"][name] for name in size] == [3, 4006, 2]
    assert [found["evicts"][name] for name in ("evicted", "last_evicted")] == [501, 4 * DAY]
    ours = growth.growth(days, segments, 116 * MB).where("gateway in ('slow', 'reported')")
    assert report_rows(ours, "cap", "cap_from", "state") == [(116 * MB, "operator", "soon")] * 2


def test_the_default_limit_is_the_gateways_default() -> None:
    assert Limits().database_bytes == DEFAULT_CAP
