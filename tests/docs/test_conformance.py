from __future__ import annotations

from typing import NamedTuple

import pytest

from tests.helpers.conformance import ROOT, is_defined, linked_tests

DOCUMENT = (ROOT / "docs" / "reference" / "conformance.md").read_text("utf-8")
TABLES = {
    "Quality of service: conformance": ("1 2.1 2.2 2.3 3 4.1 4.2 4.3 4.4 4.5 5.1 5.2 8"),
    "Queueing: conformance": "1 2.1 2.2 2.3 2.4 3 4",
    "Shared subscriptions: conformance": "1 2 3 4 5 6 7 8 9 10 11 12 13",
}
"""The tables, and the sections of each specification that demand something."""


class Row(NamedTuple):
    """A row: the section, what it demands, what is done, and the tests (file, function)."""

    section: str
    demand: str
    decision: str
    tests: list[tuple[str, str]]


def rows(title: str) -> list[Row]:
    text = DOCUMENT[DOCUMENT.index(f"## {title}\n") :]
    lines = [line for line in text[2 : text.find("\n## ", 3)].splitlines() if line.startswith("| ")]
    found = []
    for line in lines[2:]:
        section, demand, decision, links = (cell.strip() for cell in line.strip("| ").split(" | "))
        found.append(Row(section, demand, decision, linked_tests(links)))
    return found


ROWS = [row for title in TABLES for row in rows(title)]


@pytest.mark.parametrize("title", TABLES)
def test_every_section_that_demands_something_has_rows(title: str) -> None:
    assert {row.section for row in rows(title)} == set(TABLES[title].split())


@pytest.mark.parametrize("row", ROWS, ids=[f"{row.section} {row.demand[:40]}" for row in ROWS])
def test_every_row_names_existing_tests(row: Row) -> None:
    assert row.demand
    assert row.decision
    assert row.tests, "no test proves it"
    for file, name in row.tests:
        assert is_defined(file, name), name
