"""Names of modules and classes that a stranger would not understand are not used."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("edge", "sync", "firmware_sim")

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


VERBS = {"bury", "say", "tell", "told"}
"""First words of function names that hide what is done: `log`, `report`, `format` or `notify`."""

OPENINGS = {"How", "Say", "Says", "Tell", "Tells", "What", "Who", "Whom", "Whose"}
"""First words of docstrings that do not say what a function does or what an object is."""


def modules() -> Iterator[Path]:
    for package in PACKAGES:
        yield from sorted((ROOT / package).rglob("*.py"))


class Names(NamedTuple):
    """What a module names: its classes and functions, and the first words of its docstrings."""

    classes: list[str]
    functions: list[str]
    openings: list[str]


@pytest.fixture(scope="module")
def named() -> dict[str, Names]:
    return {str(path.relative_to(ROOT)): read_names(path.read_text("utf-8")) for path in modules()}


def read_names(source: str) -> Names:
    names = Names([], [], [])
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ClassDef):
            names.classes.append(node.name.lstrip("_"))
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            names.functions.append(node.name.lstrip("_"))
        elif not isinstance(node, ast.Module):
            continue
        names.openings.append((ast.get_docstring(node) or "").partition(" ")[0])
    return names


def test_modules_have_technical_names() -> None:
    assert [str(path.relative_to(ROOT)) for path in modules() if path.stem in MODULES] == []


@pytest.mark.parametrize("banned", [METAPHORS, PARTICIPLES], ids=["metaphors", "participles"])
def test_classes_have_technical_names(banned: set[str], named: dict[str, Names]) -> None:
    found = {path: banned.intersection(names.classes) for path, names in named.items()}
    assert {path: names for path, names in found.items() if names} == {}


def test_functions_have_technical_names(named: dict[str, Names]) -> None:
    found = {
        path: [name for name in names.functions if name.partition("_")[0] in VERBS]
        for path, names in named.items()
    }
    assert {path: names for path, names in found.items() if names} == {}


def test_docstrings_begin_plainly(named: dict[str, Names]) -> None:
    found = {path: OPENINGS.intersection(names.openings) for path, names in named.items()}
    assert {path: words for path, words in found.items() if words} == {}


def test_the_terms_of_the_project_are_in_the_glossary() -> None:
    glossary = (ROOT / "docs" / "glossary.md").read_text("utf-8").lower()
    for term in ("custody", "lane", "epoch", "segment", "service seconds"):
        assert re.search(rf"\b{term}\b", glossary), term
    terms = re.findall(r"^\| \*\*(.+?)\*\* \|", glossary, re.MULTILINE)
    assert terms == sorted(terms)
    pages = (ROOT / "docs").rglob("*.md")
    text = " ".join(page.read_text("utf-8").lower() for page in pages if page.stem != "glossary")
    assert [term for term in terms if term not in text] == []
