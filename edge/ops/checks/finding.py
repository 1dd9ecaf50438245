"""A finding of `fieldpost doctor`."""

from __future__ import annotations

from typing import Final, NamedTuple

OK: Final = "ok"
NOTICE: Final = "notice"
WRONG: Final = "wrong"
VERDICTS: Final = (OK, NOTICE, WRONG)
"""By severity: nothing to do; to be looked at some day; something fails, or soon will."""


class Finding(NamedTuple):
    """One result of a check; `name` is the part checked, `remedy` is empty if nothing is to do."""

    name: str
    verdict: str
    text: str
    remedy: str = ""
