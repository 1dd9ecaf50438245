"""The findings of `fieldpost doctor`."""

from __future__ import annotations

from typing import Final, NamedTuple

from sync.common.text import utc_time

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


def early(what: str, begins: int, now: int) -> tuple[str, str]:
    """Return the text and the remedy for a certificate or revocation list that is not valid yet.

    `what` names it; `begins` and `now` are in ms since 1970 UTC.
    """
    first, today = utc_time(begins, "minutes"), utc_time(now, "minutes")
    text = f"{what} is not valid before {first}, and the clock shows {today}"
    return text, "the clock is behind: set it, and check the time service (`timedatectl`)"
