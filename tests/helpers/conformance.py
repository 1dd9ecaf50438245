"""The tests that a table of conformance names."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]


def linked_tests(cell: str) -> list[tuple[str, str]]:
    """Return the tests to which a cell of a table links: file and function."""
    links = re.findall(r"\[(test_\w+|Test\w+)\]\(\.\./\.\./(tests/[\w/]+\.py)\)", cell)
    return [(file, name) for name, file in links]


def is_defined(file: str, name: str) -> bool:
    """Return whether a file of the repository defines a test."""
    source = (ROOT / file).read_text("utf-8")
    return re.search(rf"^(async )?def {name}\(|^{name} = ", source, re.MULTILINE) is not None
