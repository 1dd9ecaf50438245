"""The configurations in docs/how-to/move-from-mosquitto.md are valid."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

from edge.config import load

PAGE: Final = Path(__file__).parents[2] / "docs/how-to/move-from-mosquitto.md"
BLOCKS: Final = re.findall(r"^```toml\n(.+?)^```", PAGE.read_text("utf-8"), re.M | re.S)


@pytest.mark.parametrize("text", BLOCKS)
def test_the_configuration_is_valid(text: str) -> None:
    assert load.parse(f'[gateway]\ndomain = "gw.example"\n{text}'.encode()).access


def test_there_are_configurations() -> None:
    assert len(BLOCKS) == 3
