"""Replay of the corpora, which hold initial inputs and everything that once broke a promise."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz import targets
from tests.fuzz.targets import FuzzInput, Target

TARGETS = {name: targets.load(name) for name in targets.names()}
MAX_CORPUS_BYTES = 200_000


@pytest.mark.parametrize(
    ("target", "replayed"),
    [
        pytest.param(target, replayed, id=f"{name}-{replayed.name}")
        for name, target in TARGETS.items()
        for replayed in (*targets.read_corpus(name), *targets.read_findings(name))
    ],
)
def test_no_input_breaks_a_promise(target: Target, replayed: FuzzInput) -> None:
    assert len(replayed.data) <= target.max_bytes
    target.check(replayed.data)


@pytest.mark.parametrize("target", TARGETS.values(), ids=lambda target: target.name)
def test_no_seed_breaks_a_promise(target: Target) -> None:
    for data in target.seeds():
        target.check(data)


def test_corpora_are_small_and_complete() -> None:
    assert {path.stem for path in targets.CORPUS.iterdir()} == set(TARGETS)
    assert sum(path.stat().st_size for path in targets.CORPUS.iterdir()) <= MAX_CORPUS_BYTES


def test_an_input_is_added_once_whatever_its_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "jid.jsonl").touch()
    monkeypatch.setattr(targets, "CORPUS", tmp_path)
    text, binary = FuzzInput("text", "ä\0\r\n".encode()), FuzzInput("binary", b"\xff\x00")
    for added in (text, FuzzInput("binary", b"old"), binary):
        targets.add_to_corpus("jid", added)
    assert targets.read_corpus("jid") == [binary, text]
