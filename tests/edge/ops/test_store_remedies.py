"""The remedies that commands name for a database that cannot be used: they work."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from edge.config import load
from edge.engine.store import database
from edge.errors import StoreBroken, StoreBusy, StoreError, StoreFull
from edge.ops.data import backup
from edge.ops.devices import devices
from edge.ops.store_remedies import store_remedy
from tests.helpers.folder import fieldpost


def damage(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[4096 * 3 : 4096 * 20] = os.urandom(4096 * 17)
    path.write_bytes(data)


@pytest.mark.parametrize("command", [("run",), ("status",), ("device", "list")])
def test_a_damaged_or_lost_database_is_restored_by_the_named_command(
    folder: Path, tmp_path: Path, command: tuple[str, ...]
) -> None:
    devices.add(folder, "pump1", "password", trusted=True)
    backup.write(folder, tmp_path / "backup.zip")
    path = folder / database.FILE_NAME
    for break_database in (damage, lambda path: path.write_bytes(b""), Path.unlink):
        break_database(path)
        done = fieldpost(folder, *command)
        assert done.exit_code == 1
        assert f"move {folder} away" in done.stderr
        assert f"`fieldpost restore FILE --dir {folder}`" in done.stderr
        shutil.rmtree(folder)
        assert fieldpost(folder, "restore", tmp_path / "backup.zip").exit_code == 0
        assert "pump1" in fieldpost(folder, "device", "list").stdout


def test_a_lost_database_without_a_backup_is_replaced_by_a_new_gateway(
    folder: Path, tmp_path: Path
) -> None:
    (folder / database.FILE_NAME).unlink()
    assert "without a backup, move" in fieldpost(folder, "status").stderr
    old = tmp_path / "old"
    folder.rename(old)
    assert fieldpost(folder, "init", "--domain", "gw.example").exit_code == 0
    shutil.copy(old / load.FILE_NAME, folder)
    shutil.copytree(old / "pki", folder / "pki", dirs_exist_ok=True)
    assert fieldpost(folder, "device", "add", "pump1", "--certificate").exit_code == 0
    assert fieldpost(folder, "status").exit_code == 0


def test_a_lost_configuration_is_written_again(folder: Path) -> None:
    (folder / load.FILE_NAME).unlink()
    advice = fieldpost(folder, "status").stderr
    assert '`[gateway]`, and on the next line `domain = "NAME"`' in advice
    assert "fieldpost init" not in advice
    (folder / load.FILE_NAME).write_text('[gateway]\ndomain = "gw.example"\n', "utf-8")
    assert fieldpost(folder, "status").exit_code == 0


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        (StoreFull("full"), "free disk space"),
        (StoreFull("full", "database_bytes"), "raise limits.database_bytes"),
        (StoreBusy("busy"), "another process uses it"),
        (StoreBroken("broken"), "see the kernel's log"),
        (StoreError("other"), "see `fieldpost doctor`"),
    ],
)
def test_each_error_has_a_remedy(tmp_path: Path, error: StoreError, remedy: str) -> None:
    assert store_remedy(error, tmp_path).startswith(remedy)
