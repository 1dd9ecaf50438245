"""Reuse the plots of the page that a report replaces, if their values have not changed.

Each plot in a page has two digests: one of its values and of the modules that draw it, and one of
the plot itself. A plot with other values, of another version or in a damaged page is drawn again.
"""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Mapping
from importlib.resources import files
from typing import Final

import matplotlib as mpl

from sync.storage.storage import Storage

CachedPlots = Mapping[str, str]
"""The plots of a page, by the digest of their values and of the modules that draw them."""

_PLOT: Final = re.compile(r'<svg data-plot="([0-9a-f]+)-([0-9a-f]+)"(.*?</svg>)', re.DOTALL)

_SOURCES: Final = ("sync.pages", "sync.reports.shared")
"""The packages of the modules that draw plots; if one changes, all plots are drawn again."""


def read_plots(report: Storage, page: str) -> dict[str, str]:
    """Return the undamaged plots of a page, `page` in `report`; none if it cannot be read."""
    try:
        text = report.read(page).decode()
    except (OSError, UnicodeDecodeError):
        return {}
    return {
        key: found[0]
        for found in _PLOT.finditer(text)
        for key, digest in ((found[1], found[2]),)
        if _digest(f"<svg{found[3]}") == digest
    }


def draw(call: functools.partial[str], cached: CachedPlots) -> str:
    """Return the plot that `call` draws, from the cache if possible; "" if nothing is drawn."""
    key = _digest(f"{_program()} {call.func.__name__} {call.args!r} {call.keywords!r}")
    if key in cached:
        return cached[key]
    plot = call()
    return plot.replace("<svg", f'<svg data-plot="{key}-{_digest(plot)}"', 1)


@functools.cache
def _program() -> str:
    modules = [
        file.read_text(encoding="utf-8")
        for package in _SOURCES
        for file in sorted(files(package).iterdir(), key=lambda each: each.name)
        if file.name.endswith(".py")
    ]
    return _digest(f"{mpl.__version__} {modules}")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]
