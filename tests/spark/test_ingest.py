from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from sync.common.errors import FleetError
from sync.common.fleet_folder import FleetFolder
from sync.ingest import archive
from sync.ingest.decoding import MAX_DAYS
from sync.ingest.ingest import STEPS, IngestResult, run_ingest
from sync.ingest.ledger import CLAIM_COLUMNS, Claim, related_claims
from sync.segment import Dropped
from sync.segment.limits import MAX_TIME, MIN_TIME
from sync.tables.delta import Counts, local_tables
from sync.tables.storage import File, Storage
from sync.tables.tables import SEGMENTS, read_events, read_segments
from tests.helpers.fleet_tables import (
    NOON,
    Lane,
    fleet_folder,
    land,
    put,
    some_events,
    waiting,
)

pytestmark = pytest.mark.spark

DAY_MS = 86_400_000


class Cut(Exception):
    """The crash that a test causes."""


def cut_after(step: str) -> Callable[[str], None]:
    def hook(taken: str) -> None:
        if taken == step:
            raise Cut(step)

    return hook


def ingest(spark: SparkSession, fleet: FleetFolder, cut: str | None = None) -> IngestResult:
    return run_ingest(spark, fleet, cut_after(cut) if cut else lambda step: None)


def events(spark: SparkSession, fleet: FleetFolder) -> DataFrame:
    return read_events(spark, local_tables(fleet.tables).snapshot())


def segments(spark: SparkSession, fleet: FleetFolder) -> DataFrame:
    return read_segments(spark, local_tables(fleet.tables).snapshot())


def numbers(spark: SparkSession, fleet: FleetFolder) -> list[tuple[str, str, int]]:
    return sorted(
        tuple(row) for row in events(spark, fleet).select("lane", "name", "seq").collect()
    )


def fates(spark: SparkSession, fleet: FleetFolder) -> dict[str, tuple[str, str | None]]:
    rows = segments(spark, fleet).select("path", "fate", "reason").collect()
    return {row["path"]: (row["fate"], row["reason"]) for row in rows}


def test_every_field_of_an_event_and_of_its_segment_is_stored(
    spark: SparkSession, tmp_path: Path
) -> None:
    fleet = fleet_folder(tmp_path / "fleet [a] 100% #ü?")
    lane = Lane()
    lane.skip(3)
    identity, data = lane.seal(some_events(2), (Dropped(1, 3, "backlog-full"),))
    path = land(fleet, (identity, data), at=NOON / 1000 + 2.5)

    assert ingest(spark, fleet).counts == Counts(segments=1, events=2)

    table = events(spark, fleet).orderBy("seq").toArrow().to_pylist()
    assert [row["seq"] for row in table] == [4, 5]
    row = table[1]
    assert row["time"].isoformat() == "2025-11-21T12:00:01+00:00"
    assert row["arrived"].isoformat() == "2025-11-21T12:00:02.500000+00:00"
    assert row["day"].isoformat() == "2025-11-21"
    assert row["tags"] == [("facility", "pump")]
    plain = ("gateway", "epoch", "lane", "clock", "kind", "source", "name", "level", "text", "qos")
    assert {name: row[name] for name in plain} == {
        "gateway": "gw.example",
        "epoch": lane.epoch,
        "lane": "logs",
        "clock": True,
        "kind": "log",
        "source": "pump1@gw.example/fw",
        "name": "event-1",
        "level": "Informational",
        "text": "ünïcode",
        "qos": 2,
    }
    assert [row[name] for name in ("latency_ms", "topic", "value", "unit")] == [1, None, None, None]

    segment = segments(spark, fleet).toArrow().to_pylist()[0]
    assert segment["path"] == path.relative_to(fleet.root).as_posix()
    assert (segment["fate"], segment["size"]) == ("accepted", len(data))
    assert segment["digest"] == data[-32:].hex()
    assert segment["previous"] == "00" * 32
    assert segment["dropped"] == [{"first_seq": 1, "last_seq": 3, "reason": "backlog-full"}]
    assert (segment["software"], segment["disk_used"]) == ("0.1.0", 1_000_000)


