from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from sync.reports.shared import column, formats
from sync.reports.shared.registry import REPORTS

NOON = datetime(2025, 11, 21, 12, tzinfo=UTC)
ABSENT = formats.ABSENT


NONE: dict[Any, str] = {None: ABSENT}
CASES: dict[Callable[[Any], str], dict[Any, str]] = {
    formats.count: {1_234_567: "1\u202f234\u202f567"} | NONE,
    formats.percentage: {1.0: "100.00 %", 0.999999: "99.99 %", 0.29: "29.00 %"} | NONE,
    formats.milliseconds: {9_999: "9\u202f999 ms", 61_000: "1 min 1 s"} | NONE,
    formats.duration: {0: "0 s", 1.5: "1.5 s", -61: "-1 min 1 s", 90_061: "1 d 1 h", 3_600: "1 h"}
    | NONE,
    formats.size: {1_023: "1023 B", 1_536: "1.5 KiB", 3 * 2**30: "3.0 GiB", -3 * 2**30: "-3.0 GiB"}
    | {-10: "-10 B"}
    | NONE,
    formats.moment: {NOON: "2025-11-21 12:00:00"} | NONE,
    formats.named_moment: {NOON: "2025-11-21 12:00:00 UTC"},
    formats.axis_number: {12_500.0: "12\u202f500", 0.5: "0.5"},
    formats.yes_no: {True: "yes", False: "no"} | NONE,
    formats.decimal: {0.12345: "0.123", 12_345.6: "12\u202f345", -1.7e308: "-1.7e+308"} | NONE,
    formats.ppm: {-3.25: "-3.2 ppm"} | NONE,
    formats.signed_duration: {12.4: "+12.4 s", -61: "-1 min 1 s"} | NONE,
    formats.days: {8.99: "8 d", 400.5: "over 400 d"} | NONE,
    formats.plain: {"x": "x"} | NONE,
    formats.qos: {2: "2 assured", 7: "7"} | NONE,
    formats.synchronised: {True: "synchronised", False: "not synchronised"} | NONE,
}


@pytest.mark.parametrize("write", CASES, ids=lambda write: write.__name__)
def test_formats(write: Callable[[Any], str]) -> None:
    assert {value: write(value) for value in CASES[write]} == CASES[write]


def test_plurals() -> None:
    assert formats.plural(1, "row") == "1 row"
    assert formats.plural(2_000, "row") == "2\u202f000 rows"
    assert formats.plural(2, "thing is", "things are") == "2 things are"


def test_times_name_their_zone_and_numbers_are_right_aligned() -> None:
    columns = [each for report in REPORTS for each in report.table.columns]
    assert {each.head()[-5:] for each in columns if each.kind == "time"} == {", UTC"}
    for each in columns:
        if each.write in (formats.count, formats.duration, formats.size, formats.percentage):
            assert each.kind in ("number", "alarm"), each.name


def test_states_and_codes_are_translated_and_unknown_ones_are_marked() -> None:
    state = column.state("state", "State", {"torn": "wrong"}, {"torn": "cut off"})
    assert [state.write(value) for value in ("torn", "other", None)] == ["cut off", "other", ABSENT]
    marks = [state.mark(value) for value in ("torn", "other", None)]
    assert marks == ["state-wrong", "state-unknown", "state-unknown"]
