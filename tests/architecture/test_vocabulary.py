"""Names of modules and classes that a stranger would not understand are not used."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("edge", "sync")

METAPHORS = {
    "Bell", "Box", "Chore", "Company", "Desk", "Door", "Fate", "Handed", "House", "Letter",
    "Porter", "Road", "Slow", "Stranger", "Turn",
}  # fmt: skip
"""Metaphors that stood for technical terms."""

PARTICIPLES = {
    "Asked", "Gathered", "Given", "Gone", "Kept", "Known", "Made", "Noted", "Ran", "Seen", "Shown",
    "Standing", "There", "Told", "Waiting",
}  # fmt: skip
"""Bare participles and adverbs, which name no thing."""

MODULES = {
    "bell", "callers", "company", "courier", "crowded", "desk", "door", "floor", "folded", "given",
    "heads", "hello", "house", "leaving", "line", "look", "pace", "peek", "porter", "road", "room",
    "seldom", "shown", "showing", "sending", "standing", "strangers", "surplus", "takers", "tally",
    "telling", "turns", "unsent", "words",
}  # fmt: skip


def modules() -> Iterator[Path]:
    for package in PACKAGES:
        yield from sorted((ROOT / package).rglob("*.py"))


def class_names(path: Path) -> list[str]:
    tree = ast.parse(path.read_text("utf-8"))
    return [node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]


def test_modules_have_technical_names() -> None:
    assert [str(path.relative_to(ROOT)) for path in modules() if path.stem in MODULES] == []


@pytest.mark.parametrize("banned", [METAPHORS, PARTICIPLES], ids=["metaphors", "participles"])
def test_classes_have_technical_names(banned: set[str]) -> None:
    found = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in modules()
        for name in class_names(path)
        if name.lstrip("_") in banned
    ]
    assert found == []


def test_the_terms_of_the_project_are_in_the_glossary() -> None:
    glossary = (ROOT / "docs" / "glossary.md").read_text("utf-8").lower()
    for term in ("custody", "lane", "epoch", "segment", "service seconds"):
        assert re.search(rf"\b{term}\b", glossary), term
