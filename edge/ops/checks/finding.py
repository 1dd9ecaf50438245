"""The findings of `fieldpost doctor`."""

from __future__ import annotations

from typing import Final, NamedTuple

OK: Final = "ok"
NOTICE: Final = "notice"
WRONG: Final = "wrong"
VERDICTS: Final = (OK, NOTICE, WRONG)
"""The verdicts by severity: `ok`, `notice` (not urgent), `wrong` (fails now, or soon will)."""


class Finding(NamedTuple):
    """One result of a check; `name` is the part checked, `remedy` is empty if none is needed."""

    name: str
    verdict: str
    text: str
    remedy: str = ""
