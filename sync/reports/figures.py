"""What is made of figures that are none: JSON has no infinity, and a page no word for it.

A gateway may tell any numbers, and sums of the largest are beyond all. Judges nothing.
"""

from __future__ import annotations

import sys
from dataclasses import fields, replace
from math import isfinite, isnan
from typing import Any, Final

from sync.reports.gather import Findings

MOST: Final = sys.float_info.max
"""What stands for infinity: the largest float."""


def finite(found: Findings) -> Findings:
    """Give the same rows with `MOST` for infinity, and nothing for what is no number."""
    held = {each.name: getattr(found, each.name) for each in fields(found)}
    tables: dict[str, Any] = {
        name: [_row(row) for row in rows] for name, rows in held.items() if isinstance(rows, list)
    }
    return replace(found, **tables)


def _row(row: dict[str, Any]) -> dict[str, Any]:
    odd = {
        name: _figure(value)
        for name, value in row.items()
        if isinstance(value, float) and not isfinite(value)
    }
    return row | odd if odd else row


def _figure(value: float) -> float | None:
    if isnan(value):
        return None
    return MOST if value > 0 else -MOST
