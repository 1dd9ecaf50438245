"""Formatting of numbers, durations and times in the report."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from sync.reports.shared import column, formats
from sync.reports.shared.registry import REPORTS

NOON = datetime(2025, 11, 21, 12, tzinfo=UTC)
ABSENT = formats.ABSENT


@pytest.mark.parametrize(
    ("written", "text"),
    [
        (formats.count(1_234_567), "1\u202f234\u202f567"),
        (formats.percentage(1.0), "100.00 %"),
        (formats.percentage(0.999999), "99.99 %"),
        (formats.percentage(0.29), "29.00 %"),
        (formats.milliseconds(9_999), "9\u202f999 ms"),
        (formats.milliseconds(61_000), "1 min 1 s"),
        (formats.duration(0), "0 s"),
        (formats.duration(1.5), "1.5 s"),
        (formats.duration(-61), "-1 min 1 s"),
        (formats.duration(90_061), "1 d 1 h"),
        (formats.duration(3_600), "1 h"),
        (formats.size(1_023), "1023 B"),
        (formats.size(1_536), "1.5 KiB"),
        (formats.size(3 * 2**30), "3.0 GiB"),
        (formats.moment(NOON), "2025-11-21 12:00:00"),
        (formats.named_moment(NOON), "2025-11-21 12:00:00 UTC"),
        (formats.axis_number(12_500.0), "12\u202f500"),
        (formats.axis_number(0.5), "0.5"),
        (formats.yes_no(True), "yes"),
        (formats.yes_no(False), "no"),
        (formats.decimal(0.12345), "0.123"),
        (formats.decimal(12_345.6), "12\u202f345"),
        (formats.decimal(-1.7e308), "-1.7e+308"),
        (formats.ppm(-3.25), "-3.2 ppm"),
        (formats.signed_duration(12.4), "+12.4 s"),
        (formats.signed_duration(-61), "-1 min 1 s"),
        (formats.days(8.99), "8 d"),
        (formats.days(400.5), "over 400 d"),
        (formats.plural(1, "row"), "1 row"),
        (formats.plural(2_000, "row"), "2\u202f000 rows"),
        (formats.plural(2, "thing is", "things are"), "2 things are"),
        (formats.plain("x"), "x"),
        (formats.qos(2), "2 assured"),
        (formats.qos(7), "7"),
        (formats.synchronised(True), "synchronised"),
        (formats.synchronised(False), "not synchronised"),
        *(
            (write(None), ABSENT)
            for write in (
                *(formats.count, formats.percentage, formats.milliseconds, formats.duration),
                *(formats.size, formats.moment, formats.yes_no),
                *(formats.decimal, formats.ppm, formats.signed_duration, formats.days),
                *(formats.plain, formats.qos, formats.synchronised),
            )
        ),
    ],
)
def test_formats(written: str, text: str) -> None:
    assert written == text


def test_times_name_their_zone_and_numbers_are_right_aligned() -> None:
    columns = [each for report in REPORTS for each in report.table.columns]
    assert {each.head()[-5:] for each in columns if each.kind == "time"} == {", UTC"}
    for each in columns:
        if each.write in (formats.count, formats.duration, formats.size, formats.percentage):
            assert each.kind in ("number", "alarm"), each.name


def test_states_and_codes_are_translated_and_unknown_ones_are_marked() -> None:
    state = column.state("state", "State", {"torn": "wrong"}, {"torn": "cut off"})
    assert [state.write(value) for value in ("torn", "other", None)] == ["cut off", "other", ABSENT]
    assert [state.mark(value) for value in ("torn", "other", None)] == [
        "state-wrong",
        *["state-unknown"] * 2,
    ]
