from __future__ import annotations

import json
import os
import sqlite3
import zipfile
from contextlib import closing
from pathlib import Path

import pytest

from edge.config import load
from edge.engine.store import database, events, snapshot
from edge.engine.store.events import LOGS, SYSTEM, NewEvent
from edge.errors import FieldpostError, SetupError, StoreFull
from edge.features.eventlog.store import epochs
from edge.ops.data import backup
from edge.ops.devices import devices
from tests.helpers.folder import change, configure, fieldpost, query, system_events


@pytest.fixture
def folder(folder: Path) -> Path:
    """A gateway with an enrolment, a device and an event."""
    configure(folder, "uplink", enrolment="enrol.json")
    (folder / "enrol.json").write_text("secret")
    (folder / "enrol.json").chmod(0o600)
    devices.add(folder, "pump1", "pencil", trusted=True)
    change(folder, lambda tx: events.append(tx, LOGS, NewEvent("log", text="kept")))
    return folder


def files(folder: Path) -> dict[str, tuple[int, bytes]]:
    return {
        str(path.relative_to(folder)): (path.stat().st_mode & 0o777, path.read_bytes())
        for path in folder.rglob("*")
        if path.is_file() and not path.name.startswith(database.FILE_NAME)
    }


def rows(folder: Path) -> dict[str, list[tuple[object, ...]]]:
    """Return all rows of a database except the mark of a copy."""
    with closing(database.connect_reader(folder / database.FILE_NAME)) as connection:
        tables = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")
        table_rows = {
            name: sorted(connection.execute(f"SELECT * FROM {name}").fetchall(), key=repr)  # noqa: S608
            for (name,) in tables.fetchall()
        }
    table_rows["meta"] = [row for row in table_rows["meta"] if row[0] != epochs.COPY]
    return table_rows


def test_restore_returns_everything_marked_as_a_copy(folder: Path, tmp_path: Path) -> None:
    place, other = tmp_path / "gw.backup", tmp_path / "other"
    result = fieldpost(folder, "backup", place)
    text = f"{place} is a backup of gw.example: {place.stat().st_size} bytes\n"
    assert (result.exit_code, result.output) == (0, text)
    assert place.stat().st_mode & 0o777 == 0o600
    other.mkdir()
    result = fieldpost(other, "restore", place)
    assert result.exit_code == 0, result.output
    assert f"{other} is gw.example as of 20" in result.output
    assert "are not restored" in result.output
    assert files(other) == files(folder)
    assert other.stat().st_mode & 0o777 == 0o700
    assert rows(other) == rows(folder)
    assert [query(each, epochs.is_copy) for each in (folder, other)] == [False, True]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["gw", "gw.backup", "other"]


