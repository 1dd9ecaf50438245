"""Compare a fleet's report and tables with the truth about its simulation, without Spark."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import duckdb

from sync.common.fleet_folder import FleetFolder
from sync.tables.delta import local_tables
from tests.helpers import fleet_figures, fleet_planted

SUMS = """
SELECT source, name, count(*), sum(value::DECIMAL(20, 6))::VARCHAR FROM read_parquet(?)
WHERE kind = 'reading' GROUP BY source, name
"""

SHIPPED = "SELECT gateway, sum(size) FROM read_parquet(?) WHERE fate = 'accepted' GROUP BY gateway"


class FleetReport(NamedTuple):
    """The truth about a simulated fleet, and what the centre has made of its segments.

    `report` is report.json. By the tables, `sums` has the number of readings of each sensor (source
    and name) and their sum, and `shipped` the bytes of each gateway's accepted segments.
    """

    truth: dict[str, Any]
    report: dict[str, Any]
    sums: dict[tuple[str, str], tuple[int, str]]
    shipped: dict[str, int]

    @classmethod
    def of(cls, fleet: FleetFolder, truth: dict[str, Any], report: dict[str, Any]) -> FleetReport:
        """Read what is needed of a fleet's tables."""
        snapshot = local_tables(fleet.tables).snapshot()
        events, segments = (
            [[str(fleet.tables / path) for path in paths]]
            for paths in (snapshot.event_files, snapshot.segment_files)
        )
        with duckdb.connect() as connection:
            values = connection.execute(SUMS, events).fetchall()
            sizes = connection.execute(SHIPPED, segments).fetchall()
        sums = {(source, name): (number, total) for source, name, number, total in values}
        return cls(truth, report, sums, {gateway: int(size) for gateway, size in sizes})

    def checks(
        self, repeats: Counter[tuple[str, str, str]] | None = None
    ) -> dict[str, Callable[[], None]]:
        """Return functions that compare all figures and all problems with the truth, by name.

        `repeats` has the number of segments that landed once more, by gateway, epoch and lane.
        """
        landed, truth, report = repeats or Counter(), self.truth, self.report
        tables = report["tables"]
        figures, faults = fleet_figures, fleet_planted
        return {
            "totals": lambda: figures.check_totals(truth, report, landed.total()),
            ", ".join(table for table, _ in figures.PLAIN_TABLES.values()): (
                lambda: figures.check_tables(truth, tables)
            ),
            "completeness": lambda: figures.check_completeness(truth, tables, landed),
            "duplicates": lambda: figures.check_duplicates(truth, tables, landed),
            "refusals": lambda: figures.check_refusals(truth, tables),
            "sensors": lambda: figures.check_sensors(truth, tables, self.sums),
            "lag": lambda: figures.check_lag(truth, tables),
            "growth": lambda: figures.check_growth(truth, tables, self.shipped),
            "versions": lambda: figures.check_versions(truth, tables),
            "quarantine": lambda: figures.check_quarantine(truth, tables),
            "problems": lambda: faults.check_problems(truth, report),
            "times of problems": lambda: faults.check_times(truth, report),
        }

    def check(self, repeats: Counter[tuple[str, str, str]] | None = None) -> None:
        """Compare all; `repeats` is that of `checks`."""
        for compare in self.checks(repeats).values():
            compare()
