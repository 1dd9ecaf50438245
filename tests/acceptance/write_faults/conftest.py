"""A process whose store makes the writes and syncs of an exchange, some of which fail."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from itertools import pairwise

import pytest

from edge.engine.rules import commit_window
from edge.features.custody import store as custody
from tests.helpers import power_cut
from tests.helpers.write_faults import ALL, SMALL, FaultyProcess, Run, check_complete

SPREAD = 5


@pytest.fixture(scope="module", params=["slow disk", "fast disk"])
def process(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[FaultyProcess]:
    if power_cut.compiler() is None:
        pytest.skip("no C compiler: gcc makes the library that fails writes")
    slow = request.param == "slow disk"
    with FaultyProcess(tmp_path_factory.mktemp("faults"), slow=slow) as process:
        yield process


@pytest.fixture(scope="module")
def whole(process: FaultyProcess) -> Run:
    """Run without a fault."""
    run = process.run()
    assert (run.status, run.figures.refused) == (0, 0)
    assert set(run.done) >= ALL
    assert (run.figures.behind > 6) is process.slow
    check_complete(process.path, run.done)
    return run


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit_window, "SLOW_COMMIT", -1.0)
    for name, value in SMALL.items():
        monkeypatch.setattr(custody, name, value)


@pytest.fixture
def points(scale: Callable[[int, int], int], seed: int) -> Callable[[int], list[int]]:
    """Select calls by number: all of them, or some that are spread over the run."""

    def selected(count: int) -> list[int]:
        chance, parts = random.Random(seed), scale(SPREAD, count)
        edges = [1 + part * count // parts for part in range(parts + 1)]
        return [chance.randrange(first, end) for first, end in pairwise(edges)]

    return selected