def test_backup_is_consistent_during_writes(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = 0

    class StepwiseCopy(sqlite3.Connection):
        """Lets another process write between the steps of the copy."""

        def backup(self, target: sqlite3.Connection, **_options: object) -> None:
            super().backup(target, pages=1, progress=write_event)

    def write_event(_status: int, _left: int, _total: int) -> None:
        nonlocal steps
        steps += 1
        if steps < 20:
            event = NewEvent("system", name="late")
            change(folder, lambda tx: events.append(tx, SYSTEM, event))

    def connect(path: Path) -> sqlite3.Connection:
        return sqlite3.connect(path, isolation_level=None, factory=StepwiseCopy)

    monkeypatch.setattr(database, "connect_reader", connect)
    backup.write(folder, tmp_path / "file")
    monkeypatch.undo()
    backup.restore(tmp_path / "file", tmp_path / "other")
    assert steps > 20
    assert query(tmp_path / "other", lambda tx: events.unsealed(tx, LOGS)) == 1
    assert system_events(tmp_path / "other") == []


def test_damaged_backup_is_refused(folder: Path, tmp_path: Path) -> None:
    place = tmp_path / "file"
    backup.write(folder, place)
    data = place.read_bytes()
    for damaged in (b"", data[: len(data) // 2], data[:-10], b"no archive\n" * 100):
        place.write_bytes(damaged)
        result = fieldpost(tmp_path / "other", "restore", place)
        assert (result.exit_code, result.output.count("\n")) == (1, 1), damaged[:20]
        assert result.output.startswith("Error: ")
    assert not (tmp_path / "other").exists()
    assert not list(tmp_path.glob(".*"))


def test_flipped_bit_is_detected_or_harmless(folder: Path, tmp_path: Path) -> None:
    place = tmp_path / "file"
    backup.write(folder, place)
    data = place.read_bytes()
    detected = 0
    for number in range(6):
        at = len(data) * (2 * number + 1) // 12
        place.write_bytes(data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :])
        try:
            backup.restore(place, tmp_path / str(number))
        except FieldpostError:
            detected += 1
        else:
            assert rows(tmp_path / str(number)) == rows(folder)
            assert files(tmp_path / str(number)) == files(folder)
    assert detected > 0


def archive(place: Path, **members: object) -> Path:
    with zipfile.ZipFile(place, "w") as file:
        for name, text in members.items():
            written = text if isinstance(text, str) else json.dumps(text)
            file.writestr(name.replace("__", "/"), written)
    return place


MANIFEST = {"backup": 1, "gateway": "gw.example", "epoch": "01JZ0000000000000000000000", "made": 0}


@pytest.mark.parametrize(
    ("members", "error"),
    [
        ({"a.txt": "x"}, "is not a backup of a gateway"),
        ({"backup.json": MANIFEST | {"backup": 2}}, "the format of the backup is not 1"),
        ({"backup.json": {"backup": 1, "gateway": "x"}}, "missing or invalid"),
        ({"backup.json": []}, "missing or invalid"),
        ({"backup.json": MANIFEST | {"made": 10**20}}, "missing or invalid"),
        ({"backup.json": MANIFEST | {"made": "today"}}, "missing or invalid"),
        ({"backup.json": MANIFEST | {"epoch": ["x"]}}, "missing or invalid"),
        ({"backup.json": MANIFEST, "..__x": ""}, "invalid name"),
        ({"backup.json": MANIFEST, "__x": ""}, "invalid name"),
        ({"backup.json": MANIFEST}, "fieldpost.toml does not exist"),
    ],
)
def test_invalid_archive_is_refused(tmp_path: Path, members: dict[str, object], error: str) -> None:
    place = archive(tmp_path / "file", **members)
    with pytest.raises(FieldpostError, match=error):
        backup.restore(place, tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_database_without_the_mark_is_refused(folder: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "file", "w") as file:
        file.writestr("backup.json", json.dumps(MANIFEST))
        for name in (load.FILE_NAME, database.FILE_NAME):
            file.write(folder / name, name)
    with pytest.raises(SetupError, match="`fieldpost backup` did not write its"):
        backup.restore(tmp_path / "file", tmp_path / "other")


def test_existing_files_are_not_replaced(folder: Path, tmp_path: Path) -> None:
    place = tmp_path / "file"
    backup.write(folder, place)
    before = place.read_bytes()
    with pytest.raises(SetupError, match="exists"):
        backup.write(folder, place)
    with pytest.raises(SetupError, match="not empty"):
        backup.restore(place, folder)
    assert place.read_bytes() == before


@pytest.mark.parametrize(
    ("place", "error", "problem"),
    [
        ((os, "fsync"), OSError(28, "No space left on device"), "No space left on device"),
        ((snapshot, "copy"), StoreFull("the database: database or disk is full"),
         "its disk has no room for a temporary copy of the database"),
        (None, None, "{}: No such file or directory"),
    ],
    ids=["full disk", "no room for the copy", "missing file"],
)  # fmt: skip
def test_failed_backup_leaves_no_file(
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    place: tuple[object, str] | None,
    error: Exception | None,
    problem: str,
) -> None:
    def fail(*_args: object) -> None:
        assert error is not None
        raise error

    if place is None:
        (folder / "enrol.json").unlink()
    else:
        monkeypatch.setattr(*place, fail)
    result = fieldpost(folder, "backup", tmp_path / "file")
    reason = problem.format(folder / "enrol.json")
    expected = f"Error: {tmp_path / 'file'} cannot be created: {reason}\n"
    assert (result.exit_code, result.output) == (1, expected)
    assert [path.name for path in tmp_path.iterdir()] == ["gw"]


def test_enrolment_outside_the_folder_is_refused(folder: Path, tmp_path: Path) -> None:
    configure(folder, "uplink", enrolment="../enrol.json")
    with pytest.raises(SetupError, match=r"\.\./enrol\.json is not in"):
        backup.write(folder, tmp_path / "file")


def test_configuration_elsewhere_is_in_the_backup(folder: Path, tmp_path: Path) -> None:
    text = (folder / load.FILE_NAME).read_text()
    (folder / load.FILE_NAME).rename(tmp_path / "etc.toml")
    (folder / load.FILE_NAME).symlink_to(tmp_path / "etc.toml")
    backup.write(folder, tmp_path / "file")
    backup.restore(tmp_path / "file", tmp_path / "again")
    assert (tmp_path / "again" / load.FILE_NAME).read_text() == text
    assert not (tmp_path / "again" / load.FILE_NAME).is_symlink()


@pytest.mark.parametrize("name", ["pki/enrol.json", "./enrol.json"])
def test_enrolment_inside_the_folder_is_restored(folder: Path, tmp_path: Path, name: str) -> None:
    (folder / "enrol.json").rename(folder / name)
    configure(folder, "uplink", enrolment=name)
    backup.write(folder, tmp_path / "file")
    backup.restore(tmp_path / "file", tmp_path / "again")
    assert (tmp_path / "again" / name).read_text() == "secret"


@pytest.mark.parametrize("name", ["{}/enrol.json", "pki/../enrol.json"])
def test_non_relative_name_is_refused(
    folder: Path, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    configure(folder, "uplink", enrolment=name.format(folder))
    monkeypatch.chdir(folder)
    for place in (folder, Path()):
        with pytest.raises(SetupError, match="relative"):
            backup.write(place, tmp_path / "file")
    assert [path.name for path in tmp_path.iterdir()] == ["gw"]
