"""The `fieldpost` command: errors, usage, events. `run` is tested as a process."""

from __future__ import annotations

import json
import os
import pwd
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from edge import __version__
from edge.__main__ import run_options
from edge.build_kind import build_kind
from edge.cli.commands import main
from edge.engine import database, events, meta
from edge.engine.events import NewEvent
from edge.features.eventlog.store import segments
from edge.ops.transactions import changing
from tests.helpers.store import digest_of


def call(*args: object, text: str | None = None, env: dict[str, str] | None = None) -> Result:
    return CliRunner().invoke(main, [str(arg) for arg in args], input=text, env=env)


def write(folder: Path) -> str:
    """Write three events; return the epoch."""

    full = NewEvent(
        *("reading", "pump1@gw.example/fw", None, "temperature", 21.5, "°C"),
        *("Warning", "hot", 2, 17, {"node": "n"}),
    )
    with changing(folder) as tx:
        events.append(tx, events.READINGS, full)
        events.append(tx, events.SYSTEM, NewEvent("system", name="start"))
        event = NewEvent("queue", topic="work", name="purged", value=8.0, unit="items")
        events.append(tx, events.SYSTEM, event)
        return meta.read_text(tx, meta.EPOCH)


def test_version() -> None:
    assert call("--version").output == f"fieldpost, version {__version__} ({build_kind()})\n"


