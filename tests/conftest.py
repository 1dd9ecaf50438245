"""Fixtures that every kind of test may use."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest
from xdist.scheduler import LoadFileScheduling

if TYPE_CHECKING:
    from xdist.remote import Producer

LONG = os.environ.get("FIELDPOST_TEST_LONG") == "1"

COUNTED = "tests/integration/"
"""The tests whose processes count for coverage. It costs each process a fifth of a second, and a
gateway half of its speed."""

UNCOUNTED = ("tests/integration/test_attack_", "tests/integration/test_hostile_")
"""Of these, the ones that only run hard what the others run too."""


class _Files(LoadFileScheduling):  # type: ignore[misc] # it has no types
    """Gives each file to one worker, and all tests of Spark to one: a session of it is dear."""

    def _split_scope(self, nodeid: str) -> str:
        folder = "tests/spark/"
        return folder if nodeid.startswith(folder) else str(super()._split_scope(nodeid))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> _Files:
    return _Files(config, log)


@pytest.fixture(scope="module", autouse=True)
def _processes(request: pytest.FixtureRequest) -> Iterator[None]:
    """Has coverage follow into processes where they count."""
    tests = request.node.nodeid
    with pytest.MonkeyPatch.context() as patch:
        if not tests.startswith(COUNTED) or tests.startswith(UNCOUNTED):
            patch.delenv("COVERAGE_PROCESS_CONFIG", raising=False)
        yield


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
