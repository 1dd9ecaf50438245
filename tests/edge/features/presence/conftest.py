"""Fixtures for tests of presence and rosters."""

from __future__ import annotations

import pytest

from edge.config.limits import Limits
from tests.helpers.rosters import provision
from tests.helpers.store import Gateway, MakeGateway


@pytest.fixture
def gateway(make_gateway: MakeGateway) -> Gateway:
    """A gateway with small limits, and the accounts and sessions of `rosters`."""
    gateway = make_gateway(Limits(presence_bytes=1024, directed_presences=2, roster_items=2))
    provision(gateway)
    return gateway