def test_ingested_segments_are_archived_and_not_read_again(
    spark: SparkSession, fleet: FleetFolder
) -> None:
    lane = Lane()
    first, second = lane.seal(some_events(5)), lane.seal(some_events(5))
    path = land(fleet, first)
    assert ingest(spark, fleet).counts == Counts(segments=1, events=5)
    assert not path.exists()
    archived = fleet.archive / path.relative_to(fleet.landing)
    assert archived.read_bytes() == first[1]

    assert ingest(spark, fleet).counts == Counts()
    land(fleet, second)
    assert ingest(spark, fleet).counts == Counts(segments=1, events=5)
    assert sorted(seq for _, _, seq in numbers(spark, fleet)) == list(range(1, 11))


def test_the_same_segment_under_other_names_counts_once(
    spark: SparkSession, fleet: FleetFolder
) -> None:
    sealed = Lane().seal(some_events(4))
    land(fleet, sealed, at=NOON / 1000)
    put(fleet.landing / "stick" / "copy.seg", sealed[1], at=NOON / 1000 + 1)
    assert ingest(spark, fleet).counts == Counts(segments=1, events=4, duplicates=1)
    put(fleet.landing / "other" / "again.seg", sealed[1])
    assert ingest(spark, fleet).counts == Counts(duplicates=1)
    assert len(numbers(spark, fleet)) == 4
    assert waiting(fleet) == set()


def test_forks_are_quarantined(spark: SparkSession, fleet: FleetFolder) -> None:
    lane, clone = Lane(), Lane()
    land(fleet, lane.seal(some_events(4)), at=NOON / 1000)
    land(fleet, clone.seal(some_events(6)), at=NOON / 1000 + 1)
    assert ingest(spark, fleet).counts == Counts(segments=1, events=4, quarantined=1)

    successor = Lane(next_seq=5, previous=lane.previous)
    other_successor = Lane(next_seq=50, previous=lane.previous)
    land(fleet, successor.seal(some_events(2)), at=NOON / 1000 + 2)
    land(fleet, other_successor.seal(some_events(2)), at=NOON / 1000 + 3)
    identity, aside = Lane().seal(some_events(4, start=NOON + 7))
    put(fleet.aside / identity.gateway / identity.epoch / "logs" / "1-4.0123.seg", aside)
    assert ingest(spark, fleet).counts == Counts(segments=1, events=2, quarantined=2)

    assert sorted(seq for _, _, seq in numbers(spark, fleet)) == [1, 2, 3, 4, 5, 6]
    told = segments(spark, fleet).where("fate = 'fork'").select("detail").collect()
    details = sorted(row["detail"].split(" (")[0] for row in told)
    assert details == [
        "follows what 5-6",
        "overlaps 1-4",
        "the receiver has a different file with this name",
    ]
    assert len(list(fleet.quarantine.rglob("*.seg"))) == 3
    assert waiting(fleet) == set()


