"""Fixtures for the tests of the gateway."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from edge.ops import setup
from tests.helpers.people import provision
from tests.helpers.store import Gateway, new_database


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Gateway]:
    """A gateway with default options and the devices of `people`."""
    made = Gateway(new_database(tmp_path))
    provision(made)
    yield made
    made.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of a new gateway."""
    made = tmp_path / "gw"
    setup.init(made, "gw.example")
    return made
