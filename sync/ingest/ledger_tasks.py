"""Read a large ledger in Spark's tasks: only the rows that matter for a batch reach the driver."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from sync.ingest.ledger import Claim, Related, accepted_by, related_claims
from sync.tables.delta import Snapshot
from sync.tables.parquet_tasks import read_files
from sync.tables.spark_session import TASK_BYTES
from sync.tables.tables import SEGMENTS

_CLAIM: Final = StructType([SEGMENTS[name] for name in Claim._fields])


def related_in_tasks(
    spark: SparkSession, ledger: Snapshot, offered: Sequence[Claim], here_bytes: int = TASK_BYTES
) -> set[Claim]:
    """Return what `related_claims` returns; files of at most `here_bytes` are read here."""
    chosen, related = accepted_by(offered), Related(offered)
    sizes = ledger.segment_files_with(chosen)
    if sum(sizes.values()) <= here_bytes:
        return related_claims(ledger, offered)

    def select(path: str, rows: pa.Table) -> pa.Table:
        return related.select(rows.filter(chosen).select(Claim._fields))

    found = read_files(spark, ledger.storage, sizes, _CLAIM, select)
    return {Claim(*row) for row in found.collect()}
