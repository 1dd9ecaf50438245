"""A report that cannot be written is refused before it is computed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from sync.common.errors import FleetError
from sync.pages import files
from sync.pages.files import prepare_report
from sync.storage import object_store
from sync.storage.locations import open_storage
from tests.helpers.fleet_command import fleet_command
from tests.helpers.fleet_tables import Lane, fleet_folder, land, some_events, waiting_segments
from tests.helpers.object_store import BUCKET, FaultyProxy
from tests.helpers.spark_package import spark_package


def prepare(folder: Path) -> None:
    prepare_report(open_storage(str(folder), public=True))


def test_a_new_folder_is_created_and_stays_empty(tmp_path: Path) -> None:
    out = tmp_path / "a" / "b"
    prepare(out)
    assert [path.name for path in out.rglob("*")] == ["gateways"]


def test_a_folder_below_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(FleetError, match=r"cannot write the report into .*choose another --out"):
        prepare(tmp_path / "file" / "out")


@pytest.mark.parametrize("name", ["index.html", "sensors.csv", "clocks.json"])
def test_a_folder_in_the_place_of_a_file_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    with pytest.raises(FleetError, match=f"{name} is a folder"):
        prepare(tmp_path)


def test_a_full_disk_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=files.MIN_FREE - 1))
    with pytest.raises(FleetError, match="make room"):
        prepare(tmp_path)


def test_a_store_that_cannot_be_written_is_refused(
    proxy: FaultyProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(object_store, "RETRIES", 0)
    out = open_storage(f"s3://{BUCKET}/report")
    prepare_report(out)
    assert not [*out.files()]
    proxy.share, proxy.kinds, proxy.only = 1.0, ("503",), "PUT"
    with pytest.raises(FleetError, match=rf"^cannot write the report into s3://{BUCKET}/report: "):
        prepare_report(out)


@pytest.mark.parametrize("command", [("report", "--out"), ("ingest", "--report")])
def test_commands_check_the_folder_before_they_start(
    command: tuple[str, str], tmp_path: Path
) -> None:
    fleet = fleet_folder(tmp_path / "fleet")
    (tmp_path / "out").touch()
    name, option = command
    done = fleet_command(name, "--dir", fleet.root, option, tmp_path / "out" / "report")
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "cannot write the report" in done.stderr
    assert not list(fleet.tables.iterdir())


@pytest.mark.parametrize("command", [("ingest",), ("serve", "--ingest-every", "60")])
def test_commands_look_for_java_before_they_start(
    command: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet = fleet_folder(tmp_path / "fleet")
    land(fleet, Lane().seal(some_events(1)))
    monkeypatch.setattr("sync.tables.java._candidates", lambda *_: iter(()))
    done = fleet_command(*command, "--report", tmp_path / "out", "--dir", fleet.root)
    assert (done.returncode, "Spark needs Java" in done.stderr) == (1, True)
    assert len(waiting_segments(fleet)) == 1


def test_templates_are_read_from_the_zip_for_spark(tmp_path: Path) -> None:
    package = spark_package(tmp_path)
    program = (
        f"import sys; sys.path.insert(0, {str(package)!r})\n"
        "import sync.pages.page, sync.pages.plot_cache\n"
        "assert '.zip' in sync.pages.page.__file__\n"
        "sync.pages.page.check_templates()\n"
        "assert len(sync.pages.plot_cache._program()) == 32\n"
    )
    environ = os.environ | {"PYTHONSAFEPATH": "1"}
    done = subprocess.run(
        [sys.executable, "-c", program],
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
        cwd=tmp_path,
        env=environ,
    )
    assert done.returncode == 0, done.stderr
