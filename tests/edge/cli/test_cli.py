"""The `fieldpost` command: what it prints, and how it fails. `run` is tested as a process."""

from __future__ import annotations

import json
import os
import pwd
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from edge import __version__, credentials
from edge.__main__ import main
from edge.engine import database, events, meta
from edge.engine.database import Transaction
from edge.engine.events import NewEvent
from edge.features.accounts.store import accounts
from edge.features.eventlog.store import segments
from edge.ops import current_time
from edge.ops.transactions import changing
from tests.helpers.store import digest_of


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "gw"
    assert call("init", "--dir", made, "--domain", "gw.example").exit_code == 0
    return made


def call(*args: object, text: str | None = None, env: dict[str, str] | None = None) -> Result:
    return CliRunner().invoke(main, [str(arg) for arg in args], input=text, env=env)


def password_of(folder: Path, name: str) -> credentials.Credentials | None:
    with (
        closing(database.connect_reader(folder / database.FILE_NAME)) as connection,
        database.transaction(connection, current_time.now(), "BEGIN") as tx,
    ):
        return accounts.credentials(tx, name, "SCRAM-SHA-256")


def write(folder: Path) -> str:
    """Write two events; returns the epoch."""

    def unit(tx: Transaction) -> str:
        full = NewEvent(
            *("reading", "pump1@gw.example/fw", None, "temperature", 21.5, "°C"),
            *("Warning", "hot", 2, 17, {"node": "n"}),
        )
        events.append(tx, events.READINGS, full)
        events.append(tx, events.SYSTEM, NewEvent("system", name="start"))
        return meta.read_text(tx, meta.EPOCH)

    with (
        closing(database.connect(folder / database.FILE_NAME)) as connection,
        database.transaction(connection, current_time.now()) as tx,
    ):
        return unit(tx)


def test_the_version() -> None:
    assert call("--version").output == f"fieldpost, version {__version__}\n"


def test_a_command_imports_no_other() -> None:
    told = (
        "import sys; from edge.__main__ import main;"
        "main(['status', '--help'], standalone_mode=False);"
        "print(*(name for name in sys.modules if name.startswith('edge.cli.')))"
    )
    done = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1].split() == ["edge.cli.status"]


def test_init_says_what_comes_next(tmp_path: Path) -> None:
    result = call("init", "--dir", tmp_path / "gw", "--domain", "gw.example")
    assert result.exit_code == 0
    assert result.output.startswith(f"created gw.example in {tmp_path / 'gw'}; next: ")


def test_what_goes_wrong_is_told_in_one_line_with_status_1(folder: Path, tmp_path: Path) -> None:
    failures = [
        call("init", "--dir", folder, "--domain", "gw.example"),
        call("init", "--dir", tmp_path / "x", "--domain", "GW"),
        call("device", "add", "Pump", "--dir", folder),
        call("device", "add", "pump", "--dir", tmp_path / "nowhere"),
        call("device", "add", "pump", "--dir", folder, "--password", "\x07"),
        call("events", "--dir", tmp_path / "nowhere"),
        call("run", "--dir", tmp_path / "nowhere"),
    ]
    for result in failures:
        assert result.exit_code == 1
        assert result.output.startswith("Error: ")
        assert result.output.count("\n") == 1


def test_wrong_usage_is_status_2(folder: Path) -> None:
    device = ("device", "add", "pump", "--dir", folder)
    wrong = [
        call("init", "--dir", folder),
        call("device", "add", "--dir", folder),
        call(*device, "--password", "a", "--password-stdin", text="b\n"),
        call(*device, "--password", ""),
        call(*device, "--password-stdin", text="\n"),
        call("nothing"),
    ]
    assert [result.exit_code for result in wrong] == [2] * len(wrong)
    assert password_of(folder, "pump") is None


def test_a_device_is_added_with_a_password_that_was_made_up(folder: Path) -> None:
    result = call("device", "add", "pump1", "--dir", folder)
    assert result.exit_code == 0
    jid, password = result.output.splitlines()
    assert jid == "pump1@gw.example"
    stored = password_of(folder, "pump1")
    assert stored is not None
    assert credentials.verify(password, stored)


