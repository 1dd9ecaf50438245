"""The pinned versions of dependencies."""

from __future__ import annotations

import re
from importlib.metadata import distributions
from pathlib import Path

from packaging.specifiers import SpecifierSet

OLDEST = "3.11.2"
"""The oldest supported Python: that of Debian 12."""

CONSTRAINTS = Path(__file__).parents[2] / "constraints.txt"


def test_pinned_packages_can_be_installed_by_the_oldest_python() -> None:
    pinned = set(re.findall(r"^([\w.-]+)==(\S+)", CONSTRAINTS.read_text("utf-8"), re.MULTILINE))
    installed = {(found.name, found.version): found.metadata for found in distributions()}
    checked = [installed[one] for one in pinned if one in installed]
    assert len(checked) > len(pinned) / 2
    needs = {found["Name"]: found.json.get("requires_python", "") for found in checked}
    too_new = [name for name, wanted in needs.items() if OLDEST not in SpecifierSet(str(wanted))]
    assert too_new == []
