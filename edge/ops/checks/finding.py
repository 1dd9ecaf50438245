"""What a look at a gateway comes to: one sentence, how bad it is, and what to do."""

from __future__ import annotations

from typing import Final, NamedTuple

OK: Final = "ok"
NOTICE: Final = "notice"
WRONG: Final = "wrong"
VERDICTS: Final = (OK, NOTICE, WRONG)
"""In order: nothing to do, to be looked at some day, something does not work or soon will not."""


class Finding(NamedTuple):
    """What was found of `name`; `remedy` is empty where there is nothing to do."""

    name: str
    verdict: str
    text: str
    remedy: str = ""
