"""Fixtures for the tests of the engine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.store import Gateway, new_database


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The database of a new gateway."""
    return new_database(tmp_path)


@pytest.fixture
def gateway(path: Path) -> Iterator[Gateway]:
    """A gateway without devices."""
    made = Gateway(path)
    yield made
    made.close()
