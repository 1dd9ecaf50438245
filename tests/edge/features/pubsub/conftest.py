"""Fixtures for tests of publish-subscribe."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from edge.config.limits import Limits
from edge.config.options import Pubsub
from tests.helpers.people import PUMP, VALVE, make_available, provision
from tests.helpers.pubsub import NODE, create
from tests.helpers.store import Gateway, MakeGateway


@pytest.fixture
def build(make_gateway: MakeGateway) -> Callable[..., Gateway]:
    """A function that builds a gateway with some limits and uplink topics.

    Nodes below `auto/` are auto-created. The pump owns `NODE`, which is open to all.
    """

    def build(*, topics: tuple[str, ...] = (), **limits: float) -> Gateway:
        limits_ = Limits(**limits)  # type: ignore[arg-type]
        gateway = make_gateway(limits_, pubsub=Pubsub(auto_create=["auto/#"]), topics=topics)
        provision(gateway)
        make_available(gateway, VALVE)
        create(gateway, PUMP, NODE, publish_model="open")
        return gateway

    return build
