from __future__ import annotations

import json
import os
import platform
import pwd
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from edge import __version__
from edge.__main__ import run_options
from edge.build_kind import build_kind
from edge.cli.commands import main
from edge.engine.store import database, events, meta
from edge.engine.store.database import Transaction
from edge.engine.store.events import NewEvent
from edge.features.eventlog.store import segments
from tests.helpers.command_tree import leaves
from tests.helpers.folder import change, fieldpost
from tests.helpers.store import digest_of


def write(folder: Path) -> str:
    """Write three events; return the epoch."""
    full = NewEvent(
        *("reading", "pump1@gw.example/fw", None, "temperature", 21.5, "°C"),
        *("Warning", "hot", 2, 17, {"node": "n"}),
    )
    purged = NewEvent("queue", topic="work", name="purged", value=8.0, unit="items")

    def unit(tx: Transaction) -> str:
        events.append(tx, events.READINGS, full)
        for event in (NewEvent("system", name="start"), purged):
            events.append(tx, events.SYSTEM, event)
        return meta.read_text(tx, meta.EPOCH)

    return change(folder, unit)


def log(folder: Path, event: NewEvent) -> None:
    change(folder, lambda tx: events.append(tx, events.LOGS, event))


def test_version() -> None:
    output = CliRunner().invoke(main, ["--version"]).output
    assert output == (
        f"fieldpost, version {__version__} ({build_kind()}, Python {platform.python_version()})\n"
    )


def test_command_imports_no_other_command() -> None:
    code = (
        "import sys; from edge.cli.commands import main;"
        "main(['status', '--help'], standalone_mode=False);"
        "print(*(name for name in sys.modules if name.startswith('edge.cli.')))"
    )
    proc = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert proc.stdout.splitlines()[-1].split() == ["edge.cli.commands", "edge.cli.status"]


def test_init_prints_the_next_step(tmp_path: Path) -> None:
    result = fieldpost(tmp_path / "gw", "init", "--domain", "gw.example")
    assert result.exit_code == 0
    assert result.output.startswith(f"created gw.example in {tmp_path / 'gw'}; next: ")


COMMANDS = leaves(main)


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_errors_are_one_line_and_status_1(
    command: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "backup").write_text("not a backup")
    leaf = COMMANDS[command]
    extra = {"init": ["--domain", "GW"], "send": ["--to", "pump1"]}.get(command[0], [])
    extra += ["--yes"] * any(each.name == "yes" for each in leaf.params)
    arguments = [
        {"switch": "on", "file": "backup", "right": "publish"}.get(each.name or "", "1")
        for each in leaf.params
        if isinstance(each, click.Argument)
    ]
    result = fieldpost(tmp_path / "nowhere", *command, *arguments, *extra)
    if command == ("doctor",):
        assert (result.exit_code, result.output.startswith("wrong  configuration")) == (1, True)
    else:
        assert (result.exit_code, result.output.count("\n")) == (1, 1), result.output
        assert result.output.startswith("Error: ")


def test_wrong_usage_has_status_2(folder: Path) -> None:
    for arguments in (("init",), ("device", "add"), ("nothing",)):
        assert fieldpost(folder, *arguments).exit_code == 2


def test_events_as_json(folder: Path) -> None:
    epoch = write(folder)
    lines = fieldpost(folder, "events", "--json").output.splitlines()
    reading, system, _ = map(json.loads, lines)
    assert (reading.pop("time") > 1_700_000_000_000, system.pop("time") > 0) == (True, True)
    assert reading == {
        "epoch": epoch,
        "lane": "readings",
        "seq": 1,
        "clock": False,
        "kind": "reading",
        "source": "pump1@gw.example/fw",
        "topic": None,
        "name": "temperature",
        "value": 21.5,
        "unit": "°C",
        "level": "Warning",
        "text": "hot",
        "qos": 2,
        "latency_ms": 17,
        "tags": {"node": "n"},
    }
    fields = (system["lane"], system["seq"], system["name"], system["tags"])
    assert fields == ("system", 1, "start", {})


def test_events_as_text(folder: Path) -> None:
    write(folder)
    reading, system, queue = fieldpost(folder, "events").output.splitlines()
    stamp, rest = reading.split("  ", 1)
    assert len(stamp) == len("2026-07-01T12:00:00.000Z?")
    assert stamp.endswith("Z?"), "the clock is not known to be synchronised"
    place = "readings/1  reading  pump1@gw.example/fw  temperature"
    assert rest == f"{place}  21.5 °C  Warning  hot  node=n"
    assert system.endswith("  system/1  system  start")
    assert queue.endswith("  system/2  queue  work  purged  8 items")


FORGED = "hot\n2026-07-01T12:00:00.000Z  system/1  system  stop\r\x1b[2J\u2028\u202e\x85"


