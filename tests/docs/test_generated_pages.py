from __future__ import annotations

import ast
import importlib.util
import re
from pathlib import Path

import pytest

from tests.helpers import promtool

ROOT = Path(__file__).parents[2]
SPEC = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
assert SPEC is not None
assert SPEC.loader is not None
GENERATE = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(GENERATE)

DESCRIBED = [
    (kind, name)
    for row in re.findall(
        r"^\| (`.+?`) \|", (ROOT / "docs/reference/events.md").read_text("utf-8"), re.MULTILINE
    )
    for kind, name in re.findall(r"`(\S+) (\S+)`", row)
]
"""Kind and name of each event in the page of events."""

FROM_DEVICES = {"reading", "log"}
"""Kinds of events whose names devices choose."""


@pytest.mark.parametrize("name", sorted(GENERATE.PAGES))
def test_a_generated_page_is_up_to_date(name: str) -> None:
    page = (ROOT / "docs" / "reference" / name).read_text("utf-8")
    assert page == GENERATE.PAGES[name](), "run `make docs`"


@pytest.mark.parametrize("component", ["gateway", "receiver"])
def test_promtool_has_no_warning_about_metrics(component: str) -> None:
    promtool.run("check", "metrics", text=getattr(GENERATE, f"_{component}_exposition")())


def logged_events() -> set[tuple[str, str]]:
    """Find the kinds and names of events that the code logs as literals."""
    found = set()
    for path in (ROOT / "edge").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("NewEvent"):
                fields: dict[str | None, ast.expr] = dict(
                    zip(("kind", "source", "topic", "name"), node.args, strict=False)
                )
                fields |= {word.arg: word.value for word in node.keywords}
                kind, name = fields.get("kind"), fields.get("name")
                if isinstance(kind, ast.Constant) and isinstance(name, ast.Constant):
                    found.add((str(kind.value), str(name.value)))
    return found


def test_every_event_that_the_code_logs_is_described() -> None:
    logged = {event for event in logged_events() if event[0] not in FROM_DEVICES}
    assert len(logged) > 15
    assert logged <= set(DESCRIBED)


def test_events_are_described_once() -> None:
    assert len(DESCRIBED) == len(set(DESCRIBED))