def test_command_imports_no_other_command() -> None:
    code = (
        "import sys; from edge.cli.commands import main;"
        "main(['status', '--help'], standalone_mode=False);"
        "print(*(name for name in sys.modules if name.startswith('edge.cli.')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1].split() == ["edge.cli.commands", "edge.cli.status"]


def test_init_prints_the_next_step(tmp_path: Path) -> None:
    result = call("init", "--dir", tmp_path / "gw", "--domain", "gw.example")
    assert result.exit_code == 0
    assert result.output.startswith(f"created gw.example in {tmp_path / 'gw'}; next: ")


def command_of(*names: str) -> click.Command:
    found: click.Command = main
    for name in names:
        assert isinstance(found, click.Group)
        child = found.get_command(click.Context(found), name)
        assert child is not None
        found = child
    return found


def all_commands(*names: str) -> list[tuple[str, ...]]:
    """Return the names of all commands, those in groups as pairs."""
    group = command_of(*names)
    if not isinstance(group, click.Group):
        return [names]
    children = group.list_commands(click.Context(group))
    return [leaf for child in children for leaf in all_commands(*names, child)]


@pytest.mark.parametrize("command", all_commands(), ids=" ".join)
def test_errors_are_one_line_and_status_1(
    command: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Run each command on a missing folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "backup").write_text("not a backup")
    leaf = command_of(*command)
    needed: dict[tuple[str, ...], tuple[str, ...]] = {
        ("init",): ("--domain", "GW"),
        ("send",): ("--to", "pump1"),
    }
    extra = needed.get(command, ())
    extra += ("--yes",) if any(each.name == "yes" for each in leaf.params) else ()
    arguments = [
        {"switch": "on", "file": "backup"}.get(each.name or "", "1")
        for each in leaf.params
        if isinstance(each, click.Argument)
    ]
    result = call(*command, *arguments, *extra, "--dir", tmp_path / "nowhere")
    if command == ("doctor",):
        assert (result.exit_code, result.output.startswith("wrong  configuration")) == (1, True)
    else:
        assert (result.exit_code, result.output.count("\n")) == (1, 1), result.output
        assert result.output.startswith("Error: ")


def test_wrong_usage_has_status_2(folder: Path) -> None:
    for words in (("init",), ("device", "add")):
        assert call(*words, "--dir", folder).exit_code == 2
    assert call("nothing").exit_code == 2


def test_events_as_json(folder: Path) -> None:
    epoch = write(folder)
    reading, system, _ = map(
        json.loads, call("events", "--dir", folder, "--json").output.splitlines()
    )
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
    assert (system["lane"], system["seq"], system["name"], system["tags"]) == (
        *("system", 1, "start"),
        {},
    )


def test_events_as_text(folder: Path) -> None:
    write(folder)
    reading, system, queue = call("events", "--dir", folder).output.splitlines()
    stamp, rest = reading.split("  ", 1)
    assert len(stamp) == len("2026-07-01T12:00:00.000Z?")
    assert stamp.endswith("Z?"), "the clock is not known to be synchronised"
    place = "readings/1  reading  pump1@gw.example/fw  temperature"
    assert rest == f"{place}  21.5 °C  Warning  hot  node=n"
    assert system.endswith("  system/1  system  start")
    assert queue.endswith("  system/2  queue  work  purged  8 items")


FORGED = "hot\n2026-07-01T12:00:00.000Z  system/1  system  stop\r\x1b[2J\u2028\u202e\x85"


def test_device_cannot_forge_a_line(folder: Path) -> None:
    with changing(folder) as tx:
        tags = {"a\nb": "c\nd"}
        event = NewEvent(
            "log", "p@gw.example/\n", None, "n\n", None, None, None, FORGED, 2, 1, tags
        )
        events.append(tx, events.LOGS, event)
    (line,) = call("events", "--dir", folder).output.removesuffix("\n").split("\n")
    assert line.isprintable()
    assert line.endswith(r"stop\r\x1b[2J\u2028\u202e\x85  a\nb=c\nd")
    (as_json,) = call("events", "--dir", folder, "--json").output.splitlines()
    assert as_json.isascii()
    assert json.loads(as_json)["text"] == FORGED


def test_characters_outside_the_encoding_are_escaped(folder: Path) -> None:
    with changing(folder) as tx:
        event = NewEvent("log", name="温度", text="21 °C")
        events.append(tx, events.LOGS, event)
    runner = CliRunner(charset="latin-1")
    shown = runner.invoke(main, ["events", "--dir", str(folder)])
    assert shown.exit_code == 0
    assert shown.output.endswith("  log  \\u6e29\\u5ea6  21 °C\n")
    as_json = runner.invoke(main, ["events", "--dir", str(folder), "--json"])
    assert json.loads(as_json.output)["name"] == "温度"


def test_invalid_database_is_reported(folder: Path) -> None:
    (folder / database.FILE_NAME).write_bytes(b"no database" * 1000)
    result = call("events", "--dir", folder)
    assert result.exit_code == 1
    assert result.output.startswith("Error: the database: ")
    assert result.output.count("\n") == 1


def test_damaged_segment_is_reported(folder: Path) -> None:
    epoch = write(folder)
    sealed = segments.NewSegment(
        *(epoch, events.READINGS, 1, 1, digest_of("x"), b"no segment", bytes(32)), ()
    )
    with changing(folder) as tx:
        assert segments.seal(tx, sealed)
    result = call("events", "--dir", folder)
    assert result.exit_code == 1
    assert result.output.startswith("Error: a segment in the database is damaged: ")


@pytest.mark.parametrize("command", ["status", "events", "doctor"])
def test_lost_epoch_is_reported(folder: Path, command: str) -> None:
    with closing(database.connect(folder / database.FILE_NAME)) as connection, connection:
        connection.execute("DELETE FROM meta WHERE key = ?", (meta.EPOCH,))
    result = call(command, "--dir", folder)
    assert isinstance(result.exception, SystemExit)
    assert result.exit_code == 1
    assert "the database is damaged: its table `meta` has no row `epoch`" in result.output


@pytest.mark.parametrize("key", [meta.EPOCH, meta.DECOY])
def test_gateway_does_not_start_without_a_row_of_meta(tmp_path: Path, key: str) -> None:
    folder = tmp_path / "gw"
    call("init", "--dir", folder, "--domain", "gw.example", "--listen", "127.0.0.1:0")
    with closing(database.connect(folder / database.FILE_NAME)) as connection, connection:
        connection.execute("DELETE FROM meta WHERE key = ?", (key,))
    run = [sys.executable, "-m", "edge", "run", "--dir", str(folder)]
    ended = subprocess.run(run, capture_output=True, text=True, check=False, timeout=60)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr.startswith(
        f"Error: the database is damaged: its table `meta` has no row `{key}`"
    )
    assert ended.stderr.count("\n") == 1


def test_another_user_is_told_the_owner(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    owner = folder.stat().st_uid
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    monkeypatch.setattr(os, "geteuid", lambda: owner)
    result = CliRunner().invoke(main, ["events", "--dir", str(folder)])
    path = folder / "fieldpost.db"
    told = f"Error: {path} cannot be read: Permission denied"
    assert (result.exit_code, result.output) == (1, f"{told}\n")
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    name = pwd.getpwuid(owner).pw_name
    result = CliRunner().invoke(main, ["events", "--dir", str(folder)])
    whose = f"{folder} belongs to {name}: run this as that user"
    assert (result.exit_code, result.output) == (1, f"{told}; {whose}\n")
    monkeypatch.setattr(pwd, "getpwuid", {}.__getitem__)
    result = CliRunner().invoke(main, ["events", "--dir", str(folder)])
    assert f"belongs to {owner}:" in result.output
    result = CliRunner().invoke(main, ["events", "--dir", str(folder / "none")])
    assert "run this as" not in result.output


@pytest.mark.parametrize(
    ("arguments", "environment", "expected"),
    [
        (["run"], {"FIELDPOST_DIR": "/gw"}, ("/gw", "warning", "text")),
        (["run", "--dir", "/gw"], {"FIELDPOST_DIR": "/other"}, ("/gw", "warning", "text")),
        (["run", "--dir=/gw"], {}, ("/gw", "warning", "text")),
        (
            ["run", "--log-format", "JSON", "--dir", "/gw", "--log-level=Notice"],
            {},
            ("/gw", "notice", "json"),
        ),
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
)
def test_run_starts_without_click_if_its_options_are_valid(
    arguments: list[str], environment: dict[str, str], expected: tuple[str, str, str] | None
) -> None:
    found = run_options(arguments, environment)
    assert found == (None if expected is None else (Path(expected[0]), *expected[1:]))


def test_an_invalid_log_level_lists_the_valid_ones(folder: Path) -> None:
    result = call("run", "--dir", folder, "--log-level", "loud")
    assert result.exit_code == 2
    assert "'warning', 'error'" in result.output
