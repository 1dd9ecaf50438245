"""Fixtures for tests of publish-subscribe."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from edge.config.limits import Limits
from edge.config.options import Pubsub
from tests.helpers.people import PUMP, VALVE, make_available, provision
from tests.helpers.pubsub import NODE, create
from tests.helpers.store import Gateway, new_database


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Gateway]:
    """A gateway with the default options and the devices of `people`."""
    gateway = Gateway(new_database(tmp_path))
    provision(gateway)
    yield gateway
    gateway.close()


@pytest.fixture
def build(tmp_path: Path) -> Iterator[Callable[..., Gateway]]:
    """A function that builds gateways with some limits and uplink topics.

    Nodes below `auto/` are auto-created. The pump owns `NODE`, which is open to all.
    """
    built: list[Gateway] = []

    def build(*, topics: tuple[str, ...] = (), **limits: float) -> Gateway:
        gateway = Gateway(
            new_database(tmp_path),
            Limits(**limits),  # type: ignore[arg-type]
            pubsub=Pubsub(auto_create=["auto/#"]),
            topics=topics,
        )
        built.append(gateway)
        provision(gateway)
        make_available(gateway, VALVE)
        create(gateway, PUMP, NODE, publish_model="open")
        return gateway

    yield build
    for gateway in built:
        gateway.close()
