"""Fixtures that every kind of test may use."""

from __future__ import annotations

import os
import random
from collections.abc import Callable

import pytest

LONG = os.environ.get("FIELDPOST_TEST_LONG") == "1"


@pytest.fixture
def scale() -> Callable[[int, int], int]:
    """Choose a count: `scale(small, full)`; `make test-long` asks for the full one."""
    return lambda small, full: full if LONG else small


@pytest.fixture
def seed(request: pytest.FixtureRequest, record_property: Callable[[str, object], None]) -> int:
    """Choose what chance is made from: `--hypothesis-seed`, or a new one; a failure tells it."""
    given = request.config.getoption("--hypothesis-seed", default=None)
    number = int(given) if given and given != "random" else random.randrange(10**9)
    record_property("seed", number)
    print(f"seed {number}: --hypothesis-seed={number} repeats it")  # noqa: T201
    return number
