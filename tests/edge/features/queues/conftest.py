"""Fixtures for the tests of queues."""

from __future__ import annotations

import pytest

from tests.helpers.queue_nodes import set_up
from tests.helpers.store import Gateway, MakeGateway


@pytest.fixture
def gateway(make_gateway: MakeGateway) -> Gateway:
    """A gateway with the queue node and the sessions of `queue_nodes`."""
    gateway = make_gateway()
    set_up(gateway)
    return gateway
