from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from benchmarks import scale
from edge.features.custody.rules import ACKNOWLEDGED, OFFERED, RELEASED, Answer
from edge.features.custody.xmpp import CONDITIONS
from edge.features.outbox.rules import Level
from edge.features.queues.rules.transitions import Kind
from edge.xmpp.errors import STANZA_CONDITIONS
from tests.helpers import diagrams

ROOT = Path(__file__).parents[2]
ARCHITECTURE = (ROOT / "docs" / "explanation" / "architecture.md").read_text("utf-8")
TABLES = (ROOT / "docs" / "reference" / "state-machines.md").read_text("utf-8")


def receiver_table() -> str:
    """Return the receiver's decisions in the format of the document."""
    lines = ["| request | state | reply | effect | logged as |", "| --- | --- | --- | --- | --- |"]
    tables = {"assured": OFFERED, "deliver": RELEASED, "acknowledged": ACKNOWLEDGED}
    for request, table in tables.items():
        for situation, (answer, effect, rule) in table.items():
            if isinstance(answer, Answer):
                reply = answer.value
            else:
                reply = f"`{STANZA_CONDITIONS[CONDITIONS[answer]]}/{CONDITIONS[answer]}`"
            cells = [request, situation.value, reply, effect.value, f"`{rule}`" if rule else ""]
            lines.append(f"| {' | '.join(cells)} |".replace("|  |", "| |"))
    return "\n".join(lines)


@pytest.mark.parametrize(
    "drawn",
    [
        diagrams.of_stream(),
        *map(diagrams.of_outgoing_message, Level),
        *map(diagrams.of_queued_item, Kind),
    ],
)
def test_each_diagram_is_made_from_its_table(drawn: str) -> None:
    assert f"```mermaid\n{drawn}\n```" in TABLES


def test_the_receiver_table_equals_the_decisions_of_the_code() -> None:
    assert f"\n\n{receiver_table()}\n\n" in TABLES


@pytest.mark.parametrize(
    "path",
    [
        path
        for path in sorted(ROOT.rglob("*.md"))
        if not {".venv", ".pytest_cache", "node_modules"} & set(path.parts)
    ],
    ids=lambda path: str(path.relative_to(ROOT)),
)
def test_links_between_documents_lead_somewhere(path: Path) -> None:
    text = path.read_text("utf-8")
    links = re.findall(r"\]\(([^)#\s]*)(?:#([^)\s]+))?\)", text)
    missing = []
    for link, anchor in links:
        target = path.parent / link if link else path
        if "://" in link or (not link and not anchor):
            continue
        if not (target.is_file() or (target.is_dir() and any(target.iterdir()))):
            missing.append(link)
        elif anchor and target.suffix == ".md" and anchor not in anchors(target):
            missing.append(f"{link}#{anchor}")
    assert not missing


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


LINK = r"\[`([\w.]+)`\]\(\.\./\.\./([\w/]+\.py)\)"


@pytest.mark.parametrize(("name", "file"), dict.fromkeys(re.findall(LINK, ARCHITECTURE)))
def test_each_function_that_the_architecture_names_exists(name: str, file: str) -> None:
    body = ast.parse((ROOT / file).read_text("utf-8")).body
    for part in name.split("."):
        [found] = [node for node in body if getattr(node, "name", None) == part]
        assert isinstance(found, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        body = found.body


def test_the_section_on_a_second_protocol_names_paths_that_exist() -> None:
    section = ARCHITECTURE.partition("\n## A second protocol\n")[2].partition("\n## ")[0]
    paths = re.findall(r"`((?:edge|tests)/[\w/.]+)`", section)
    assert {"edge/server/xmpp/", "edge/server/mqtt/"} <= set(paths)
    assert [path for path in paths if not (ROOT / path).exists()] == []
    features = {path.parent for path in (ROOT / "edge/features").glob("*/__init__.py")}
    of_protocols = {
        path.parent
        for protocol in ("xmpp", "mqtt")
        for path in (ROOT / "edge/features").glob(f"*/{protocol}*")
    }
    assert features <= of_protocols


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
