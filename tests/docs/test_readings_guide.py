"""The examples in `docs/how-to/readings-from-json.md`: rules, payloads and their readings."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from edge.config import load
from edge.engine.dispatch.hooks import Context, new_context
from edge.features.pubsub.service import publishing

GUIDE = (Path(__file__).parents[2] / "docs" / "how-to" / "readings-from-json.md").read_text("utf-8")
EXAMPLES = re.findall(
    r"```toml\n(.+?)```\n\n```text\n(.+?)```\n\n(\| node .+?)\n\n", GUIDE, re.DOTALL
)


def context(rules: str) -> Context:
    config = load.parse(f'[gateway]\ndomain = "gw.example"\n{rules}'.encode())
    return new_context("gw.example", config.limits, readings=config.readings)


def row(*cells: str | None) -> str:
    return " ".join(f"| {cell}" if cell else "|" for cell in cells) + " |"


def test_the_guide_has_an_example_of_each_family() -> None:
    assert len(EXAMPLES) == GUIDE.count("```toml") == GUIDE.count("```text") == 7


@pytest.mark.parametrize(("rules", "payloads", "table"), EXAMPLES)
def test_the_rules_read_the_payloads_as_the_guide_shows(
    rules: str, payloads: str, table: str
) -> None:
    found = []
    for line in payloads.splitlines():
        node, _, payload = line.partition(" ")
        contents = publishing.read_events(context(rules), node, payload.encode(), "text/plain")
        assert not contents.unreadable, line
        for lane, event in contents.events:
            assert lane == "readings"
            value = event.text if event.value is None else repr(event.value).removesuffix(".0")
            found.append(
                row(node, event.name, value, event.unit, (event.tags or {}).get("timestamp"))
            )
    assert found == table.splitlines()[2:]
