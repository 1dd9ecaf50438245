"""A gateway that ships extreme values: the report is written, and correct for all others."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sync.common.fleet_folder import FleetFolder
from sync.segment import Dropped, Event
from tests.helpers.fleet_command import Command
from tests.helpers.fleet_tables import LATER_EPOCH, NOON, Lane, land, some_events
from tests.helpers.local_ingest import ingest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


pytestmark = pytest.mark.spark

LIAR, MOST, FIGURE = "liar.example", 2**63 - 1, 1.7e308


def extreme_events() -> Iterator[Event]:
    """Yield events of every name that reports read, with extreme values."""
    kinds = {
        "system": ("heartbeat", "start", "clock_stepped", "clock_synchronised", "{"),
        "queue": ("depth", "dead", "lock_timeout", "{"),
        "message": ("repeated", "dead", "{"),
        "limit": ("rate", "{"),
        "uplink": ("evicted", "{"),
        "reading": ("{",),
    }
    tags = dict.fromkeys(("delivered", "delayed", "members", "dead", "oldest", "cap"), "9" * 30)
    for kind, names in kinds.items():
        for name in names:
            for value in (FIGURE, FIGURE, -FIGURE, -FIGURE):
                yield Event(
                    *(1, NOON, True, kind, "p@liar.example/x", "jobs", name, value, "{", "Error"),
                    qos=2,
                    latency_ms=MOST,
                    tags=tags,
                )


@pytest.mark.long
def test_extreme_values_of_one_gateway_do_not_affect_the_report_of_others(
    spark: SparkSession, fleet: FleetFolder, tmp_path: Path, command_in_process: Command
) -> None:
    land(fleet, Lane().seal(some_events(10)), at=NOON / 1000 + 60)
    for name in ("system", "readings"):
        lane = Lane(LIAR, name)
        land(fleet, lane.seal(list(extreme_events())), at=NOON / 1000 + 60)
        last = Lane(LIAR, name, LATER_EPOCH, MOST - 10)
        dropped = (Dropped(1, MOST, "backlog"), Dropped(2, MOST, "backlog"))
        ends = [Event(1, at, True, "system", name="stop") for at in (-62_135_596_800_000, NOON)]
        land(fleet, last.seal(ends * 5, dropped), at=NOON / 1000 + 61)
    ingest(fleet)

    out = tmp_path / "out"
    day = datetime.fromtimestamp(NOON / 1000, UTC).date().isoformat()
    done = command_in_process("report", "--dir", str(fleet.root), "--out", str(out), "--since", day)
    assert done.returncode == 0
    assert spark.conf.get("spark.sql.ansi.enabled") == "true"
    tables = json.loads((out / "report.json").read_text())["tables"]
    [lane_row] = [row for row in tables["completeness"] if row["gateway"] != LIAR]
    assert (lane_row["received"], lane_row["unexplained"]) == (10, 0)
    assert LIAR in {row["gateway"] for row in tables["completeness"]}
    assert "Infinity" not in (out / "report.json").read_text()
    assert "NaN" not in (out / "report.json").read_text()