def test_a_device_is_added_with_a_password_of_ones_own(folder: Path) -> None:
    by_option = call("device", "add", "pump1", "--dir", folder, "--password", "secret one")
    by_input = call(
        *("device", "add", "pump2", "--dir", folder, "--password-stdin", "--no-trust"),
        text="secret two\r\nmore\n",
    )
    assert by_option.output == "pump1@gw.example\n"
    assert by_input.output == "pump2@gw.example\n"
    for name, password in (("pump1", "secret one"), ("pump2", "secret two")):
        stored = password_of(folder, name)
        assert stored is not None
        assert credentials.verify(password, stored)
    with closing(database.connect_reader(folder / database.FILE_NAME)) as connection:
        rows = connection.execute("SELECT name, trusted FROM accounts ORDER BY name").fetchall()
    assert rows == [("pump1", 1), ("pump2", 0)]


def test_the_folder_may_come_from_the_environment(folder: Path) -> None:
    result = call("device", "add", "pump1", env={"FIELDPOST_DIR": str(folder)})
    assert result.exit_code == 0


def test_events_as_json(folder: Path) -> None:
    epoch = write(folder)
    reading, system = map(json.loads, call("events", "--dir", folder, "--json").output.splitlines())
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
    reading, system = call("events", "--dir", folder).output.splitlines()
    stamp, rest = reading.split("  ", 1)
    assert len(stamp) == len("2026-07-01T12:00:00.000Z?")
    assert stamp.endswith("Z?"), "the clock is not known to be synchronised"
    place = "readings/1  reading  pump1@gw.example/fw  temperature"
    assert rest == f"{place}  21.5 °C  Warning  hot  node=n"
    assert system.endswith("  system/1  system  start")


def test_events_of_a_node_name_it(folder: Path) -> None:
    with changing(folder) as tx:
        event = NewEvent("queue", topic="work", name="purged", value=8.0, unit="items")
        events.append(tx, events.SYSTEM, event)
    (line,) = call("events", "--dir", folder).output.splitlines()
    assert line.endswith("  system/1  queue  work  purged  8 items")


def test_the_help_tells_what_the_mark_behind_a_time_means() -> None:
    told = " ".join(call("events", "--help").output.split())
    assert "`?` after a time means that the clock was not synchronised" in told


FORGED = "hot\n2026-07-01T12:00:00.000Z  system/1  system  stop\r\x1b[2J\u2028\u202e\x85"


def test_a_device_cannot_forge_a_line(folder: Path) -> None:
    with (
        closing(database.connect(folder / database.FILE_NAME)) as connection,
        database.transaction(connection, current_time.now()) as tx,
    ):
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


def test_a_terminal_that_lacks_a_character_is_shown_its_number(folder: Path) -> None:
    with (
        closing(database.connect(folder / database.FILE_NAME)) as connection,
        database.transaction(connection, current_time.now()) as tx,
    ):
        event = NewEvent("log", name="温度", text="21 °C")
        events.append(tx, events.LOGS, event)
    runner = CliRunner(charset="latin-1")
    shown = runner.invoke(main, ["events", "--dir", str(folder)])
    assert shown.exit_code == 0
    assert shown.output.endswith("  log  \\u6e29\\u5ea6  21 °C\n")
    as_json = runner.invoke(main, ["events", "--dir", str(folder), "--json"])
    assert json.loads(as_json.output)["name"] == "温度"


@pytest.mark.parametrize("kind", ["folder", "empty", "text"])
def test_a_database_that_is_none_is_told_in_one_line(folder: Path, kind: str) -> None:
    path = folder / database.FILE_NAME
    path.unlink()
    if kind == "folder":
        path.mkdir()
    else:
        path.write_bytes(b"no database" * 1000 if kind == "text" else b"")
    for command in (("device", "add", "pump1"), ("events",)):
        result = call(*command, "--dir", folder)
        assert result.exit_code == 1
        assert result.output.startswith("Error: ")
        assert "database" in result.output
        assert result.output.count("\n") == 1


def test_a_damaged_segment_is_told_and_no_traceback(folder: Path) -> None:
    epoch = write(folder)
    sealed = segments.NewSegment(
        *(epoch, events.READINGS, 1, 1, digest_of("x"), b"no segment", bytes(32)), ()
    )
    with (
        closing(database.connect(folder / database.FILE_NAME)) as connection,
        database.transaction(connection, current_time.now()) as tx,
    ):
        assert segments.seal(tx, sealed)
    result = call("events", "--dir", folder)
    assert result.exit_code == 1
    assert result.output.startswith("Error: a segment in the database is damaged: ")


def test_who_may_not_read_the_folder_is_told_whose_it_is(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
