"""Divide the rows of the reports by gateway: in this process, or in Spark's tasks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sync.reports.shared.findings import Findings, Rows
from sync.reports.shared.registry import REPORTS
from sync.reports.shared.report import Report, Series, gateway_of
from sync.tables.partitions import union

GATEWAYS_A_TASK: Final = 16
"""Gateways of a task: drawing their pages takes some seconds, starting a task milliseconds."""

_OWNERS: Final = {report.name: report.gateways_of for report in REPORTS}

_PLACE: Final = "place"


def by_gateway(findings: Findings) -> dict[str, Findings]:
    """Divide the findings by gateway, sorted by name; rows without a gateway are left out."""
    divided: dict[str, dict[str, Rows]] = {}
    for name, rows in findings.tables.items():
        owners = _OWNERS.get(name, gateway_of)
        for row in rows:
            for gateway in owners(row):
                divided.setdefault(gateway, {}).setdefault(name, []).append(row)
    return {gateway: replace(findings, tables=own) for gateway, own in sorted(divided.items())}


def is_divisible(part: Report | Series, rows: DataFrame) -> bool:
    """Return whether Spark can divide the rows of a part by their column `gateway`."""
    return "gateway" in rows.columns and _OWNERS.get(part.name, gateway_of) is gateway_of


class SpreadRows(NamedTuple):
    """The rows of a large fleet that stay with Spark, by the name of their part."""

    spark: SparkSession
    frames: Mapping[str, DataFrame]

    def for_each(
        self,
        findings: Findings,
        gateways: Sequence[str],
        call: Callable[[str, Findings], object],
    ) -> None:
        """Call a function with each of these gateways and its findings, in Spark's tasks.

        The gateways' findings are those that `by_gateway` would return. `findings` has the rows of
        the parts that Spark cannot divide, which are few. `call` is pickled; it is called again for
        the gateways of a task that fails or is too slow.
        """
        fleet = replace(findings, tables={})
        undivided = {
            name: each for name, each in findings.tables.items() if name not in self.frames
        }
        few = by_gateway(replace(fleet, tables=undivided))
        few = {gateway: few[gateway] for gateway in gateways if gateway in few}
        names = list(self.frames)

        def visit(rows: pa.Table) -> pa.Table:
            gateway = rows["gateway"][0].as_py()
            rows = rows.sort_by(_PLACE)
            own = {name: rows[name].drop_null().to_pylist() for name in names}
            tables = {name: each for name, each in own.items() if each}
            tables |= few.get(gateway, fleet).tables
            call(gateway, replace(fleet, tables=tables).finite())
            return rows.select(["gateway"]).slice(0, 1)

        listed = self.spark.createDataFrame([(each,) for each in gateways], "gateway string")
        numbered = [
            frame.select(
                "gateway",
                F.monotonically_increasing_id().alias(_PLACE),
                F.struct("*").alias(name),
            )
            for name, frame in self.frames.items()
        ]
        wanted = union(listed, *numbered).join(F.broadcast(listed), on="gateway", how="leftsemi")
        divided = wanted.repartition(-(-len(gateways) // GATEWAYS_A_TASK), "gateway")
        divided.groupBy("gateway").applyInArrow(visit, "gateway string").count()


Visit = Callable[[Findings, SpreadRows], None]
"""Takes the findings of a large fleet, without the rows that only the page of one gateway shows,
and the rows that stay with Spark."""
