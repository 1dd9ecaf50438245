"""How the report writes figures, and which words its tables have."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from sync.pages.layout import LAYOUTS

from sync.reports.shared import formats as words
from sync.reports.shared.column import LOOKS, look

NOON = datetime(2025, 11, 21, 12, tzinfo=UTC)
BEGIN = NOON.timestamp()


@pytest.mark.parametrize(
    ("written", "text"),
    [
        (words.count(None), "–"),  # noqa: RUF001
        (words.count(1_234_567), "1\u2009234\u2009567"),
        (words.share(None), "–"),  # noqa: RUF001
        (words.share(1.0), "100.00 %"),
        (words.share(0.999999), "99.99 %"),
        (words.share(0.29), "29.00 %"),
        (words.milliseconds(None), "–"),  # noqa: RUF001
        (words.milliseconds(9_999), "9\u2009999 ms"),
        (words.milliseconds(61_000), "1 min 1 s"),
        (words.duration(None), "–"),  # noqa: RUF001
        (words.duration(0), "0 s"),
        (words.duration(1.5), "1.5 s"),
        (words.duration(-61), "-1 min 1 s"),
        (words.duration(90_061), "1 d 1 h"),
        (words.duration(3_600), "1 h"),
        (words.size(None), "–"),  # noqa: RUF001
        (words.size(1_023), "1023 B"),
        (words.size(1_536), "1.5 KiB"),
        (words.size(3 * 2**30), "3.0 GiB"),
        (words.moment(None), "–"),  # noqa: RUF001
        (words.moment(NOON), "2025-11-21 12:00:00"),
        (words.figure(12_500.0), "12\u2009500"),
        (words.figure(0.5), "0.5"),
        (words.instant(BEGIN), "2025-11-21 12:00:00 UTC"),
        (words.yes_no(None), "–"),  # noqa: RUF001
        (words.yes_no(True), "yes"),
        (words.yes_no(False), "no"),
        (words.decimal(None), "–"),  # noqa: RUF001
        (words.decimal(0.12345), "0.123"),
        (words.decimal(12_345.6), "12\u2009345"),
        (words.decimal(-1.7e308), "-1.7e+308"),
        (words.ppm(None), "–"),  # noqa: RUF001
        (words.ppm(-3.25), "-3.2 ppm"),
        (words.signed(None), "–"),  # noqa: RUF001
        (words.signed(12.4), "+12.4 s"),
        (words.signed(-61), "-1 min 1 s"),
        (words.days(None), "–"),  # noqa: RUF001
        (words.days(8.99), "8 d"),
        (words.day(None), "–"),  # noqa: RUF001
        (words.day(NOON), "2025-11-21"),
        (words.spaced("new_epoch"), "new epoch"),
        (words.plural(1, "row"), "1 row"),
        (words.plural(2_000, "row"), "2\u2009000 rows"),
        (words.plural(2, "thing is", "things are"), "2 things are"),
        (words.plain(None), "–"),  # noqa: RUF001
        (words.plain("x"), "x"),
        (words.level(None), "–"),  # noqa: RUF001
        (words.level(2), "2 assured"),
        (words.level(7), "7"),
        (words.synchronised(True), "synchronised"),
        (words.synchronised(False), "not synchronised"),
    ],
)
def test_figures_in_words(written: str, text: str) -> None:
    assert written == text


def test_every_table_has_its_words() -> None:
    assert len({layout.name for layout in LAYOUTS}) == len(LAYOUTS)
    assert len({layout.title for layout in LAYOUTS}) == len(LAYOUTS)
    for layout in LAYOUTS:
        assert layout.about.endswith(".")
        assert layout.none.endswith(".")
        names = [column.name for column in layout.columns]
        assert len(set(names)) == len(names)
        assert all(column.title for column in layout.columns)


def test_a_time_says_whose_it_is_and_stands_apart_from_what_is_counted() -> None:
    columns = [column for layout in LAYOUTS for column in layout.columns]
    assert {column.head[-5:] for column in columns if column.kind == "time"} == {", UTC"}
    for column in columns:
        if column.write in (words.count, words.duration, words.size, words.share):
            assert column.kind in ("number", "alarm"), column.name


def test_a_state_is_marked_by_more_than_its_colour() -> None:
    assert {look(state) for state in LOOKS} == {"state-good", "state-calm", "state-wrong"}
    assert look("unheard") == look(None) == "state-unknown"
