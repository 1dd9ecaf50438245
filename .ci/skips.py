"""Fail if other tests than the expected ones were skipped, according to pytest's JUnit report.

Usage: skips.py REPORT.xml EXPECTED. EXPECTED has one `fnmatch` pattern per line for
`folder.file::test`, the name in the report, and `#` comments. An xfail counts as a skip, because
both prove nothing. A report without tests is a failure.
"""

from __future__ import annotations

import sys
from fnmatch import fnmatchcase
from pathlib import Path
from xml.etree import ElementTree


def expected(text: str) -> list[str]:
    """Return the patterns without comments and empty lines."""
    lines = (line.partition("#")[0].strip() for line in text.splitlines())
    return [line for line in lines if line]


def faults(report: bytes, patterns: list[str]) -> list[str]:
    """Return the skipped tests that match no pattern, each with its reason."""
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
    """Print each unexpected skip; return 0 if there is none, 1 if there is, 2 for wrong usage."""
    if len(argv) != 3:
        sys.stderr.write("usage: skips.py REPORT.xml EXPECTED\n")
        return 2
    found = faults(Path(argv[1]).read_bytes(), expected(Path(argv[2]).read_text(encoding="utf-8")))
    for fault in found:
        sys.stderr.write(f"{fault}\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
