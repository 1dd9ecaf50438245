"""Fixtures for tests of the outbox."""

from __future__ import annotations

import pytest

from tests.helpers.people import VALVE
from tests.helpers.qos_devices import (
    Build,
    DeviceRequest,
    bind_eligible,
    send_to_valve,
    take_requests,
)
from tests.helpers.store import Gateway


@pytest.fixture
def build(build_with_devices: Build) -> Build:
    """A function that builds a gateway with some limits."""
    return build_with_devices


@pytest.fixture
def gateway(build: Build) -> Gateway:
    """A gateway with the default limits."""
    return build()


@pytest.fixture
def offer(gateway: Gateway) -> DeviceRequest:
    """The offer of the pump's assured message "open" to the valve's session."""
    bind_eligible(gateway, VALVE)
    send_to_valve(gateway, "open")
    (found,) = take_requests(gateway, VALVE)
    return found
