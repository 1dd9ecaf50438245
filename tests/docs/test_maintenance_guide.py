from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sync.common.fleet_folder import FleetFolder
from tests.helpers.fleet_command import fleet_command
from tests.helpers.fleet_tables import (
    NOON,
    Lane,
    fleet_folder,
    land,
    put,
    some_events,
    waiting_segments,
)
from tests.helpers.stored_rows import stored_rows

GUIDE = Path(__file__).parents[2] / "docs" / "how-to" / "maintain-the-tables.md"

Rows = tuple[list[dict[str, Any]], list[dict[str, Any]]]


def recipes(section: str) -> list[str]:
    """Return the shell commands of a section, block by block."""
    _, _, text = GUIDE.read_text("utf-8").partition(f"\n## {section}\n")
    return re.findall(r"```sh\n(.*?)```", text.partition("\n## ")[0], re.DOTALL)


def refused(fleet: FleetFolder) -> bool:
    done = fleet_command("ingest", "--dir", fleet.root)
    return done.returncode == 1 and "see docs/how-to/maintain-the-tables.md" in done.stderr


def run(recipe: str, fleet: FleetFolder, **words: str) -> None:
    for word, meaning in {"DIR": str(fleet.root), **words}.items():
        recipe = recipe.replace(word, meaning)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["sh", "-euc", recipe], env=os.environ | {"PATH": path},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")


def ingest(fleet: FleetFolder) -> None:
    done = fleet_command("ingest", "--dir", fleet.root)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.fixture
def fleet(tmp_path: Path) -> FleetFolder:
    """Make a fleet folder whose tables have three batches, and a file in the quarantine."""
    fleet = fleet_folder(tmp_path / "fleet")
    lane, other = Lane(), Lane(gateway="other.example", lane="readings")
    first = lane.seal(some_events(1))
    land(fleet, first, at=NOON / 1000)
    for at in range(3):
        sealed = lane.seal(some_events(3, start=NOON + at * 86_400_000))
        land(fleet, sealed, at=NOON / 1000 + at * 40 * 86_400 + 0.125)
        land(fleet, other.seal(some_events(2)), at=NOON / 1000 + at)
        ingest(fleet)
    put(fleet.landing / "stick" / "copy.seg", first[1], at=NOON / 1000 + 9e6)
    put(fleet.landing / "stick" / "spoiled.seg", b"no segment", at=NOON / 1000)
    ingest(fleet)
    return fleet


def rows(fleet: FleetFolder) -> Rows:
    """Return the rows of both tables, without those of refused files and the batches' numbers.

    Without, too, what the archive has added to a file's name.
    """
    events, segments = stored_rows(fleet)
    kept = [
        row | {"batch": None, "path": re.sub(r"/r\d{19}\.", "/", row["path"])}
        for row in segments
        if row["fate"] in ("accepted", "duplicate")
    ]
    return events, sorted(kept, key=lambda row: (row["path"], row["fate"]))


def test_the_tables_are_rebuilt_from_the_archive(fleet: FleetFolder) -> None:
    before, archive = rows(fleet), sorted(fleet.archive.rglob("*.seg"))
    assert {row["fate"] for row in before[1]} == {"accepted", "duplicate"}
    [recipe] = recipes("Rebuild the tables from the archive")
    run(recipe, fleet)
    assert rows(fleet) == before
    assert waiting_segments(fleet) == set()
    assert sorted(fleet.archive.rglob("*.seg")) == archive


@pytest.mark.parametrize("pattern", ["events/**/*.parquet", "*/_delta_log/*2.json"])
def test_a_damaged_file_is_replaced_by_that_of_a_backup(
    fleet: FleetFolder, tmp_path: Path, pattern: str
) -> None:
    before = stored_rows(fleet)
    shutil.copytree(fleet.root, tmp_path / "backup")
    damaged = list(fleet.tables.glob(pattern))
    for path in damaged:
        path.write_bytes(b"")
    recipe, _ = recipes("Damaged tables")
    for path in damaged:
        file = path.relative_to(fleet.tables).as_posix()
        run(recipe, fleet, BACKUP=str(tmp_path / "backup"), FILE=file)
    assert stored_rows(fleet) == before


@pytest.mark.parametrize("lost", ["events", "segments/_delta_log"])
def test_lost_tables_are_restored_from_a_backup_and_the_archive(
    fleet: FleetFolder, tmp_path: Path, lost: str
) -> None:
    shutil.copytree(fleet.root, tmp_path / "backup")
    new = Lane(gateway="new.example").seal(some_events(4))
    land(fleet, new, at=NOON / 1000 + 20e6)
    ingest(fleet)
    before, _ = rows(fleet)
    shutil.rmtree(fleet.tables / lost)
    assert refused(fleet)
    _, recipe = recipes("Damaged tables")
    run(recipe, fleet, BACKUP=str(tmp_path / "backup"))
    events, segments = rows(fleet)
    assert events == before
    assert [row["gateway"] for row in segments if row["fate"] == "accepted"].count(new[0].gateway)
    assert waiting_segments(fleet) == set()
