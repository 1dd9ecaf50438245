from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click
import pytest

from edge.cli.commands import main as gateway
from sync.cli.main import cli as centre

ROOT = Path(__file__).parents[2]
SHARE = ROOT / "deploy" / "share"
SPEC = importlib.util.spec_from_file_location("manual", ROOT / "docs" / "manual.py")
assert SPEC is not None
assert SPEC.loader is not None
MANUAL = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(MANUAL)


def test_the_files_are_up_to_date_and_no_other_is_installed() -> None:
    assert {
        path: path.read_text("utf-8") for path in SHARE.rglob("*") if path.is_file()
    } == MANUAL.files(), "run `make docs`"


def described(path: str, command: Mapping[str, Any]) -> Iterator[tuple[str, list[str]]]:
    """Yield each command below one that click describes, and its options."""
    for name, inner in command.get("commands", {}).items():
        options = [option["opts"][0] for option in inner["params"] if "--" in option["opts"][0]]
        yield f"{path} {name}", options
        yield from described(f"{path} {name}", inner)


@pytest.mark.parametrize(("name", "group"), [("fieldpost", gateway), ("fieldpost-fleet", centre)])
def test_the_manual_page_has_every_command_and_option(name: str, group: click.Group) -> None:
    page = (SHARE / "man/man1" / f"{name}.1").read_text("utf-8").replace("\\-", "-")
    parts = dict(part.split(" [OPTIONS]", 1) for part in page.split('.SS "')[1:])
    commands = dict(described(name, click.Context(group).to_info_dict()["command"]))
    assert len(commands) > 10
    assert parts.keys() == commands.keys()
    for command, options in commands.items():
        labels = [line for line in parts[command].splitlines() if line.startswith("\\fB")]
        shown = [option for option in options if any(option in label for label in labels)]
        assert shown == [option for option in options if option != "--help"], command


def test_roff_requests_in_texts_are_escaped() -> None:
    @click.command(help=".TH is\n'no request\n\n\b\na \\ table")
    @click.option("--dot", help=".PP")
    def odd(dot: str) -> None: ...

    page = MANUAL.manual_page("odd", click.Group("odd", commands={"odd": odd}))
    assert "\n\\&.TH is\n\\&'no request\n" in page
    assert ".nf\na \\e table\n.fi\n" in page
    assert "\n\\&.PP\n" in page
