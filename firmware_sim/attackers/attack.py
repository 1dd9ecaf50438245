"""What an attack is: its name, what it does, and the rules that have to refuse it.

The tables of them are in `accounts` and `strangers`; `__main__` runs them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple

from firmware_sim.attackers.wire import Counts, Target

Work = Callable[[Target, Counts, str], Coroutine[Any, Any, None]]
"""What an attack does: against whom, what it counts in, and as whom (empty for a stranger)."""


class Attack(NamedTuple):
    """One sort of attack.

    Its `work` is begun again when it ends. `rules` are names of events, of which the gateway has to
    log one. `address` is the last number of the loopback address that it comes from.
    """

    name: str
    work: Work
    rules: tuple[str, ...]
    trusted: bool = True
    stranger: bool = False
    address: int = 2

    @property
    def account(self) -> str:
        """The name of its account; empty if it has none."""
        return "" if self.stranger else re.sub(r"[^a-z]+", "-", self.name)

    @property
    def local(self) -> str:
        """The loopback address that it comes from."""
        return f"127.0.0.{self.address}"

    def source(self, domain: str) -> str:
        """Give what the gateway's log calls it: its account, or its address if it has none."""
        return self.local if self.stranger else f"{self.account}@{domain}"
