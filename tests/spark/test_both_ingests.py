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
from tests.helpers.faulty_landing import RoughLanding
from tests.helpers.fleet_tables import NOON, Lane, fleet_folder, land, put, some_events
from tests.helpers.local_ingest import ingest, ingest_by_spark
from tests.helpers.stored_rows import stored_rows

pytestmark = pytest.mark.spark

BATCH_FILES = 12
"""Files in a batch: few, so that there are several batches."""

EXTREME = (1.7976931348623157e308, -5e-324, 0.1, 2.0**53 + 2, -0.0)
WORDS = ("", "\x00", "a\u2028b", "x" * 70_000, "\U0001f6f0 ünï", "-inf")


def hostile(fleet: FleetFolder, dice: Random) -> Iterator[None]:
    """Fill the landing with everything that a landing may have; yield to have it ingested."""
    landing = RoughLanding(fleet, dice)
    lanes = {name: Lane(gateway="odd.example", lane=name) for name in ("readings", "logs")}
    for turn in count():
        landing.fill()
        at = NOON / 1000 + 364.5 * 86_400 + turn * 1_000
        odd = [
            event._replace(
                time=dice.choice((MIN_TIME, -1, 0, NOON, MAX_TIME)),
                value=dice.choice(EXTREME),
                name=dice.choice(WORDS),
                text=dice.choice(WORDS),
                tags={word: dice.choice(WORDS) for word in dice.sample(WORDS[2:], 2)},
            )
            for event in some_events(20)
        ]
        for lane in lanes.values():
            sealed = lane.seal(odd)
            land(fleet, sealed, at=at + 0.001)
            put(fleet.landing / "copy" / f"{lane.lane}{turn}.seg", sealed[1], at=at + 0.0019)
        clone = Lane(gateway="odd.example", next_seq=2 + turn, previous=b"\x01" * 32)
        put(fleet.landing / "clone" / f"{turn}.seg", clone.seal(some_events(3))[1], at=at + 5)
        put(fleet.landing / "bad" / f"empty{turn}.seg", b"", at=at + 6)
        put(fleet.landing / "bad" / f"spoiled{turn}.seg", dice.randbytes(300), at=at + 7)
        spread = lanes["logs"].seal(some_events(40, step_ms=86_400_000))
        land(fleet, spread, at=at + 8)
        aside = Lane().seal(some_events(2, start=NOON + turn))
        put(fleet.aside / "gw.example" / "e" / "logs" / f"1-2.{turn:04}.seg", aside[1], at=at + 9)
        yield


def test_both_make_the_same_tables(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    """First all at once, then what has to be compared with the ledger."""
    here, there = (fleet_folder(tmp_path / name) for name in ("here", "spark"))
    filled = hostile(here, Random(seed))
    for _ in range(2):
        next(filled)
        for folder in ("landing", "aside"):
            shutil.copytree(here.root / folder, there.root / folder, dirs_exist_ok=True)
        result = ingest(here, batch_files=BATCH_FILES)
        assert result == ingest_by_spark(spark, there, batch_files=BATCH_FILES)
        for of_here, of_spark in zip(comparable(here), comparable(there), strict=True):
            assert len(of_here) == len(of_spark)
            for one, other in zip(of_here, of_spark, strict=True):
                assert {name: other[name] for name in one if one[name] != other[name]} == {}, one
        assert files(here) == files(there)


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
