"""The description of an attack: its name, what it does, and the limits that must refuse it.

The tables are in `accounts` and `unauthenticated`; `__main__` runs them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Coroutine
from typing import Any, Final, NamedTuple

from firmware_sim.attackers.wire import Counts, Target

_UNANSWERED_S: Final = 2.0
"""Seconds at the full rate after which a limit that is not answered is exceeded."""

Work = Callable[[Target, Counts, str], Coroutine[Any, Any, None]]
"""The function of an attack: given the target, the counts, and the account (or "")."""


class Attack(NamedTuple):
    """One kind of attack.

    `about` says in a phrase what it does. `work` is restarted when it ends. The gateway must log at
    least one of the events in `rules`. `address` is the last number of the loopback address that it
    connects from. If a refusal is not `answered`, the gateway only reads more slowly.
    """

    name: str
    about: str
    work: Work
    rules: tuple[str, ...]
    trusted: bool = True
    unauthenticated: bool = False
    address: int = 2
    answered: bool = True

    @property
    def account(self) -> str:
        """The name of its account, or an empty string."""
        return "" if self.unauthenticated else re.sub(r"[^a-z]+", "-", self.name)

    @property
    def local(self) -> str:
        """The loopback address that it connects from."""
        return f"127.0.0.{self.address}"

    def is_refused(self, counts: Counts, rate: float) -> bool:
        """Return whether it was refused so far; `rate` is the maximum of stanzas a second."""
        if self.answered:
            return counts.refused + counts.closed > 0
        return counts.sent >= _UNANSWERED_S * rate

    def source(self, domain: str) -> str:
        """Return the source under which the gateway logs it: its account, or else its address."""
        return self.local if self.unauthenticated else f"{self.account}@{domain}"
