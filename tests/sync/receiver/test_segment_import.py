"""Import of segments from folders: any layout, repetition, invalid files."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from sync.common.fleet_folder import FleetFolder
from sync.receiver.gateways import GatewayRegistry
from sync.receiver.segment_import import MAX_DEPTH
from sync.segment import MAX_FILE, identity_path
from sync.storage.locations import open_storage
from tests.helpers.fleet import GATEWAY, OTHER, contents, identity, landed, make_fleet, segment
from tests.helpers.fleet_command import fleet_command
from tests.helpers.fleet_tables import put
from tests.helpers.object_store import BUCKET


@pytest.fixture
def folder(tmp_path: Path) -> FleetFolder:
    make_fleet(tmp_path / "fleet", (GATEWAY,))
    return FleetFolder(tmp_path / "fleet")


@pytest.fixture
def stick(tmp_path: Path) -> Path:
    path = tmp_path / "stick"
    path.mkdir()
    return path


def run(folder: FleetFolder, *arguments: str | Path) -> CompletedProcess[str]:
    return fleet_command("import", *arguments, environ={"FIELDPOST_FLEET_DIR": str(folder.root)})


def test_any_layout_is_imported_and_a_repeat_has_no_effect(
    folder: FleetFolder, stick: Path
) -> None:
    names = [identity(1, 3), identity(4, 6), identity(7, 9)]
    put(stick / "9-12.seg", segment(names[2]))
    put(stick / "a" / "b" / "WRONG.SEG", segment(names[0]))
    put(stick / f"{identity_path(names[1])}.seg", segment(names[1]))
    put(stick / "notes.txt", b"not called a segment")
    put(stick / "copy" / "1.seg", segment(names[0]))
    completed = run(folder, stick)
    assert (completed.returncode, completed.stdout) == (0, "new 3  same 1  other 0  bad 0\n")
    expected = {f"{identity_path(name)}.seg": segment(name) for name in names}
    assert contents(folder.landing) == expected
    again = run(folder, stick / "copy", stick / "9-12.seg", stick, "--json")
    assert json.loads(again.stdout) == {"new": 0, "same": 6, "other": 0, "bad": 0}
    assert contents(folder.landing) == expected
    assert len(list(stick.rglob("*"))) == 11, "the source is unchanged"
    assert not list(folder.incoming.rglob("*.part"))


def test_conflict_is_set_aside_and_reported(folder: FleetFolder, stick: Path) -> None:
    put(stick / "1.seg", segment())
    put(stick / "2.seg", segment(text="pump off"))
    completed = run(folder, stick)
    assert (completed.returncode, completed.stdout) == (0, "new 1  same 0  other 1  bad 0\n")
    assert completed.stderr.startswith(f"other  {stick / '2.seg'}  conflict: ")
    assert [path.read_bytes() for path in folder.aside.rglob("*.seg")] == [segment(text="pump off")]


def test_invalid_files_are_listed_and_the_rest_imported(folder: FleetFolder, stick: Path) -> None:
    put(stick / "1.seg", b"")
    put(stick / "2.seg", segment()[:-1])
    put(stick / "3.seg", segment(identity(gateway=OTHER)))
    put(stick / "4.seg", segment())
    with put(stick / "5.seg", b"").open("r+b") as file:
        file.truncate(MAX_FILE + 1)
    completed = run(folder, stick, "--json")
    *rejections, counts = [json.loads(line) for line in completed.stdout.splitlines()]
    assert completed.returncode == 1
    assert counts == {"new": 1, "same": 0, "other": 0, "bad": 4}
    assert [(Path(each["path"]).name, each["reason"]) for each in rejections] == [
        ("1.seg", "short"),
        ("2.seg", "checksum"),
        ("3.seg", "gateway"),
        ("5.seg", "size"),
    ]
    assert len(list(stick.iterdir())) == 5
    assert len(contents(folder.landing)) == 1


def test_unknown_gateways_need_an_option(folder: FleetFolder, stick: Path) -> None:
    put(stick / "1.seg", segment(identity(gateway=OTHER)))
    put(stick / "2.seg", segment())
    GatewayRegistry(folder).revoke(GATEWAY, 1)
    assert run(folder, stick).stdout.endswith("new 0  same 0  other 0  bad 2\n")
    completed = run(folder, stick, "--any")
    assert (completed.returncode, completed.stdout) == (0, "new 2  same 0  other 0  bad 0\n")


def test_links_pipes_and_deep_folders_are_not_followed(
    folder: FleetFolder, stick: Path, tmp_path: Path
) -> None:
    put(tmp_path / "elsewhere" / "1.seg", segment())
    (stick / "folder").symlink_to(tmp_path / "elsewhere")
    (stick / "1.seg").symlink_to(tmp_path / "elsewhere" / "1.seg")
    os.mkfifo(stick / "2.seg")
    assert run(folder, stick).stdout == "new 0  same 0  other 0  bad 0\n"
    deep = stick.joinpath(*["d"] * MAX_DEPTH)
    put(deep / "3.seg", segment())
    completed = run(folder, stick)
    assert completed.stdout == "new 0  same 0  other 0  bad 1\n"
    assert completed.stderr.startswith(f"bad  {deep}  read: "), "a skipped folder is reported"
    pipe = run(folder, stick / "2.seg")
    assert (pipe.returncode, "neither a regular file" in pipe.stderr) == (1, True)
    linked = run(folder, stick / "folder")
    assert linked.stdout == "new 1  same 0  other 0  bad 0\n", "a named link is followed"


def test_unreadable_folder_is_reported_and_the_rest_imported(
    folder: FleetFolder, stick: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, name in enumerate("abc"):
        put(stick / name / "1.seg", segment(identity(3 * number + 1, 3 * number + 3)))
    scandir = os.scandir

    def failing_scandir(path: str | Path) -> object:
        if path == stick / "b":
            raise OSError(errno.EIO, "Input/output error", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", failing_scandir)
    completed = run(folder, stick)
    assert (completed.returncode, completed.stdout) == (1, "new 2  same 0  other 0  bad 1\n")
    assert completed.stderr.startswith(f"bad  {stick / 'b'}  read: ")


@pytest.mark.parametrize("flags", [(), ("--json",)])
def test_file_names_of_any_bytes_are_printed_in_one_line(
    folder: FleetFolder, stick: Path, flags: tuple[str, ...]
) -> None:
    for name in (b"\xff.seg", b"a\x1b[2J\nnew  9.seg", "\u202e.seg".encode()):
        (stick / os.fsdecode(name)).write_bytes(b"x")
    put(stick / "z.seg", segment(identity()))
    completed = run(folder, stick, *flags)
    assert completed.returncode == 1
    assert len(contents(folder.landing)) == 1
    lines = (completed.stdout + completed.stderr).splitlines()
    assert len(lines) == 4
    assert all(line.isprintable() for line in lines)


def test_unreadable_file_is_reported(folder: FleetFolder, stick: Path) -> None:
    path = put(stick / "1.seg", segment())
    (stick / "2.seg").symlink_to(path)
    completed = run(folder, stick / "2.seg")
    assert completed.returncode == 1
    assert "read: " in completed.stderr


def test_full_disk_ends_the_import_and_it_can_be_repeated(
    folder: FleetFolder, stick: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for first in (1, 4, 7):
        name = identity(first, first + 2)
        put(stick / f"{first}.seg", segment(name))
    real, calls = os.fsync, list[int]()

    def failing_fsync(number: int) -> None:
        calls.append(number)
        if len(calls) > 10:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(number)

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", failing_fsync)
        completed = run(folder, stick)
    assert (completed.returncode, completed.stderr) == (1, f"Error: {os.strerror(errno.ENOSPC)}\n")
    assert completed.stdout.startswith("new "), "imported segments are counted"
    assert 0 < len(contents(folder.landing)) < 3
    assert not list(folder.incoming.rglob("*.part"))
    assert run(folder, stick).returncode == 0
    assert len(contents(folder.landing)) == 3


def test_import_keeps_the_reserve_free(
    folder: FleetFolder, stick: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(stick / "1.seg", segment())
    monkeypatch.setattr("sync.receiver.disk_quota.DiskQuota.free", lambda _: 0)
    completed = run(folder, stick)
    assert completed.returncode == 1
    assert "reserve" in completed.stderr


def test_import_without_path_is_wrong_usage(folder: FleetFolder) -> None:
    assert run(folder).returncode == 2
    assert run(folder, folder.root / "missing").returncode == 2


def test_segments_are_imported_into_a_bucket(folder: FleetFolder, stick: Path, s3: str) -> None:
    put(stick / "1.seg", segment())
    put(stick / "2.seg", segment(text="pump off"))
    uri = f"s3://{BUCKET}/fleet"
    completed = run(folder, stick, "--landing", f"{uri}/landing")
    assert (completed.returncode, completed.stdout) == (0, "new 1  same 0  other 1  bad 0\n")
    assert f"kept as {uri}/aside/" in completed.stderr
    assert landed(open_storage(uri)) == {identity(): segment()}
    assert contents(folder.landing) == {}
