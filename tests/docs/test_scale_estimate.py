from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import scale

ROOT = Path(__file__).parents[2]


def test_the_page_has_the_generated_tables() -> None:
    page = (ROOT / "docs" / "explanation" / "scale.md").read_text("utf-8")
    assert scale.input_table() in page
    assert scale.result_table() in page


def test_every_measured_input_has_a_page() -> None:
    pages = {each.page for each in scale.INPUTS.values() if each.page}
    assert all((ROOT / "benchmarks" / "results" / f"{page}.md").is_file() for page in pages)


def test_formulas_follow_the_rules_of_arithmetic() -> None:
    found = scale.estimate(G=10, r=86_400, l=86_400, h=86_400, T=299)
    expected = {"S": 10 * 3 * 288, "N": 10 * 3 / 300, "E": 10 * 3 * 86_400, "L": 30}
    assert {name: found[name] for name in expected} == expected


def test_a_formula_with_other_expressions_is_refused() -> None:
    with pytest.raises(ValueError, match="Attribute"):
        scale.evaluate("G.value", {"G": 1.0})
