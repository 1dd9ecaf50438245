"""The operators' guide: its commands exist, and its examples work as they stand."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from edge.__main__ import main
from edge.config.limits import Limits
from edge.features.queues.rules.diagnosis import Why
from edge.features.queues.store import queues
from edge.ops import devices, setup
from edge.ops.transactions import changing
from tests.helpers import queued, waiting

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs" / "operations.md").read_text("utf-8")
GATEWAY = GUIDE.split("## The gateway\n")[1].split("\n## ")[0]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]

RUN_ELSEWHERE = {"Devices and certificates"}
"""Sections whose examples another test runs: `test_cli_device`."""

SECTIONS = {part.split("\n")[0]: part for part in GATEWAY.split("\n### ")[1:]}
EXAMPLES = {
    title: found
    for title, part in SECTIONS.items()
    if (found := re.findall(r"^\$ fieldpost (.+)$", part, re.MULTILINE))
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A gateway with three dead messages, the second in doubt, and with a queue of two items: the
    first is locked, the second dead."""
    made = tmp_path / "gw"
    setup.init(made, "gw.example")
    devices.add(made, "valve", "x", trusted=True)
    with changing(made) as tx:
        waiting.bury(tx, "m1")
        waiting.bury(tx, "m2", state="in doubt", session="valve@gw.example/fw")
        waiting.bury(tx, "m3")
        work = queued.node(tx)
        for item in ("job-7", "job-8"):
            queues.enqueue(tx, work, "work", item, queued.PUBLISHER, b"")
        queues.lock(tx, 1, 0, queued.FIRST, 60.0)
        queues.bury(tx, 2, "given out 5 times")
    return made


@pytest.mark.parametrize("title", sorted(EXAMPLES.keys() - RUN_ELSEWHERE))
def test_the_examples_work(folder: Path, title: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder.parent)
    for example in EXAMPLES[title]:
        result = CliRunner().invoke(main, example.split(), env={"FIELDPOST_DIR": str(folder)})
        assert result.exit_code == 0, f"{example}: {result.output}"


def test_each_chapter_with_examples_is_known() -> None:
    assert set(EXAMPLES) == {
        "Backups",
        "The way to the centre",
        "How it stands",
        "Messages that could not be delivered",
        "Queues",
        *RUN_ELSEWHERE,
    }


def named(text: str) -> set[tuple[str, ...]]:
    """The commands that a text names: in code, the words after `fieldpost`."""
    found = re.findall(r"(?:`|^\$ )fieldpost ((?:[a-z]+ ?)+)", text, re.MULTILINE)
    return {tuple(words.split()) for words in found}


def commands(group: click.Group) -> dict[str, click.Command]:
    context = click.Context(group)
    names = group.list_commands(context)
    return {name: found for name in names if (found := group.get_command(context, name))}


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_each_command_that_is_named_exists(path: Path) -> None:
    for words in named(path.read_text("utf-8")):
        command: click.Command = main
        for word in words:
            if not isinstance(command, click.Group):
                break  # an argument
            found = commands(command)
            assert word in found, f"fieldpost {' '.join(words)}"
            command = found[word]


def test_the_guide_names_each_command() -> None:
    told = " ".join(GATEWAY.split())
    for name, command in commands(main).items():
        assert f"`fieldpost {name}" in told
        for part in commands(command) if isinstance(command, click.Group) else ():
            assert re.search(rf"`(fieldpost {name} )?{part}\b", told), f"{name} {part}"


def test_the_guide_says_what_to_do_about_each_reason_why_an_item_waits() -> None:
    rows = re.findall(
        r"^\| [a-z]* ?\| `([a-z_]+)` \| .+ \| .+ \|$", SECTIONS["Queues"], re.MULTILINE
    )
    assert rows == list(dict.fromkeys(rows))
    assert set(rows) == {why.name.lower() for why in Why}


def test_the_limits_that_the_guide_names_are_options() -> None:
    table = SECTIONS["How it stands"].split("| reached |")[1]
    rows = re.findall(r"^\| (`.+?) \|", table, re.MULTILINE)
    patterns = [name for row in rows for name in re.findall(r"`(.+?)`", row)]
    assert len(patterns) > 10
    for pattern in patterns:
        wanted = re.compile(pattern.replace("*", "[a-z_]+"))
        assert any(map(wanted.fullmatch, Limits.__struct_fields__)), pattern
