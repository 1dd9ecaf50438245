"""Fixtures that every kind of test may use."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

LONG = os.environ.get("FIELDPOST_TEST_LONG") == "1"


@pytest.fixture
def scale() -> Callable[[int, int], int]:
    """Choose a count: `scale(small, full)`; `make test-long` asks for the full one."""
    return lambda small, full: full if LONG else small
