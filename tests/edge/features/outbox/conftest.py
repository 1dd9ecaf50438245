"""Fixtures for tests of the outbox."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.qos_devices import Build, gateway_builder
from tests.helpers.store import Gateway


@pytest.fixture
def build(tmp_path: Path) -> Iterator[Build]:
    """A function that builds gateways with some limits."""
    with gateway_builder(tmp_path) as build:
        yield build


@pytest.fixture
def gateway(build: Build) -> Gateway:
    """A gateway with the default limits."""
    return build()