def test_device_cannot_forge_a_line(folder: Path) -> None:
    tags = {"a\nb": "c\nd"}
    log(folder, NewEvent("log", "p@gw.example/\n", name="n\n", text=FORGED, qos=2, tags=tags))
    (line,) = fieldpost(folder, "events").output.removesuffix("\n").split("\n")
    assert line.isprintable()
    assert line.endswith(r"stop\r\x1b[2J\u2028\u202e\x85  a\nb=c\nd")
    (as_json,) = fieldpost(folder, "events", "--json").output.splitlines()
    assert as_json.isascii()
    assert json.loads(as_json)["text"] == FORGED


def test_characters_outside_the_encoding_are_escaped(folder: Path) -> None:
    log(folder, NewEvent("log", name="温度", text="21 °C"))
    runner = CliRunner(charset="latin-1")
    as_text = runner.invoke(main, ["events", "--dir", str(folder)])
    assert as_text.exit_code == 0
    assert as_text.output.endswith("  log  \\u6e29\\u5ea6  21 °C\n")
    as_json = runner.invoke(main, ["events", "--dir", str(folder), "--json"])
    assert json.loads(as_json.output)["name"] == "温度"


def test_invalid_database_is_reported(folder: Path) -> None:
    (folder / database.FILE_NAME).write_bytes(b"no database" * 1000)
    result = fieldpost(folder, "events")
    assert result.exit_code == 1
    assert result.output.startswith("Error: the database: ")
    assert result.output.count("\n") == 1


def test_damaged_segment_is_reported(folder: Path) -> None:
    epoch = write(folder)
    sealed = segments.NewSegment(
        *(epoch, events.READINGS, 1, 1, digest_of("x"), b"no segment", bytes(32)), ()
    )
    assert change(folder, lambda tx: segments.seal(tx, sealed))
    result = fieldpost(folder, "events")
    assert result.exit_code == 1
    assert result.output.startswith("Error: a segment in the database is damaged: ")


@pytest.mark.parametrize("command", ["status", "events", "doctor"])
def test_lost_epoch_is_reported(folder: Path, command: str) -> None:
    change(folder, lambda tx: tx.run("DELETE FROM meta WHERE key = 'epoch'"))
    result = fieldpost(folder, command)
    assert result.exit_code == 1
    assert "the database is damaged: its table `meta` has no row `epoch`" in result.output


def test_error_for_another_user_names_the_owner(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = folder.stat().st_uid
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    monkeypatch.setattr(os, "geteuid", lambda: owner)
    error = f"Error: {folder / 'fieldpost.db'} cannot be read: Permission denied"
    assert fieldpost(folder, "events").output == f"{error}\n"
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    advice = f"{folder} belongs to {pwd.getpwuid(owner).pw_name}: run this as that user"
    assert fieldpost(folder, "events").output == f"{error}; {advice}\n"
    monkeypatch.setattr(pwd, "getpwuid", {}.__getitem__)
    assert f"belongs to {owner}:" in fieldpost(folder, "events").output
    assert "run this as" not in fieldpost(folder / "none", "events").output


@pytest.mark.parametrize(
    ("arguments", "environment", "expected"),
    [
        (["run"], {"FIELDPOST_DIR": "/gw"}, ("/gw", "warning", "text")),
        (["run", "--dir", "/gw"], {"FIELDPOST_DIR": "/other"}, ("/gw", "warning", "text")),
        (["run", "--dir=/gw"], {}, ("/gw", "warning", "text")),
        (["run", "--log-format", "JSON", "--dir=/gw", "--log-level=Notice"], {},
         ("/gw", "notice", "json")),
        (["run"], {}, None),
        (["run"], {"FIELDPOST_DIR": ""}, None),
        (["run", "--dir"], {}, None),
        (["run", "--dir", ""], {}, None),
        (["run", "--dir", "--help"], {}, None),
        (["run", "--dir", __file__], {}, None),
        (["run", "--help"], {}, None),
        (["run", "--dir", "/gw", "more"], {}, None),
        (["run", "--dir", "/gw", "--log-level", "loud"], {}, None),
        (["run", "--dir", "/gw", "--log-format"], {}, None),
        (["status", "--dir", "/gw"], {}, None),
        ([], {"FIELDPOST_DIR": "/gw"}, None),
    ],
)  # fmt: skip
def test_run_starts_without_click_if_its_options_are_valid(
    arguments: list[str], environment: dict[str, str], expected: tuple[str, str, str] | None
) -> None:
    options = run_options(arguments, environment)
    assert options == (None if expected is None else (Path(expected[0]), *expected[1:]))


def test_an_invalid_log_level_lists_the_valid_ones(folder: Path) -> None:
    result = fieldpost(folder, "run", "--log-level", "loud")
    assert result.exit_code == 2
    assert "'warning', 'error'" in result.output


def test_a_missing_folder_is_answered_by_both_ways_to_name_it() -> None:
    result = CliRunner(env={"FIELDPOST_DIR": None}).invoke(main, ["status"])
    assert result.exit_code == 2
    assert "'--dir' (env var: 'FIELDPOST_DIR')" in result.output
