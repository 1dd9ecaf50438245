"""How the gateway and the centre write for people, and that both write alike."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

import edge.text
import sync.common.text
from edge.text import duration, size

BOTH = (edge.text, sync.common.text)


@pytest.mark.parametrize("printable", [words.printable for words in BOTH])
@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("pump 1, Müller", "pump 1, Müller"),
        ("a\r\nb\x1b[2J", r"a\r\nb\x1b[2J"),
        ("\u202egpj.exe", r"\u202egpj.exe"),
        ("\udcff.seg", r"\udcff.seg"),
        ("", ""),
    ],
)
def test_nothing_steers_a_terminal(printable: Callable[..., str], text: str, shown: str) -> None:
    assert printable(text) == shown


@given(st.text(st.characters(exclude_categories=())), st.sampled_from(["utf-8", "ascii", "cp1252"]))
def test_any_text_is_one_line_in_any_encoding_and_alike_at_both_sides(
    text: str, encoding: str
) -> None:
    shown = edge.text.printable(text, encoding)
    assert shown.isprintable()
    assert shown.encode(encoding).decode(encoding) == shown
    assert shown == sync.common.text.printable(text, encoding)


@given(st.text(st.characters(exclude_categories=())), st.sampled_from(["utf-8", "ascii", "cp1252"]))
def test_a_name_is_read_back_from_what_is_printed_of_it(name: str, encoding: str) -> None:
    assert (
        sync.common.text.read_back(
            sync.common.text.printable(sync.common.text.spelled(name), encoding)
        )
        == name
    )


@pytest.mark.parametrize("wrong", ["a\\", r"\q", r"\x1", r"\x1B", r"\N{DIGIT ONE}", r"\U00110000"])
def test_what_is_never_printed_of_a_name_is_not_read_back(wrong: str) -> None:
    with pytest.raises(ValueError, match="decode"):
        sync.common.text.read_back(wrong)


@pytest.mark.parametrize("plural", [words.plural for words in BOTH])
def test_one_is_not_many(plural: Callable[..., str]) -> None:
    assert [plural(number, "hour") for number in (0, 1, 2)] == ["0 hours", "1 hour", "2 hours"]
    assert [plural(number, "event is", "events are") for number in (1, 3)] == [
        *("1 event is", "3 events are"),
    ]


@pytest.mark.parametrize("fault", [words.fault for words in BOTH])
def test_a_fault_of_a_file_names_it_and_no_number(fault: Callable[[OSError], str]) -> None:
    assert fault(PermissionError(13, "Permission denied", "/srv/x")) == "/srv/x: Permission denied"
    assert fault(OSError(28, "No space left on device")) == "No space left on device"
    assert fault(TimeoutError("it took too long")) == "it took too long"


def test_lengths_of_time_have_two_units_at_most() -> None:
    lengths = (0, 0.4, 1, 59.6, 60, 3600, 7500, 86_400, 90_061, 86_700)
    assert [duration(length) for length in lengths] == [
        *("0 s", "0 s", "1 s", "1 min", "1 min", "1 h", "2 h 5 min", "1 d", "1 d 1 h", "1 d"),
    ]


def test_sizes_are_for_people() -> None:
    assert [size(count) for count in (0, 1, 1023, 1024, 5 * 2**20, 3 * 2**40)] == [
        *("0 bytes", "1 byte", "1023 bytes", "1.0 KiB", "5.0 MiB", "3.0 TiB"),
    ]
