"""Fixtures for tests of publish-subscribe."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.people import provision
from tests.helpers.store import Gateway, new_database


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Gateway]:
    """A gateway with the default options and the devices of `people`."""
    gateway = Gateway(new_database(tmp_path))
    provision(gateway)
    yield gateway
    gateway.close()
