"""The type `Attack`: a function that attacks, and the gateway's limits that must refuse it.

The modules `accounts` and `unauthenticated` list the attacks; `__main__` runs these.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Coroutine
from typing import Any, Final, NamedTuple

from firmware_sim.attackers.wire import Counts, Target

_UNANSWERED_S: Final = 2.0
"""Seconds of sending at the full rate after which an unanswered attack counts as refused."""

Work = Callable[[Target, Counts, str], Coroutine[Any, Any, None]]
"""A function that attacks a target with an account, or without one (""), and updates the counts."""


class Attack(NamedTuple):
    """One kind of attack.

    `about` is its description. `work` is restarted when it ends. The gateway must log at least one
    of the events in `rules`. Without `trusted`, its account is added with `--no-trust`. `address`
    is the last number of the loopback address from which an attack without an account connects. If
    `answered` is false, the gateway sends no errors to this attack, but reads its stanzas more
    slowly.
    """

    name: str
    about: str
    work: Work
    rules: tuple[str, ...]
    trusted: bool = True
    address: int = 0
    answered: bool = True

    @property
    def account(self) -> str:
        """The name of the attack's account; empty if the attack is unauthenticated."""
        return "" if self.address else re.sub(r"[^a-z]+", "-", self.name)

    @property
    def local(self) -> str:
        """The loopback address from which the attack connects."""
        return f"127.0.0.{self.address or 2}"

    def is_refused(self, counts: Counts, rate: float) -> bool:
        """Return whether an attack with these counts, at `rate` stanzas per second, was refused."""
        if self.answered:
            return counts.refused + counts.closed > 0
        return counts.sent >= _UNANSWERED_S * rate

    def source(self, domain: str) -> str:
        """Return the attack's source in the gateway's log: its account (bare JID) or IP address."""
        return self.local if self.address else f"{self.account}@{domain}"
