"""The fuzzing targets and their corpora.

`corpus/NAME.jsonl` has one input per line, `{"name": ..., "text": ...}`, or `"base64"` instead of
`"text"` for bytes that are not UTF-8.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Final, NamedTuple

HERE: Final = Path(__file__).parent
CORPUS: Final = HERE / "corpus"
FINDINGS: Final = HERE / "findings"
SCRATCH: Final = HERE / "scratch"
DICTIONARY: Final = HERE / "xmpp.dict"


class FuzzInput(NamedTuple):
    """An input of a corpus."""

    name: str
    data: bytes


class Target(NamedTuple):
    """A fuzzing target.

    Attributes:
        name: its name.
        check: takes an input and raises if a promise is broken.
        max_bytes: maximum size of an input.
        seeds: returns initial inputs that are derived from the code, beside those in the corpus.
    """

    name: str
    check: Callable[[bytes], None]
    max_bytes: int
    seeds: Callable[[], list[bytes]]


def names() -> list[str]:
    """Return the names of all targets."""
    return sorted(path.stem.removeprefix("fuzz_") for path in HERE.glob("fuzz_*.py"))


def load(name: str) -> Target:
    """Import a target."""
    module = import_module(f"tests.fuzz.fuzz_{name}")
    return Target(name, module.check, module.MAX_BYTES, getattr(module, "seeds", list))


def read_corpus(name: str) -> list[FuzzInput]:
    """Return the inputs in the corpus of a target."""
    inputs = []
    for line in (CORPUS / f"{name}.jsonl").read_text().splitlines():
        entry = json.loads(line)
        text = entry.get("text")
        data = base64.b64decode(entry["base64"]) if text is None else text.encode()
        inputs.append(FuzzInput(entry["name"], data))
    return inputs


def read_findings(name: str) -> list[FuzzInput]:
    """Return the inputs that a search on this machine has found."""
    paths = sorted((FINDINGS / name).glob("*"))
    return [FuzzInput(path.name, path.read_bytes()) for path in paths]


def add_to_corpus(name: str, added: FuzzInput) -> None:
    """Add an input to the corpus of a target, in place of one with the same name."""
    inputs = {old.name: old.data for old in read_corpus(name)} | {added.name: added.data}
    lines = [f"{json.dumps(_entry(*item))}\n" for item in sorted(inputs.items())]
    (CORPUS / f"{name}.jsonl").write_text("".join(lines))


def _entry(name: str, data: bytes) -> dict[str, str]:
    try:
        return {"name": name, "text": data.decode()}
    except UnicodeDecodeError:
        return {"name": name, "base64": base64.b64encode(data).decode()}
