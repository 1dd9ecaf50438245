"""Fixtures for tests of messages."""

from __future__ import annotations

from typing import Any

import pytest

from edge.config.limits import Limits
from tests.helpers.people import provision
from tests.helpers.store import Gateway, MakeGateway


@pytest.fixture
def make(make_gateway: MakeGateway) -> MakeGateway:
    """A function that makes a gateway with these options and the devices of `people`."""

    def make(limits: Limits | None = None, **options: Any) -> Gateway:
        gateway = make_gateway(limits, **options)
        provision(gateway)
        return gateway

    return make
