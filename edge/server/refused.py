"""Telling the event log of what the network refused, by rule and source.

Each is a unit of work, and folded by `handlers.refusals`; what happens too often for that is told
once a window (`tell_once`). What the store cannot note is counted by rule alone (`tally`).
"""

from __future__ import annotations

from edge.engine import refusals
from edge.engine.group_commit import Store
from edge.engine.hooks import Context
from edge.errors import StoreError
from edge.server.refusal_counters import Tally


class Refused:
    """What was refused of late.

    Args:
        store: where it is told.
        context: the gateway.
        tally: where it is counted when it cannot be told.
    """

    def __init__(self, store: Store, context: Context, tally: Tally) -> None:
        self._store = store
        self._context = context
        self._tally = tally
        self._told: dict[tuple[str, str], float] = {}

    def tell(self, source: str, rule: str, figure: int) -> None:
        """Tell that `rule` refused something to a source: a bare JID, or an address as
        `throttle.source` gives it. `figure` is the limit."""

        def answer(outcome: StoreError | None) -> None:
            if isinstance(outcome, StoreError):
                self._tally.add(rule, source=source)

        context = self._context
        self._store.submit(
            lambda tx: refusals.log_source(context, tx, source, rule, figure), answer
        )

    def tell_once(self, source: str, rule: str, figure: int, now: float) -> None:
        """Tell it unless that was told within `limits.refusal_window` seconds; `now` is the present
        second of the event loop. The sources that are told apart are bounded too: the one that was
        told longest ago is forgotten."""
        limits, key = self._context.limits, (source, rule)
        before = self._told.pop(key, None)
        if before is not None and now - before < limits.refusal_window:
            self._told[key] = before
            return
        self._told[key] = now
        if len(self._told) > limits.refusal_sources:
            del self._told[next(iter(self._told))]
        self.tell(source, rule, figure)
