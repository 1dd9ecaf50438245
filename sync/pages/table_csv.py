"""Write tables as CSV (RFC 4180) that every reader reads alike, whatever the texts contain.

Texts come from devices. So each cell with a control character is quoted, and by default no cell
is a formula to a spreadsheet program.
"""

from __future__ import annotations

import re
from datetime import date
from typing import Any, Final

from sync.reports.shared.column import Column
from sync.reports.shared.findings import Rows
from sync.reports.shared.report import Table

FORMULA_START: Final = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")  # noqa: RUF001
"""First characters of texts that a spreadsheet program may compute as a formula, or skip before
one; the last four are the wide forms, which some programs treat alike."""

NO_FORMULA: Final = "'"
"""Is written before such a text: spreadsheet programs then show it and compute nothing."""

NUL: Final = "\u2400"
"""Replaces the character NUL, at which some readers end a cell; it is the symbol for NUL."""

_QUOTED: Final = re.compile(r'[",\x00-\x1f\x7f-\x9f\u2028\u2029]|^\s|\s$')


def table_csv(table: Table, rows: Rows, *, formulas: bool = False) -> str:
    """Return a table as CSV, with a line of column names; flags are written as words.

    With `formulas`, texts that look like a formula are written as they are, else after
    `NO_FORMULA`. An absent value is an empty cell.
    """
    lines = [",".join(column.name for column in table.columns)]
    for row in rows:
        cells = (_cell(each, row[each.name], formulas=formulas) for each in table.columns)
        lines.append(",".join(cells))
    return "\n".join(lines) + "\n"


def _cell(column: Column, value: Any, *, formulas: bool) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return column.write(value)
    if isinstance(value, date):
        return value.isoformat()
    if not isinstance(value, str):
        return str(value)
    text = value.replace("\0", NUL)
    if not formulas and text.startswith(FORMULA_START):
        text = NO_FORMULA + text
    return '"' + text.replace('"', '""') + '"' if _QUOTED.search(text) else text
