"""Fixtures for the tests of the alerts."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers.fleet_tables import fleet_folder
from tests.sync.alerts.test_alert_monitor import Fleet


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    """A fleet folder with an ingest and an alert monitor."""
    return Fleet(fleet_folder(tmp_path / "fleet"))
