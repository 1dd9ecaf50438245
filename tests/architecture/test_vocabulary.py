"""Names of modules and classes that a stranger would not understand are not used."""

from __future__ import annotations

import ast
import re
from pathlib import Path

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


def names(path: Path) -> dict[str, set[str]]:
    """Return the names of a module and of what it defines, and the first words of docstrings."""
    module = ast.parse(path.read_text("utf-8"))
    nodes = list(ast.walk(module))
    functions = [n for n in nodes if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
    classes = [node for node in nodes if isinstance(node, ast.ClassDef)]
    documented = [*functions, *classes, module]
    return {
        "module": {path.stem},
        "class": {node.name.lstrip("_") for node in classes},
        "function": {node.name.lstrip("_").partition("_")[0] for node in functions},
        "docstring": {(ast.get_docstring(each) or "").partition(" ")[0] for each in documented},
    }


@pytest.fixture(scope="module")
def named() -> dict[str, dict[str, set[str]]]:
    modules = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
    return {str(path.relative_to(ROOT)): names(path) for path in modules}


@pytest.mark.parametrize(
    ("what", "banned"),
    [("module", MODULES), ("class", METAPHORS | PARTICIPLES), ("function", VERBS),
     ("docstring", OPENINGS)],
)  # fmt: skip
def test_names_are_technical_and_docstrings_begin_plainly(
    what: str, banned: set[str], named: dict[str, dict[str, set[str]]]
) -> None:
    found = {path: banned & each[what] for path, each in named.items()}
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
