"""Fails a run whose skipped tests are not the expected ones, from pytest's JUnit report.

Usage: skips.py REPORT.xml EXPECTED. EXPECTED has one pattern of `fnmatch` a line, against
`folder.file::test` as the report names it, and `#` comments. An xfail counts as a skip: both are
tests that showed nothing. A report without a test is a fault, not a pass.
"""

from __future__ import annotations

import sys
from fnmatch import fnmatchcase
from pathlib import Path
from xml.etree import ElementTree


def expected(text: str) -> list[str]:
    """Read the patterns, without comments and empty lines."""
    lines = (line.partition("#")[0].strip() for line in text.splitlines())
    return [line for line in lines if line]


def faults(report: bytes, patterns: list[str]) -> list[str]:
    """List the tests that were skipped and match no pattern, each with its reason."""
    root = ElementTree.fromstring(report)  # noqa: S314 - pytest wrote it a moment ago
    cases = list(root.iter("testcase"))
    if not cases:
        return ["no test ran"]
    found = []
    for case in cases:
        skipped = case.find("skipped")
        name = f"{case.get('classname') or ''}::{case.get('name')}"
        if skipped is not None and not any(fnmatchcase(name, pattern) for pattern in patterns):
            found.append(f"unexpected skip: {name}: {skipped.get('message') or 'no reason'}")
    return found


def main(argv: list[str]) -> int:
    """Print each fault; exit status 0 without one, 1 with, 2 for wrong usage."""
    if len(argv) != 3:
        sys.stderr.write("usage: skips.py REPORT.xml EXPECTED\n")
        return 2
    found = faults(Path(argv[1]).read_bytes(), expected(Path(argv[2]).read_text(encoding="utf-8")))
    for fault in found:
        sys.stderr.write(f"{fault}\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
