"""The command `fieldpost-fleet fleets`."""

from __future__ import annotations

from pathlib import Path

import pytest

from sync.pages.files import write_report
from sync.storage.local import LocalStorage
from sync.storage.locations import open_storage
from tests.helpers.fleet_command import fleet_command
from tests.helpers.object_store import BUCKET
from tests.helpers.sound_findings import sound_findings


@pytest.mark.parametrize("place", ["local", "s3"])
def test_a_page_is_written_from_the_reports(
    place: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    out = str(tmp_path)
    if place == "s3":
        request.getfixturevalue("s3")
        out = f"s3://{BUCKET}/reports"
    for name in ("north", "south"):
        write_report(sound_findings(), open_storage(f"{out}/{name}"))
    done = fleet_command("fleets", "--out", out, "north", "south", "south")
    assert (done.returncode, done.stdout) == (0, f"page {out}/index.html\n")
    page = open_storage(out).read("index.html").decode()
    assert page.count("/index.html") > 2
    assert "40\u202f000" in page


def test_a_missing_report_is_an_error_after_the_page_is_written(tmp_path: Path) -> None:
    write_report(sound_findings(), LocalStorage(tmp_path / "north"))
    done = fleet_command("fleets", "--out", tmp_path, "north", "south")
    assert done.returncode == 1
    assert done.stderr == "Error: south: There is no report of this fleet.\n"
    assert "There is no report of this fleet." in (tmp_path / "index.html").read_text()


def test_a_report_is_not_replaced(tmp_path: Path) -> None:
    write_report(sound_findings(), LocalStorage(tmp_path))
    before = (tmp_path / "index.html").read_bytes()
    done = fleet_command("fleets", "--out", tmp_path, "gateways")
    assert (done.returncode, "has the report of one fleet" in done.stderr) == (1, True)
    assert (tmp_path / "index.html").read_bytes() == before


@pytest.mark.parametrize("name", ["..", "a/b", "", ".hidden", "-x y", "nörd"])
def test_a_name_that_is_no_folder_is_wrong_usage(name: str, tmp_path: Path) -> None:
    done = fleet_command("fleets", "--out", tmp_path, "--", name)
    assert (done.returncode, list(tmp_path.iterdir())) == (2, [])


def test_names_are_required(tmp_path: Path) -> None:
    assert fleet_command("fleets", "--out", tmp_path).returncode == 2
