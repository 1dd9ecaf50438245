"""The reckoning for a large fleet: the page holds what the code works out."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import scale

ROOT = Path(__file__).parents[2]


def test_the_page_holds_the_tables_of_the_code() -> None:
    page = (ROOT / "docs" / "explanation" / "scale.md").read_text("utf-8")
    assert scale.given_table() in page
    assert scale.derived_table() in page


def test_what_was_measured_has_a_page() -> None:
    pages = {given.page for given in scale.GIVEN.values() if given.page}
    assert all((ROOT / "benchmarks" / "results" / f"{page}.md").is_file() for page in pages)


def test_formulas_are_worked_out_by_the_rules_of_arithmetic() -> None:
    found = scale.reckon(G=10, r=86_400, l=86_400, h=86_400, T=299)
    assert found["S"] == 10 * 3 * 288
    assert found["N"] == 10 * 3 / 300
    assert found["E"] == 10 * 3 * 86_400
    assert found["L"] == 30


def test_a_formula_with_anything_else_is_refused() -> None:
    with pytest.raises(ValueError, match="Attribute"):
        scale.work_out("G.value", {"G": 1.0})
