"""The guide to rights by topic: its rules are valid, and its commands print what it shows."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Final

from edge.config import load
from edge.config.options import AccessRule
from edge.ops import setup
from tests.helpers.folder import fieldpost, set_access

ROOT: Final = Path(__file__).parents[2]
TEXT: Final = (ROOT / "docs" / "how-to" / "access.md").read_text("utf-8")
RULES: Final = re.findall(r"```toml\n(.*?)```", TEXT, re.DOTALL)


def test_each_example_is_a_valid_configuration() -> None:
    assert len(RULES) == 3
    for text in RULES:
        assert load.parse(f'[gateway]\ndomain = "gw.example"\n{text}'.encode()).access


def test_the_commands_print_what_the_guide_shows(tmp_path: Path) -> None:
    folder = tmp_path / "gateway"
    setup.init(folder, "gw.example")
    for name in ("pump1", "valve"):
        assert fieldpost(folder, "device", "add", name).exit_code == 0
    set_access(folder, *(AccessRule(**rule) for rule in tomllib.loads(RULES[0])["access"]))
    shown = re.findall(r"^\$ fieldpost (.+)\n(.+\n)", TEXT, re.MULTILINE)
    assert len(shown) == 3
    for command, output in shown:
        assert fieldpost(folder, *command.replace("'", "").split()).output == output
