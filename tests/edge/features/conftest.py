"""Fixtures for the tests of features."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from edge.config.limits import Limits
from tests.helpers.qos_devices import Build, provision
from tests.helpers.store import Gateway, MakeGateway, in_memory, new_database


@pytest.fixture
def make_gateway(tmp_path: Path) -> Iterator[MakeGateway]:
    """A function that makes a gateway with these limits, options and accounts."""
    with ExitStack() as stack:

        def make(
            limits: Limits | None = None, *, accounts_of: Sequence[str] = (), **options: Any
        ) -> Gateway:
            gw = stack.enter_context(closing(Gateway(new_database(tmp_path), limits, **options)))
            for name in accounts_of:
                gw.add(name)
            return gw

        yield make


@pytest.fixture
def build_with_devices(make_gateway: MakeGateway) -> Build:
    """A function that makes a gateway with these limits and the devices of `qos_devices`."""
    return lambda **limits: provision(make_gateway(Limits(**limits)))


@pytest.fixture
def db() -> Iterator[sqlite3.Connection]:
    """A database in memory."""
    with in_memory() as connection:
        yield connection
