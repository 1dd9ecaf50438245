"""Fixtures for all tests."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from tests.helpers import compiled

if TYPE_CHECKING:
    from tests.helpers.object_store import FaultyProxy

LONG = os.environ.get("FIELDPOST_TEST_LONG") == "1"

# Deadlines and the check for slow generation would fail on a busy machine.
TIMELESS = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("long", TIMELESS, max_examples=300)
settings.register_profile("normal", TIMELESS, max_examples=25)
settings.load_profile("long" if LONG else "normal")

compiled.skip_patches()


@pytest.fixture
def scale() -> Callable[[int, int], int]:
    """Select a count: `scale(small, full)` returns the full one under `make test-long`."""
    return lambda small, full: full if LONG else small


@pytest.fixture
def seed(request: pytest.FixtureRequest, record_property: Callable[[str, object], None]) -> int:
    """Return the seed of a randomized test: `--hypothesis-seed`, or a new one shown by failures."""
    given = request.config.getoption("--hypothesis-seed", default=None)
    number = int(given) if given and given != "random" else random.randrange(10**9)
    record_property("seed", number)
    print(f"seed {number}: --hypothesis-seed={number} repeats it")  # noqa: T201
    return number


@pytest.fixture(scope="session")
def s3_server() -> Iterator[str]:
    """Run an S3 server; return its URL."""
    from tests.helpers import object_store  # most tests need none of it

    with object_store.s3_server() as url:
        yield url


@pytest.fixture
def s3(s3_server: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Give a test an S3 server with an empty bucket, to which the environment leads; its URL."""
    from tests.helpers import object_store

    object_store.clear_bucket(s3_server)
    for name, value in object_store.environment(s3_server).items():
        monkeypatch.setenv(name, value)
    return s3_server


@pytest.fixture
def proxy(s3: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultyProxy]:
    """Lead a test to the S3 server through a proxy that fails, with times that suit it."""
    from sync.storage import object_store
    from tests.helpers.object_store import FaultyProxy, environment

    monkeypatch.setattr(object_store, "TIMEOUT", timedelta(seconds=5))
    with FaultyProxy(s3, random.Random(seed)).running() as running:
        for name, value in environment(running.url).items():
            monkeypatch.setenv(name, value)
        yield running
