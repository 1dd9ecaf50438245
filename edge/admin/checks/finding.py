"""What a look at a gateway comes to: one sentence, how bad it is, and what to do."""

from __future__ import annotations

import math
from typing import Final, NamedTuple

OK: Final = "ok"
NOTICE: Final = "notice"
WRONG: Final = "wrong"
VERDICTS: Final = (OK, NOTICE, WRONG)
"""In order: nothing to do, to be looked at some day, something does not work or soon will not."""


_UNITS: Final = ("bytes", "KiB", "MiB", "GiB", "TiB")


class Finding(NamedTuple):
    """What was found of `name`; `remedy` is empty where there is nothing to do."""

    name: str
    verdict: str
    text: str
    remedy: str = ""


def size(count: float) -> str:
    """Write a number of bytes for people."""
    power = min(int(math.log2(max(count, 1)) / 10), len(_UNITS) - 1)
    return f"{count / 1024**power:.{min(power, 1)}f} {_UNITS[power]}"
