"""Fixtures for the tests of the receiver."""

from __future__ import annotations

from pathlib import Path

import pytest

from sync.common.fleet_folder import FleetFolder
from tests.helpers.fleet_tables import fleet_folder


@pytest.fixture
def folder(tmp_path: Path) -> FleetFolder:
    return fleet_folder(tmp_path / "fleet")
