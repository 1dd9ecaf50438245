"""Fixtures for the tests of the gateway."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from edge.ops import setup
from tests.helpers.people import provision
from tests.helpers.store import Gateway, new_database


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Gateway]:
    """A gateway with default options and the devices of `people`."""
    gateway = Gateway(new_database(tmp_path))
    provision(gateway)
    yield gateway
    gateway.close()


@pytest.fixture(scope="session")
def new_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a new gateway, to be copied, because keys and a database take time to make."""
    folder = tmp_path_factory.mktemp("new") / "gw"
    setup.init(folder, "gw.example")
    return folder


@pytest.fixture
def folder(tmp_path: Path, new_folder: Path) -> Path:
    """The folder of a new gateway."""
    return shutil.copytree(new_folder, tmp_path / "gw")
