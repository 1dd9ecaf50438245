"""Let one unit of each account run at a time, of those that take long."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable


class AccountTurns:
    """The accounts of which such a unit waits or runs; each session has at most one."""

    def __init__(self) -> None:
        self._waiting: dict[str, deque[Callable[[], None]]] = {}

    def begin(self, account: str, submit: Callable[[], None]) -> None:
        """Submit a unit of an account, now or after those of the account that came before."""
        waiting = self._waiting.get(account)
        if waiting is None:
            self._waiting[account] = deque()
            submit()
        else:
            waiting.append(submit)

    def end(self, account: str) -> None:
        """Record that a unit has run; submit the next one of the account."""
        waiting = self._waiting[account]
        if waiting:
            waiting.popleft()()
        else:
            del self._waiting[account]
