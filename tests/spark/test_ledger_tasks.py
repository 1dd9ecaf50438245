"""Spark's tasks select the same claims of the ledger as the driver does."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from pyspark.sql import SparkSession

from sync.ingest.ledger import Claim, related_claims
from sync.ingest.ledger_tasks import related_in_tasks
from tests.helpers.committed import Committer

pytestmark = pytest.mark.spark

BATCHES, FILES, OFFERED = 3, 40, 20


def test_tasks_and_the_driver_read_the_same_claims(
    spark: SparkSession, tmp_path: Path, seed: int
) -> None:
    chance = Random(seed)

    def claim(number: int) -> Claim:
        first = chance.randrange(200_000)
        gateway, previous = chance.choice(("a", "b", "c")), f"p{chance.randrange(50)}"
        return Claim(gateway, "e", "logs", first, first + 500, f"d{number}", previous)

    committer = Committer(tmp_path)
    for batch in range(BATCHES):
        rows = [claim(FILES * batch + each)._asdict() for each in range(FILES)]
        fates = chance.choices(("accepted", "fork"), k=FILES)
        committer.commit([], [row | {"fate": fate} for row, fate in zip(rows, fates, strict=True)])
    ledger = committer.tables.snapshot()
    offered = [claim(-each) for each in range(OFFERED)]
    found = related_in_tasks(spark, ledger, offered, here_bytes=0)
    assert found == related_claims(ledger, offered)
    assert found
    assert related_in_tasks(spark, ledger, offered) == found
