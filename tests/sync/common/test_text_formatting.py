"""Text formatting for people."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sync.common import text

any_text = st.text(st.characters(exclude_categories=()))
encodings = st.sampled_from(["utf-8", "ascii", "cp1252"])


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ("pump 1, Müller", "pump 1, Müller"),
        ("a\r\nb\x1b[2J", r"a\r\nb\x1b[2J"),
        ("\u202egpj.exe", r"\u202egpj.exe"),
        ("\udcff.seg", r"\udcff.seg"),
        ("", ""),
    ],
)
def test_control_characters_are_escaped(raw: str, expected: str) -> None:
    assert text.printable(raw) == expected


@given(any_text, encodings)
def test_any_text_becomes_one_line_in_any_encoding(raw: str, encoding: str) -> None:
    printable = text.printable(raw, encoding)
    assert printable.isprintable()
    assert printable.encode(encoding).decode(encoding) == printable


@given(any_text, encodings)
def test_escaped_name_can_be_unescaped(name: str, encoding: str) -> None:
    printable = text.printable(text.double_backslashes(name), encoding)
    assert text.unescape(printable) == name


@pytest.mark.parametrize("wrong", ["a\\", r"\q", r"\x1", r"\x1B", r"\N{DIGIT ONE}", r"\U00110000"])
def test_invalid_escapes_are_refused(wrong: str) -> None:
    with pytest.raises(ValueError, match="decode"):
        text.unescape(wrong)


def test_counts_have_their_noun() -> None:
    assert [text.plural(n, "hour") for n in (0, 1, 2)] == ["0 hours", "1 hour", "2 hours"]
    assert text.plural(3, "event is", "events are") == "3 events are"


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (PermissionError(13, "Permission denied", "/srv/x"), "/srv/x: Permission denied"),
        (OSError(28, "No space left on device"), "No space left on device"),
        (TimeoutError("it took too long"), "it took too long"),
    ],
)
def test_system_errors_name_the_file_and_no_number(error: OSError, expected: str) -> None:
    assert text.os_error(error) == expected


def test_durations_have_two_units_at_most() -> None:
    lengths = (0, 0.4, 1, 59.6, 60, 3600, 7500, 86_400, 90_061, 86_700)
    assert [text.duration(length) for length in lengths] == [
        *("0 s", "0 s", "1 s", "1 min", "1 min", "1 h", "2 h 5 min", "1 d", "1 d 1 h", "1 d")
    ]


def test_sizes_have_a_unit() -> None:
    assert [text.size(count) for count in (0, 1, 1023, 1024, 5 * 2**20, 3 * 2**40)] == [
        *("0 bytes", "1 byte", "1023 bytes", "1.0 KiB", "5.0 MiB", "3.0 TiB")
    ]


def test_columns_are_aligned() -> None:
    rows = [("name", "count"), ("a", "7"), ("long name", "12")]
    aligned = ["name       count", "a              7", "long name     12"]
    assert list(text.columns(rows, right=(1,))) == aligned


@pytest.mark.parametrize(
    ("milliseconds", "expected"),
    [
        (253_402_289_999_999, "9999-12-31T20:59:59.999Z"),
        (253_402_300_799_999, "9999-12-31T23:59:59.999Z"),
        (-62_135_596_799_999, "0001-01-01T00:00:00.001Z"),
        (1_763_726_400_001, "2025-11-21T12:00:00.001Z"),
    ],
)
def test_times_are_exact_in_every_year(milliseconds: int, expected: str) -> None:
    assert text.utc_time(milliseconds, "milliseconds") == expected
    assert text.utc_time(milliseconds, "auto").startswith(expected[:-1])
