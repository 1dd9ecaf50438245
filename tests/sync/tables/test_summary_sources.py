"""The batches of which a day's events consist: compaction does not change them, retention does."""

from __future__ import annotations

from typing import Any

from sync.tables.manifest import UPKEEP, Manifest
from sync.tables.summaries.sources import Source, sources

DAY, NEXT = "2025-11-21", "2025-11-22"


def batch(number: int, **events: tuple[str, ...]) -> Manifest:
    days = {"today": DAY, "tomorrow": NEXT}
    return Manifest("q", number, "a", "", (), {days[day]: paths for day, paths in events.items()})


def upkeep(number: int, kind: Any, replaces: tuple[str, ...], *files: str) -> Manifest:
    events = {DAY: files} if files else {}
    return Manifest(UPKEEP, number, "a", "", (), events, kind=kind, replaces=replaces)


FIRST = batch(0, today=("a", "b"), tomorrow=("c",))
SECOND = batch(1, today=("d",))


def test_a_batch_changes_the_content_of_its_days() -> None:
    before, after = sources([FIRST]), sources([FIRST, SECOND])
    assert [source.files for source in before[DAY]] == [("a", "b")]
    assert [source.files for source in after[DAY]] == [("a", "b", "d")]
    assert before[DAY][0].content != after[DAY][0].content
    assert before[NEXT] == after[NEXT] == sources([SECOND, FIRST])[NEXT]
    assert sources([]) == {}


def test_compaction_changes_only_files() -> None:
    compacted = upkeep(0, "compacted", ("a", "b", "d"), "e")
    again = upkeep(1, "compacted", ("e",), "f", "g")
    [plain] = sources([FIRST, SECOND])[DAY]
    assert sources([FIRST, SECOND, compacted])[DAY] == (Source(plain.content, ("e",)),)
    assert sources([FIRST, SECOND, again, compacted])[DAY] == (Source(plain.content, ("f", "g")),)


def test_retired_events_are_a_source_of_their_own() -> None:
    compacted = upkeep(0, "compacted", ("a", "b"), "e")
    retired = upkeep(1, "retired", ("e",))
    [before] = sources([FIRST])[DAY]
    assert sources([FIRST, compacted, retired])[DAY] == (Source(before.content),)
    taken, late = sources([FIRST, SECOND, compacted, retired])[DAY]
    assert taken == Source(before.content)
    assert late == Source(sources([SECOND])[DAY][0].content, ("d",))
    second = upkeep(2, "retired", ("d",))
    parts = sources([FIRST, SECOND, compacted, retired, second])[DAY]
    assert parts == (Source(before.content), Source(late.content))
