"""The ingest with Spark and the one without it make the same tables."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.sql import SparkSession

from sync.common.fleet_folder import FleetFolder
from sync.segment.limits import MAX_TIME, MIN_TIME
from tests.helpers.faulty_landing import FaultyLanding
from tests.helpers.fleet_tables import NOON, Lane, fleet_folder, land, put, some_events
from tests.helpers.local_ingest import ingest, ingest_by_spark
from tests.helpers.stored_rows import stored_rows

pytestmark = pytest.mark.spark

BATCH_FILES = 12
"""Files in a batch: few, so that there are several batches."""

EXTREME = (1.7976931348623157e308, -5e-324, 0.1, 2.0**53 + 2, -0.0)
TEXTS = ("", "\x00", "a\u2028b", "x" * 70_000, "\U0001f6f0 ünï", "-inf")


def fill_landing(fleet: FleetFolder, dice: Random) -> Iterator[None]:
    """Fill the landing with files of every kind; yield so that the caller ingests them."""
    landing = FaultyLanding(fleet, dice)
    lanes = {name: Lane(gateway="odd.example", lane=name) for name in ("readings", "logs")}
    for number in count():
        landing.fill()
        at = NOON / 1000 + 364.5 * 86_400 + number * 1_000
        odd = [
            event._replace(
                time=dice.choice((MIN_TIME, -1, 0, NOON, MAX_TIME)),
                value=dice.choice(EXTREME),
                name=dice.choice(TEXTS),
                text=dice.choice(TEXTS),
                tags={key: dice.choice(TEXTS) for key in dice.sample(TEXTS[2:], 2)},
            )
            for event in some_events(20)
        ]
        for lane in lanes.values():
            sealed = lane.seal(odd)
            land(fleet, sealed, at=at + 0.001)
            put(fleet.landing / "copy" / f"{lane.lane}{number}.seg", sealed[1], at=at + 0.0019)
        clone = Lane(gateway="odd.example", next_seq=2 + number, previous=b"\x01" * 32)
        put(fleet.landing / "clone" / f"{number}.seg", clone.seal(some_events(3))[1], at=at + 5)
        put(fleet.landing / "bad" / f"empty{number}.seg", b"", at=at + 6)
        put(fleet.landing / "bad" / f"spoiled{number}.seg", dice.randbytes(300), at=at + 7)
        spread = lanes["logs"].seal(some_events(40, step_ms=86_400_000))
        land(fleet, spread, at=at + 8)
        aside = Lane().seal(some_events(2, start=NOON + number))
        put(fleet.aside / "gw.example" / "e" / "logs" / f"1-2.{number:04}.seg", aside[1], at=at + 9)
        yield


def test_both_ingests_make_the_same_tables(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    """The files of the second round have to be compared with the ledger."""
    local, by_spark = (fleet_folder(tmp_path / name) for name in ("local", "spark"))
    fills = fill_landing(local, Random(seed))
    for _ in range(2):
        next(fills)
        for folder in ("landing", "aside"):
            shutil.copytree(local.root / folder, by_spark.root / folder, dirs_exist_ok=True)
        result = ingest(local, batch_files=BATCH_FILES)
        assert result == ingest_by_spark(spark, by_spark, batch_files=BATCH_FILES)
        for local_rows, spark_rows in zip(comparable(local), comparable(by_spark), strict=True):
            assert len(local_rows) == len(spark_rows)
            for one, other in zip(local_rows, spark_rows, strict=True):
                assert {name: other[name] for name in one if one[name] != other[name]} == {}, one
        assert files(local) == files(by_spark)


def comparable(fleet: FleetFolder) -> tuple[list[dict[str, Any]], ...]:
    """Return the rows of both tables; tags, which have no order, are sorted."""
    events, segments = stored_rows(fleet)
    tagged = [
        row | {"tags": sorted(row["tags"] or ()), "value": repr(row["value"])} for row in events
    ]
    return tagged, segments


def files(fleet: FleetFolder) -> set[str]:
    found = fleet.root.rglob("*.seg")
    return {path.relative_to(fleet.root).as_posix() for path in found}
