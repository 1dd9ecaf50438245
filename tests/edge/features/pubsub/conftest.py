"""Fixtures for tests of publish-subscribe."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from edge.config.limits import Limits
from edge.config.options import Pubsub, Readings
from tests.helpers.people import PUMP, VALVE, make_available, provision
from tests.helpers.pubsub import NODE, create
from tests.helpers.store import Gateway, MakeGateway


@pytest.fixture
def build_empty(make_gateway: MakeGateway) -> MakeGateway:
    """A function that builds a gateway without nodes, with some limits and options.

    The devices are those of `people`; the valve is available.
    """

    def build(
        *,
        pubsub: Pubsub | None = None,
        topics: Sequence[str] = (),
        readings: Sequence[Readings] = (),
        **limits: float,
    ) -> Gateway:
        options = Limits(**limits)  # type: ignore[arg-type]
        gateway = make_gateway(options, pubsub=pubsub, topics=topics, readings=readings)
        provision(gateway)
        make_available(gateway, VALVE)
        return gateway

    return build


@pytest.fixture
def build(build_empty: MakeGateway) -> MakeGateway:
    """Like `build_empty`, but nodes below `auto/` are auto-created, and the pump owns the open node
    `NODE`."""

    def build(**options: object) -> Gateway:
        gateway = build_empty(pubsub=Pubsub(auto_create=["auto/#"]), **options)
        create(gateway, PUMP, NODE, publish_model="open")
        return gateway

    return build


@pytest.fixture
def gateway(build_empty: MakeGateway) -> Gateway:
    """A gateway without nodes, with default limits."""
    return build_empty()
