"""The tables of docs/reference/mqtt-conformance.md have each statement, with tests that exist."""

from __future__ import annotations

from typing import Final

import pytest

from tests.helpers.conformance import ROOT, is_defined, linked_tests

DOCUMENT: Final = (ROOT / "docs" / "reference" / "mqtt-conformance.md").read_text("utf-8")

STATEMENTS_5: Final = """
1.5.4 1 2 3; 1.5.5 1; 1.5.7 1; 2.1.3 1; 2.2.1 2 4 5 6; 2.2.2 1; 3.1.0 1 2;
3.1.2 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 22 23 24 25 26 27 28 29;
3.1.3 1 2 3 4 5 6 7 8 9 10 11 12; 3.1.4 1 2 3 4 5 6; 3.2.0 1 2;
3.2.2 1 2 3 6 7 8 9 10 12 13 16 19 20 22; 3.3.1 1 2 3 4 5 6 7 8 9 10 11 12 13;
3.3.2 1 2 3 4 5 6 7 8 11 12 13 14 15 16 17 18 19 20; 3.3.4 1 2 3 4 5 9 10; 3.4.2 1 2 3;
3.5.2 1 2 3; 3.6.1 1; 3.6.2 1 2 3; 3.7.2 1 2 3; 3.8.1 1; 3.8.3 1 2 3 4 5; 3.8.4 1 2 3 4 5 6 7 8;
3.9.2 1 2; 3.9.3 1 2; 3.10.1 1; 3.10.3 1 2; 3.10.4 1 2 3 4 5 6; 3.11.2 1 2; 3.11.3 1 2; 3.12.4 1;
3.14.0 1; 3.14.1 1; 3.14.2 1 2 3 4; 3.14.4 1 2 3; 3.15.1 1; 3.15.2 1 2 3; 4.1.0 1 2; 4.2 1;
4.3.1 1; 4.3.2 1 2 3 4 5; 4.3.3 1 2 3 4 5 6 7 8 9 10 11 12 13; 4.4.0 1 2; 4.5.0 1; 4.6.0 5 6;
4.7.0 1; 4.7.1 1 2; 4.7.2 1; 4.7.3 1 2 3 4; 4.8.2 1 2 3 4 5 6; 4.9.0 1 2 3; 4.12.0 1 2 4 5 6;
4.12.1 2; 4.13.1 1; 4.13.2 1; 6.0.0 1 2 4
"""
"""The numbers of the statements of MQTT 5.0 that concern a server, by section."""

STATEMENTS_311: Final = """
1.5.3 1 2 3; 2.2.2 1 2; 2.3.1 1 4 5 6 7; 3.1.0 1 2;
3.1.2 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 24; 3.1.3 1 2 3 4 5 6 7 8 9 10 11;
3.1.4 1 2 3 4 5; 3.2.0 1; 3.2.2 1 2 3 4 5 6; 3.3.1 1 2 3 4 5 6 7 8 9 10 11 12; 3.3.2 1 2 3;
3.3.4 1; 3.3.5 1 2; 3.6.1 1; 3.8.1 1; 3.8.3 1 2 3 4; 3.8.4 1 2 3 4 5 6; 3.9.3 1 2; 3.10.1 1;
3.10.3 1 2; 3.10.4 1 2 3 4 5 6; 3.12.4 1; 3.14.1 1; 3.14.4 3; 4.1.0 1 2; 4.3.1 1; 4.3.2 1 2;
4.3.3 1 2; 4.4.0 1; 4.5.0 1; 4.6.0 5 6; 4.7.1 1 2 3; 4.7.2 1; 4.7.3 1 2 3 4; 4.8.0 1 2; 6.0.0 1 2 4;
7.0.0 1 2; 7.1.1 1
"""
"""Those of MQTT 3.1.1."""

ROWS: Final = [
    [cell.strip() for cell in line.strip("|").split(" | ")]
    for line in DOCUMENT.splitlines()
    if line.startswith("| ") and not line.startswith(("| 5.0 ", "| --- "))
]


def statements(text: str) -> list[str]:
    sections = (section.split() for section in text.split(";"))
    return [f"{section}-{number}" for section, *numbers in sections for number in numbers]


@pytest.mark.parametrize(("column", "expected"), [(0, STATEMENTS_5), (1, STATEMENTS_311)])
def test_each_statement_has_one_row(column: int, expected: str) -> None:
    found = [number for row in ROWS for number in row[column].split(", ") if number]
    assert sorted(found) == sorted(statements(expected))


@pytest.mark.parametrize("row", ROWS, ids=[f"{row[0]} {row[1]}" for row in ROWS])
def test_each_row_names_existing_tests(row: list[str]) -> None:
    _new, _old, demand, decision, links = row
    assert demand
    assert decision
    found = linked_tests(links)
    assert found or decision.startswith("Does not apply: "), "no test proves it"
    assert len(found) == links.count("](")
    for file, name in found:
        assert is_defined(file, name), name
