"""How long to wait before the next try: full jitter, so that many do not come back as one.

Pure: chance is an argument.
"""

from __future__ import annotations

from typing import Final

_DOUBLINGS: Final = 30
"""More only make numbers large: 2**30 s is beyond every bound."""


def delay(failures: int, chance: float, least: float, most: float) -> float:
    """Return seconds to wait after so many failures in a row (1 or more).

    Args:
        failures: how many, this one included.
        chance: uniform in [0, 1).
        least: seconds that are waited in any case.
        most: seconds that are never exceeded; what `chance` spreads over doubles up to these.
    """
    doubled = least * 2.0 ** min(max(failures, 0), _DOUBLINGS)
    return max(least, chance * min(most, doubled))
