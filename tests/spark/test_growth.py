from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession

from edge.config.limits import Limits
from sync.reports import growth
from sync.reports.growth import DAILY, DEFAULT_CAP, SOON_D
from sync.tables.tables import SEGMENTS
from tests.helpers.small_tables import at, event, events, named_rows, table, told

pytestmark = pytest.mark.spark

DAY = 86_400
MB = 1_000_000


def sent(gateway: str, *used: float) -> list[dict[str, Any]]:
    """Return segments, four a day, with these sizes of the folder."""
    row = {"gateway": gateway, "epoch": "E1", "fate": "accepted"}
    return [
        row
        | {"service_seconds": float(place), "sealed_at": at(place * DAY / 4)}
        | {"size": 1000 + place // 4, "disk_used": int(bytes_used)}
        for place, bytes_used in enumerate(used)
    ]


def told_of(gateway: str, when: float, kind: str, name: str, **columns: Any) -> dict[str, Any]:
    return event(gateway, lane="system", kind=kind, name=name, time=at(when), **columns)


PEAK = [100 * MB] * 5 + [400 * MB] * 3 + [100 * MB] * 8

HELD = [
    *sent("steady", *[100 * MB] * 16),
    *sent("peak", *PEAK),
    *sent("fills", *(DEFAULT_CAP - 100 * MB + place * MB for place in range(16))),
    *sent("slow", *(100 * MB + place * MB for place in range(16))),
    *sent("shrinks", *(100 * MB - place * MB for place in range(16))),
    *sent("told", *(100 * MB + place * MB for place in range(16))),
    *sent("over", *[DEFAULT_CAP] * 16),
    *sent("short", 1, 100 * MB, 200 * MB, 300 * MB),
    *sent("evicts", *[100 * MB] * 16),
    *sent("evicted", *[100 * MB] * 16),
    {**sent("evicted", 9)[0], "fate": "fork", "gateway": "fork"},
]

EVENTS = [
    *(told_of("steady", place * DAY / 2, "system", "heartbeat") for place in range(9)),
    told_of("told", 0, "system", "wear", tags={"cap": str(DEFAULT_CAP)}),
    told_of("told", DAY, "system", "wear", tags={"cap": str(150 * MB)}),
    told_of("told", 2 * DAY, "system", "wear", tags={"cap": "0"}),
    told_of("evicts", 3 * DAY, "uplink", "evicted", value=500.0),
    told_of("evicts", 4 * DAY, "uplink", "evicted"),
    told_of("evicted", 0, "uplink", "evicted", value=7.0),
    told_of("evicted", DAY + 1, "system", "heartbeat"),
]


def test_storage_that_is_full_or_soon_full_is_found(spark: SparkSession) -> None:
    days = DAILY.compute(events(spark, EVENTS))
    held = table(spark, SEGMENTS, HELD)
    rows = named_rows(growth.growth(days, held), growth.TABLE.schema)
    found = {row["gateway"]: row for row in rows}
    assert {gateway: row["state"] for gateway, row in found.items()} == {
        "steady": "ok",
        "peak": "ok",
        "fills": "soon",
        "slow": "ok",
        "shrinks": "ok",
        "told": "soon",
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
    assert [found["told"][name] for name in cap] == [115 * MB, 150 * MB, "gateway"]
    size = ("days", "shipped_day", "events_day")
    assert [found["steady"][name] for name in size] == [3, 4006, 2]
    assert [found["evicts"][name] for name in ("evicted", "last_evicted")] == [501, 4 * DAY]
    ours = growth.growth(days, held, 116 * MB).where("gateway in ('slow', 'told')")
    assert told(ours, "cap", "cap_from", "state") == [(116 * MB, "operator", "soon")] * 2


def test_the_default_limit_is_the_gateways_default() -> None:
    assert Limits().database_bytes == DEFAULT_CAP
