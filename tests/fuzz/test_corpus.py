"""What is kept of the fuzzing, replayed: where it begins, and all that once broke a promise.

It needs no atheris, and no chance.
"""

from __future__ import annotations

import pytest

from tests.fuzz import targets
from tests.fuzz.targets import Target

TARGETS = {name: targets.load(name) for name in targets.names()}
MOST_BYTES = 200_000
"""Of the corpus in the repository."""


@pytest.mark.parametrize(
    ("target", "name", "data"),
    [
        pytest.param(target, path.name, path.read_bytes(), id=f"{target.name}-{path.name}")
        for target in TARGETS.values()
        for path in target.inputs()
    ],
)
def test_no_input_breaks_a_promise(target: Target, name: str, data: bytes) -> None:
    assert len(data) <= target.max_bytes, f"{name} is larger than what is searched"
    target.check(data)


@pytest.mark.parametrize("target", TARGETS.values(), ids=lambda target: target.name)
def test_what_is_made_from_the_code_breaks_no_promise(target: Target) -> None:
    for data in target.seeds():
        target.check(data)


def test_the_corpus_is_small_and_complete() -> None:
    sizes = [path.stat().st_size for target in TARGETS.values() for path in target.inputs()]
    assert sum(sizes) <= MOST_BYTES
    assert {folder.name for folder in targets.CORPUS.iterdir()} == set(TARGETS)
