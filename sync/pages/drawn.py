"""Plots of the page before: one whose values are the same is taken from there, not drawn again.

A plot in a page names a digest of what it is drawn from and by, and one of itself, so that neither
other values, nor another version of the program, nor a damaged page are ever shown for it.
"""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import matplotlib as mpl

import sync.reports.shared

Drawn = Mapping[str, str]
"""The plots of a page by the digest of what they are drawn from."""

_PLOT: Final = re.compile(r'<svg data-plot="([0-9a-f]+) ([0-9a-f]+)"(.*?</svg>)', re.DOTALL)

_SOURCES: Final = (Path(__file__).parent, Path(next(iter(sync.reports.shared.__path__))))
"""The folders of the modules that decide how a plot looks."""


def read_plots(page: Path) -> dict[str, str]:
    """Return the plots of a page that was written before, if there is one, and if it is whole."""
    try:
        text = page.read_bytes().decode()
    except (FileNotFoundError, UnicodeDecodeError):
        return {}
    return {
        key: found[0]
        for found in _PLOT.finditer(text)
        for key, digest in ((found[1], found[2]),)
        if _digest(f"<svg{found[3]}") == digest
    }


def draw(call: functools.partial[str], drawn: Drawn) -> str:
    """Return what `call` draws from its arguments, from `drawn` if they are the same; may be "".

    Raises ValueError if the function is passed anything by name, which is no part of the digest.
    """
    if call.keywords:
        msg = f"{call.func.__name__} is called with arguments by name"
        raise ValueError(msg)
    key = _digest(f"{_program()} {call.func.__name__} {call.args!r}")
    if key in drawn:
        return drawn[key]
    plot = call()
    return plot.replace("<svg", f'<svg data-plot="{key} {_digest(plot)}"', 1)


@functools.cache
def _program() -> str:
    """Return a digest of all that draws, in the form it has now."""
    files = sorted(file for folder in _SOURCES for file in folder.glob("*.py"))
    return _digest(f"{mpl.__version__} {[file.read_text(encoding='utf-8') for file in files]}")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]
