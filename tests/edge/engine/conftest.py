from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from edge.engine.store.group_commit import Store
from tests.helpers.store import Gateway, in_memory, new_database, opened


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The database of a new gateway."""
    return new_database(tmp_path)


@pytest.fixture
def gateway(path: Path) -> Iterator[Gateway]:
    """A gateway without devices."""
    gateway = Gateway(path)
    yield gateway
    gateway.close()


@pytest.fixture
async def store(path: Path) -> AsyncIterator[Store]:
    """The store of a new gateway, open until the end of the test."""
    async with opened(path) as store:
        yield store


@pytest.fixture
def db() -> Iterator[sqlite3.Connection]:
    """The database of a new gateway, in memory."""
    with in_memory() as connection:
        yield connection
