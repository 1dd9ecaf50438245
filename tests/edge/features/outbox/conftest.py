"""Fixtures for tests of the outbox."""

from __future__ import annotations

import pytest

from tests.helpers.qos_devices import Build
from tests.helpers.store import Gateway


@pytest.fixture
def build(build_with_devices: Build) -> Build:
    """A function that builds a gateway with some limits."""
    return build_with_devices


@pytest.fixture
def gateway(build: Build) -> Gateway:
    """A gateway with the default limits."""
    return build()
