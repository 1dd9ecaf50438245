"""Fixtures for the tests of the receiver."""

from __future__ import annotations

from pathlib import Path

import pytest

from sync.common.fleet_folder import FleetFolder


@pytest.fixture
def folder(tmp_path: Path) -> FleetFolder:
    """A new fleet folder."""
    fleet = FleetFolder(tmp_path / "fleet")
    fleet.create()
    return fleet
