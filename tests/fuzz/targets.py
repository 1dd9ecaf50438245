"""The targets: what is fuzzed, where it begins, and what it has found before."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Final, NamedTuple

HERE: Final = Path(__file__).parent
CORPUS: Final = HERE / "corpus"
FINDINGS: Final = HERE / "findings"
SCRATCH: Final = HERE / "scratch"
DICTIONARY: Final = HERE / "xmpp.dict"


class Target(NamedTuple):
    """One thing that is fuzzed.

    `check` takes bytes and raises if a promise is broken; `max_bytes` bounds an input; `seeds` are
    inputs to begin with that are made from the code, beside those in the corpus.
    """

    name: str
    check: Callable[[bytes], None]
    max_bytes: int
    seeds: Callable[[], list[bytes]]

    def inputs(self) -> list[Path]:
        """List the inputs that are kept: where to begin, and past findings."""
        folders = (CORPUS / self.name, FINDINGS / self.name)
        return sorted(path for folder in folders for path in folder.glob("*") if path.is_file())


def names() -> list[str]:
    """List the targets' names."""
    return sorted(path.stem.removeprefix("fuzz_") for path in HERE.glob("fuzz_*.py"))


def load(name: str) -> Target:
    """Import a target."""
    module = import_module(f"tests.fuzz.fuzz_{name}")
    return Target(name, module.check, module.MAX_BYTES, getattr(module, "seeds", list))
