"""Fixtures for the tests of the receiver."""

from __future__ import annotations

from pathlib import Path

import pytest

from sync.common.fleet_folder import FleetFolder
from sync.storage.local import LocalStorage
from sync.storage.locations import open_storage
from sync.storage.storage import Storage
from tests.helpers.fleet_tables import fleet_folder
from tests.helpers.object_store import BUCKET


@pytest.fixture
def folder(tmp_path: Path) -> FleetFolder:
    return fleet_folder(tmp_path / "fleet")


@pytest.fixture(params=["disk", "s3"])
def segments(request: pytest.FixtureRequest, folder: FleetFolder) -> Storage:
    """The storage of segments: the fleet folder, and an object store."""
    if request.param == "disk":
        return LocalStorage(folder.root)
    request.getfixturevalue("s3")
    return open_storage(f"s3://{BUCKET}/fleet")
