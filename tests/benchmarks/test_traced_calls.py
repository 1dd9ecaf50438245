from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import traced_calls
from benchmarks.traced_calls import ANSWER, REQUEST, TracedCalls, UnknownCallError
from tests.helpers.power_cut import Disk, Record

PROGRAM = """
import os, sys
os.chdir(sys.argv[1])
folder = os.getcwd()
with open("old", "r+b", buffering=0) as file:
    file.read(2)
    file.write(b"XY")
    file.seek(-1, os.SEEK_END)
    os.writev(file.fileno(), [b"end", b"ing"])
    os.pwrite(file.fileno(), b"P", 0)
    os.fsync(file.fileno())
with open(f"{folder}/log", "ab", buffering=0) as file:
    file.write(b"one")
    file.write(b"two")
    os.truncate(file.fileno(), 4)
    os.fdatasync(file.fileno())
os.mkdir(f"{folder}/sub")
open(f"{folder}/sub/new", "wb").write(b"new")
os.rename(f"{folder}/sub/new", f"{folder}/sub/renamed")
os.rename(f"{folder}/sub", f"{folder}/moved")
with open(f"{folder}/moved/renamed", "ab") as file:
    file.write(b" moved")
os.link(f"{folder}/log", f"{folder}/moved/link")
os.unlink(f"{folder}/gone")
open(f"{folder}/emptied", "wb").close()
open(f"{folder}/x-shm", "wb").write(b"shared memory")
open(f"{folder}2", "wb").write(b"elsewhere")
descriptor = os.open(folder, os.O_RDONLY)
os.fsync(descriptor)
"""


def contents(folder: Path) -> dict[str, bytes | None]:
    return {
        str(path.relative_to(folder)): None if path.is_dir() else path.read_bytes()
        for path in folder.rglob("*")
        if not path.name.endswith("-shm")
    }


def test_the_replay_of_traced_calls_makes_the_same_folder(tmp_path: Path) -> None:
    if shutil.which("strace") is None:
        pytest.skip("no strace (make interop-packages)")
    folder, log = tmp_path / "data", tmp_path / "calls"
    folder.mkdir()
    for name in ("old", "gone", "emptied"):
        (folder / name).write_bytes(b"0123456789")
    disk, recorded = Disk(folder), TracedCalls(folder)
    command = [*traced_calls.command(log), sys.executable, "-c", PROGRAM, str(folder)]
    # strace holds standard output until it has written the last call.
    subprocess.run(command, check=True, stdout=subprocess.PIPE, timeout=60)
    records = list(recorded.records(log, 0))
    for record in records:
        disk.replay(record)
    disk.show(folder, tmp_path / "shown")
    assert contents(tmp_path / "shown") == contents(folder)
    assert [record.kind for record in records if record.kind in "SD"] == ["S", "S", "D"]


def records(lines: str, folder: Path) -> list[Record]:
    """Read a log in which NAME stands for the hexadecimal path of the file `name` in the folder."""
    path = "".join(f"\\x{byte:02x}" for byte in str(folder / "name").encode())
    log = folder.with_name("calls")
    log.write_text(lines.replace("NAME", path), "ascii")
    return list(TracedCalls(folder).records(log, 5000))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "name").write_bytes(b"")
    return folder


CLIENT = "<TCP:[127.0.0.1:5000->127.0.0.1:41000]>"


def test_a_call_counts_when_it_returns(folder: Path) -> None:
    found = records(
        f'1 read(7{CLIENT}, "\\x61\\x62", 100) = 2\n'
        f'1 write(7{CLIENT}, "\\x63", 1 <unfinished ...>\n'
        "2 fsync(9<NAME> <unfinished ...>\n"
        "2 <... fsync resumed>) = 0\n"
        "1 <... write resumed>) = 1\n"
        "2 fsync(9<NAME>) = -1 EIO (Input/output error)\n"
        '1 write(7<TCP:[127.0.0.1:6000->127.0.0.1:41000]>, "\\x63", 1) = 1\n'
        '1 write(9<NAME>(deleted), "\\x63", 1) = 1\n'
        '1 write(7<TCP:[127.0.0.1:5000->127.0.0.1:41000]>, "\\x6',
        folder,
    )
    assert [(one.kind, one.data) for one in found] == [(REQUEST, b"ab"), ("S", b""), (ANSWER, b"c")]
    assert {one.inode for one in found if one.kind != "S"} == {41000}


@pytest.mark.parametrize(
    "call",
    [
        "mmap(NULL, 4096, PROT_READ|PROT_WRITE, MAP_SHARED, 9<NAME>, 0) = 0",
        "fallocate(9<NAME>, 0, 0, 4096) = 0",
        'unlink("\\x61") = 0',
    ],
)
def test_a_call_that_cannot_be_replayed_is_refused(call: str, folder: Path) -> None:
    with pytest.raises(UnknownCallError):
        records(f"1 {call}\n", folder)
