from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from edge.cli.commands import main
from edge.config.limits import Limits
from edge.engine.store import tables
from edge.event_counts import LOGIN_REASONS
from edge.features.queues.rules.diagnosis import Reason
from edge.features.queues.store import queue_items
from edge.features.queues.store.queue_items import Lock, NewQueuedItem
from edge.ops import setup
from edge.ops.devices import devices
from edge.ops.transactions import changing
from tests.helpers import queue_rows, waiting
from tests.helpers.command_tree import command_tree, leaves

ROOT = Path(__file__).parents[2]
HOW_TO = ROOT / "docs" / "how-to"
OPERATE = (HOW_TO / "operate.md").read_text("utf-8")
QUEUES = (HOW_TO / "messages-and-queues.md").read_text("utf-8")
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

RUN_ELSEWHERE = {"access.md", "devices.md", "run-the-centre.md", "send-and-listen.md"}
"""Guides whose examples other tests run: `test_access_guide`, `test_device_cli`,
`test_centre_guide`, `test_send_and_listen_guide`."""

EXAMPLES = {
    path.name: found
    for path in sorted(HOW_TO.glob("*.md"))
    if path.name not in RUN_ELSEWHERE
    and (found := re.findall(r"^\$ fieldpost (.+)$", path.read_text("utf-8"), re.MULTILINE))
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A gateway with three dead letters, the second in doubt, and a queue with a locked item and a
    dead one."""
    created = tmp_path / "gw"
    setup.init(created, "gw.example")
    devices.add(created, "valve", "x", trusted=True)
    with changing(created) as tx:
        waiting.add_dead_letter(tx, "m1")
        waiting.add_dead_letter(tx, "m2", state="in doubt", session="valve@gw.example/fw")
        waiting.add_dead_letter(tx, "m3")
        work = queue_rows.node(tx)
        taken, _other = (
            queue_items.enqueue(tx, work, NewQueuedItem("work", item, queue_rows.PUBLISHER, b""))
            for item in ("job-7", "job-8")
        )
        queue_items.lock(tx, work, taken, Lock(0, queue_rows.FIRST, 60.0))
        queue_items.dead_letter(tx, 2, "given out 5 times")
    return created


@pytest.mark.parametrize("guide", sorted(EXAMPLES))
def test_examples_of_a_guide_run(folder: Path, guide: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder.parent)
    for example in EXAMPLES[guide]:
        result = CliRunner().invoke(main, example.split(), env={"FIELDPOST_DIR": str(folder)})
        assert result.exit_code == 0, f"{example}: {result.output}"


COMMANDS, LEAVES = command_tree(main), leaves(main)


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_each_command_that_a_document_names_exists(path: Path) -> None:
    text = path.read_text("utf-8")
    for words in re.findall(r"(?:`|^\$ )fieldpost ((?:[a-z]+ ?)+)", text, re.MULTILINE):
        parts = tuple(words.split())
        without_arguments = next((parts[:n] for n in (1, 2) if parts[:n] in LEAVES), parts)
        assert without_arguments in COMMANDS, f"fieldpost {words}"


def test_the_table_of_commands_is_complete() -> None:
    table = OPERATE[OPERATE.index("## Commands") : OPERATE.index("Every command takes")]
    for name, *parts in LEAVES:
        [row] = [line for line in table.splitlines() if f"`fieldpost {name}" in line] or [""]
        assert row, name
        for part in parts:
            assert re.search(rf"`(fieldpost {name} )?{part}\b", row), f"{name} {part}"


def test_each_reason_why_an_item_waits_is_in_the_table() -> None:
    rows = re.findall(r"^\| [a-z]* ?\| `([a-z_]+)` \| .+ \| .+ \|$", QUEUES, re.MULTILINE)
    assert rows == list(dict.fromkeys(rows))
    assert set(rows) - {"why"} == {reason.value for reason in Reason}


def test_the_table_of_limits_has_every_limit_with_a_usage() -> None:
    table = OPERATE.split("| limit reached |")[1].split("\n\n")[0]
    rows = re.findall(r"^\| (`.+?) \|", table, re.MULTILINE)
    found = [name for row in rows for name in re.findall(r"`(.+?)`", row)]
    patterns = [re.compile(name.replace("*", "[a-z_]+")) for name in found]
    for pattern in patterns:
        assert any(map(pattern.fullmatch, Limits.__struct_fields__)), pattern
    declared = [names for each in tables.declared() for names in (*each.totals, *each.largest)]
    for names in declared:
        assert all(any(pattern.fullmatch(name) for pattern in patterns) for name in names), names


def test_the_reasons_of_failed_logins_are_counted_from_zero() -> None:
    sentence = re.search(r"reason, which is one of (.+?)\. If TLS", OPERATE, re.DOTALL)
    assert sentence is not None
    assert re.findall(r"`(.+?)`", sentence[1].replace("\n", " ")) == list(LOGIN_REASONS)
