"""The contrast of the page's colours: light, dark and in print.

WCAG 2.2, 1.4.3 (text: 4.5 to 1) and 1.4.11 (marks of a plot: 3 to 1).
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sync.pages import page

STYLE = (Path(page.__file__).parent / "templates" / "page.css").read_text(encoding="utf-8")
SCHEMES = {
    name: dict(re.findall(r"--(\w+): (#[0-9a-f]{6});", block))
    for name, block in zip(
        ("light", "dark", "print"), re.findall(r":root \{(.*?)\}", STYLE, re.DOTALL), strict=True
    )
}


def _luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    light, dark = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("background", ["paper", "card", "tint"])
@pytest.mark.parametrize("name", ["ink", "soft", "link", "good", "calm", "wrong", "notice"])
def test_text_is_readable(scheme: str, background: str, name: str) -> None:
    colours = SCHEMES[scheme]
    assert contrast(colours[name], colours[background]) >= 4.5


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize(
    "name", ["good", "calm", "wrong", "unknown", "first", "second", "third", "edge"]
)
def test_marks_of_plots_are_visible(scheme: str, name: str) -> None:
    assert contrast(SCHEMES[scheme][name], SCHEMES[scheme]["card"]) >= 3


def test_every_scheme_has_every_colour() -> None:
    assert set(SCHEMES["light"]) == set(SCHEMES["dark"]) == set(SCHEMES["print"])
    used = set(re.findall(r"var\(--(\w+)\)", STYLE)) - {"mark"}
    assert used <= set(SCHEMES["light"])
