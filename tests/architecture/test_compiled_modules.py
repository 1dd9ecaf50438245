from __future__ import annotations

import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_pattern_names_modules() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    hook = project["tool"]["hatch"]["build"]["targets"]["wheel"]["hooks"]["custom"]
    assert not hook["enable-by-default"]
    assert all(list(ROOT.glob(pattern)) for pattern in hook["modules"])
    assert "edge/xmpp/parser.py" in hook["modules"], "`build_kind` looks for it"