def test_bad_segments_are_quarantined_and_others_are_ingested(
    spark: SparkSession, fleet: FleetFolder
) -> None:
    lane = Lane()
    land(fleet, lane.seal(some_events(3)))
    folder = fleet.landing / "gw.example" / lane.epoch / "logs"
    flipped = bytearray(lane.seal(some_events(3))[1])
    flipped[len(flipped) // 2] ^= 1
    put(folder / "4-6.seg", bytes(flipped))
    put(folder / "7-9.seg", b"")
    put(folder / "10-12.seg", b"nothing of the kind" * 10)
    scattered = lane.seal(some_events(40, step_ms=86_400_000))
    land(fleet, scattered)

    assert ingest(spark, fleet).counts == Counts(segments=1, events=3, quarantined=4)
    told = {path.split("/")[-1]: fate for path, fate in fates(spark, fleet).items()}
    assert told == {
        "1-3.seg": ("accepted", None),
        "4-6.seg": ("bad", "checksum"),
        "7-9.seg": ("bad", "short"),
        "10-12.seg": ("bad", "magic"),
        "7-46.seg": ("bad", "days"),
    }
    kept = [path.read_bytes() for path in fleet.quarantine.rglob("*.seg")]
    assert sorted(kept, key=len)[0] == b""
    assert bytes(flipped) in kept


def test_wrong_clocks_are_accepted_and_limited_in_days(
    spark: SparkSession, fleet: FleetFolder
) -> None:
    """A board without a clock starts in 1970 and may stay there for weeks."""
    behind, ahead, stepped = (Lane(gateway=f"gw-{at}.example") for at in range(3))
    for day in range(21):
        land(fleet, behind.seal(some_events(2, start=day * DAY_MS)))
    land(fleet, ahead.seal(some_events(3, start=MAX_TIME - 2_000)))
    before = some_events(2, start=1000)
    land(fleet, stepped.seal([*before, *some_events(2), *some_events(1, start=MIN_TIME)]))
    land(fleet, stepped.seal(some_events(MAX_DAYS, step_ms=400 * DAY_MS)))
    land(fleet, stepped.seal(some_events(MAX_DAYS + 1, step_ms=DAY_MS)))

    counts = ingest(spark, fleet).counts
    assert counts == Counts(segments=24, events=42 + 3 + 5 + MAX_DAYS, quarantined=1)
    rows = events(spark, fleet).groupBy("gateway", "day").count().collect()
    assert sum(row["count"] for row in rows) == counts.events
    days: dict[str, set[str]] = {row["gateway"]: set() for row in rows}
    for row in rows:
        days[row["gateway"]].add(row["day"].isoformat())
    assert len(days["gw-0.example"]) == 21
    assert days["gw-1.example"] == {"9999-12-31"}
    assert {"0001-01-01", "1970-01-01", "2025-11-21"} <= days["gw-2.example"]
    assert [*local_tables(fleet.tables).snapshot().days] == sorted(set().union(*days.values()))


def test_segments_may_arrive_in_any_order(spark: SparkSession, fleet: FleetFolder) -> None:
    lane, chance = Lane(), random.Random(8)
    sealed = [lane.seal(some_events(2)) for _ in range(12)]
    order = [*sealed, *chance.choices(sealed, k=6)]
    chance.shuffle(order)
    total = Counts()
    for part in (order[:7], order[7:]):
        for at, (identity, data) in enumerate(part):
            name = fleet.landing / f"{chance.random()}" / f"{identity.first_seq}.seg"
            put(name, data, at=NOON / 1000 + at)
        total += ingest(spark, fleet).counts
    assert total == Counts(segments=12, events=24, duplicates=6)
    assert sorted(seq for _, _, seq in numbers(spark, fleet)) == list(range(1, 25))


@pytest.mark.parametrize("step", [step for step in STEPS if step != "judged"])
def test_an_ingest_that_crashes_after_any_step_is_completed_by_the_next(
    spark: SparkSession, fleet: FleetFolder, step: str
) -> None:
    lane = Lane()
    for _ in range(3):
        land(fleet, lane.seal(some_events(4)))
    put(fleet.landing / "copy" / "x.seg", Lane().seal(some_events(4))[1])
    raised = Cut if step in ("ended", "filed") else FleetError
    with pytest.raises(raised, match=step):
        ingest(spark, fleet, cut=step)

    ingest(spark, fleet)

    assert sorted(seq for _, _, seq in numbers(spark, fleet)) == list(range(1, 13))
    assert [fate for fate, _ in sorted(fates(spark, fleet).values())].count("accepted") == 3
    assert len(fates(spark, fleet)) == 4
    assert waiting(fleet) == set()
    assert len(list(fleet.archive.rglob("*.seg"))) == 4
    assert local_tables(fleet.tables).unarchived() == 0


def test_a_batch_is_checked_against_earlier_batches_of_its_run(
    spark: SparkSession, fleet: FleetFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = []

    def counted(storage: Storage) -> dict[str, File]:
        looks.append("landing")
        return archive.waiting_files(storage)

    monkeypatch.setattr("sync.ingest.batch.waiting_files", counted)
    lane = Lane()
    for at in range(3):
        land(fleet, lane.seal(some_events(2)), at=NOON / 1000 + at)
    put(fleet.landing / "copy" / "x.seg", Lane().seal(some_events(2))[1], at=NOON / 1000 + 9)
    land(fleet, Lane(next_seq=2, previous=lane.previous).seal(some_events(3)), at=NOON / 1000 + 10)
    summary = run_ingest(spark, fleet, batch_files=2)
    assert summary == IngestResult(3, Counts(segments=3, events=6, duplicates=1, quarantined=1))
    assert sorted(seq for _, _, seq in numbers(spark, fleet)) == list(range(1, 7))
    assert looks == ["landing"], "or it grows with the square of what landed"


def test_many_small_segments_make_one_file_for_each_core(
    spark: SparkSession, fleet: FleetFolder
) -> None:
    lane = Lane()
    for at in range(80):
        land(fleet, lane.seal(some_events(1)), at=NOON / 1000 + at)
    assert ingest(spark, fleet).counts.events == 80
    assert len(local_tables(fleet.tables).snapshot().event_files) == 2


def test_related_claims_share_a_number_or_a_predecessor(spark: SparkSession) -> None:
    ranges = [(1, 10), (65_530, 65_540), (131_071, 131_072), (2**53 + 1, 2**53 + 2), (2**62, 2**62)]
    ledger = [Claim("gw", "e", "logs", *each, f"d{each}", f"p{each}") for each in ranges]
    other = [each._replace(gateway="other") for each in ledger]
    schema = StructType([SEGMENTS[name] for name in CLAIM_COLUMNS])

    def met(first: int, last: int, previous: str = "x") -> list[int]:
        offered = [Claim("gw", "e", "logs", first, last, "new", previous)]
        rows = related_claims(
            spark.createDataFrame(ledger + other, schema), spark.createDataFrame(offered, schema)
        )
        assert {row["gateway"] for row in rows.collect()} <= {"gw"}
        return sorted(row["first_seq"] for row in rows.collect())

    assert met(65_535, 65_536) == [1, 65_530, 131_071]
    assert met(2**53 + 2, 2**53 + 5) == [2**53 + 1]
    assert met(2**40, 2**40) == []
    assert met(2**40, 2**40, f"p{(1, 10)}") == [1]


def test_a_lost_stream_checkpoint_causes_no_duplicates_and_no_losses(
    spark: SparkSession, fleet: FleetFolder
) -> None:
    lane = Lane()
    first = lane.seal(some_events(4))
    land(fleet, first)
    ingest(spark, fleet)
    shutil.rmtree(fleet.tables / "checkpoints")
    shutil.copytree(fleet.archive, fleet.landing, dirs_exist_ok=True)
    land(fleet, lane.seal(some_events(4)))
    assert ingest(spark, fleet).counts == Counts(segments=1, events=4, duplicates=1)
    assert sorted(seq for _, _, seq in numbers(spark, fleet)) == list(range(1, 9))
    assert (fleet.archive / "gw.example" / lane.epoch / "logs" / "1-4.seg").read_bytes() == first[1]


def test_files_that_the_stream_misses_are_read_by_a_new_query(
    spark: SparkSession, fleet: FleetFolder
) -> None:
    lane = Lane()
    first, second = lane.seal(some_events(4)), lane.seal(some_events(4))
    land(fleet, second)
    ingest(spark, fleet)
    land(fleet, first, at=NOON / 1000 - 90 * 86_400)
    summary = ingest(spark, fleet)
    assert (summary.reread, summary.counts) == (1, Counts(segments=1, events=4))
    assert sorted(seq for _, _, seq in numbers(spark, fleet)) == list(range(1, 9))

    checkpoint = max((fleet.tables / "checkpoints").iterdir())
    for part in ("offsets", "commits", "sources"):
        shutil.rmtree(checkpoint / part)
    land(fleet, lane.seal(some_events(4)))
    assert ingest(spark, fleet).counts == Counts(segments=1, events=4)
    assert sorted(seq for _, _, seq in numbers(spark, fleet)) == list(range(1, 13))


def test_a_damaged_stream_checkpoint_is_replaced(spark: SparkSession, fleet: FleetFolder) -> None:
    lane = Lane()
    land(fleet, lane.seal(some_events(4)))
    ingest(spark, fleet)
    for part in ("offsets", "commits"):
        (fleet.tables / "checkpoints" / "000001" / part / "0").write_bytes(b"")
        (fleet.tables / "checkpoints" / "000001" / part / ".0.crc").unlink()
    land(fleet, lane.seal(some_events(4)))
    assert ingest(spark, fleet).counts == Counts(segments=1, events=4)
    assert sorted(seq for _, _, seq in numbers(spark, fleet)) == list(range(1, 9))


def test_the_lease_allows_one_driver(spark: SparkSession, fleet: FleetFolder) -> None:
    with (
        local_tables(fleet.tables).lease(),
        pytest.raises(FleetError, match="another ingest is at work"),
    ):
        ingest(spark, fleet)
    assert ingest(spark, fleet).counts == Counts()
