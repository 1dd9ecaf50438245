"""A component refuses what it does not offer, with the reason; the documentation lists it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from edge.cli.commands import main
from edge.ops import setup
from edge.ops.component_mode import NOT_OFFERED
from tests.helpers.folder import configure, fieldpost, set_access

GUIDE = Path(__file__).parents[3] / "docs" / "how-to" / "component.md"
USER = "pump1@users.example"


def commands(name: str) -> Iterator[list[str]]:
    """Yield the words of a command in the table; for a group, those of each of its commands."""
    words, typed = name.split(), list[str]()
    context = click.Context(main)
    command: click.Command = main
    while words and isinstance(command, click.Group):
        typed.append(words.pop(0))
        found = command.get_command(context, typed[-1])
        assert found is not None
        command = found
    group = command if isinstance(command, click.Group) else None
    for sub in [""] if group is None else group.list_commands(context):
        each = command if group is None else group.get_command(context, sub)
        assert each is not None
        arguments = [_value(one) for one in each.params if isinstance(one, click.Argument)]
        options = [*words, *{"--to": [USER], "--node": ["plant"]}.get("".join(words), [])]
        if options == ["--password"]:
            options.append("correct horse")
        yield [*typed, *([sub] if sub else []), *arguments, *options]


def _value(argument: click.Argument) -> str:
    if isinstance(argument.type, click.IntRange):
        return "1"
    if isinstance(argument.type, click.Choice):
        return str(next(iter(argument.type.choices)))
    return USER if argument.name == "name" and argument.metavar in (None, "NAME") else "plant"


@pytest.fixture
def component(tmp_path: Path) -> Path:
    folder = tmp_path / "gw"
    setup.init(folder, "gw.example")
    options = {"component": "127.0.0.1:5347", "component_secret": "secret"}
    configure(folder, "xmpp", listen="", listen_tls="", **options)
    set_access(folder)
    return folder


@pytest.mark.parametrize(
    ("words", "reason"),
    [(words, reason) for name, reason in NOT_OFFERED.items() for words in commands(name)],
    ids=lambda value: value if isinstance(value, str) else " ".join(value),
)
def test_what_a_component_does_not_offer_is_refused(
    component: Path, words: list[str], reason: str
) -> None:
    result = fieldpost(component, *words)
    assert result.exit_code == 1, result.output
    assert "is not offered, because the gateway is a component" in result.output
    assert reason in result.output


def test_the_guide_lists_what_is_not_offered() -> None:
    rows = re.findall(r"^\| `(.*)` \| (.*) \|$", GUIDE.read_text("utf-8"), re.MULTILINE)
    assert rows == list(NOT_OFFERED.items())


def test_a_listening_gateway_offers_all(tmp_path: Path) -> None:
    setup.init(tmp_path / "gw", "gw.example")
    assert fieldpost(tmp_path / "gw", "queue", "list").exit_code == 0
    assert (
        json.loads(fieldpost(tmp_path / "gw", "config", "check", "--json").output)["faults"] == []
    )
