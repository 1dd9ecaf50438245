"""Counting and logging of the server's refusals outside of units of work.

Refused connections, stream errors and database faults are counted and logged with the next
heartbeat; an event for each would let an unauthenticated peer fill the event log. The first failed
login of each kind is logged at once, and the others are counted. A refusal is counted under a rule,
the name of its reason, and a source. The gateway defines the rules, so there are few. The number of
sources is limited here; further sources are counted as `other`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final, NamedTuple

from edge.engine.dispatch.hooks import Context
from edge.engine.log import refusals
from edge.engine.log.refusals import OTHER_SOURCE
from edge.engine.store.group_commit import Store
from edge.errors import StoreBusy, StoreError, StoreFull

SOURCES: Final = 200
"""Maximum distinct pairs of source and rule between two heartbeats; further ones get the source
`other`. By default, these are a fifth of `limits.refusal_sources`, so that unauthenticated peers
leave room for accounts."""


LOGIN_KINDS: Final = 32
"""Maximum kinds of failed logins (reason, account and mechanism) of one source that are counted
separately in one `limits.refusal_window`; further ones are logged with their protocol alone. The
number is limited because peers choose the names; it is above 1 because a whole site can share one
address."""

LOGINS_AT_ONCE: Final = (8, 32)
"""Maximum failed logins, of one source and of all, that are logged immediately within one
`limits.refusal_window`. Each takes a commit, which wears the flash card; further ones are logged
with the next heartbeat."""


class Refusal(NamedTuple):
    """The source of a refusal (a bare JID, or an address as `login_throttle.source_of` returns it)
    and its rule, which may be followed by details (`refusals.with_details`)."""

    source: str
    rule: str


class RefusalCounters:
    """The number of refusals by rule, and by source if there is one, since the last heartbeat."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._sources: Counter[Refusal] = Counter()

    def add(self, rule: str, times: int = 1, source: str = "") -> None:
        """Add `times` to the count of a rule, or of a rule and a source if `source` is given."""
        if source:
            self._add(Refusal(source, rule), times)
        else:
            self._counts[rule] += times

    def add_store_error(self, error: StoreError, source: str = "") -> None:
        """Count a request that was refused because the store failed."""
        if isinstance(error, StoreFull):
            rule = error.rule
        else:
            rule = "database_busy" if isinstance(error, StoreBusy) else "database"
        self.add(rule, source=source)

    def _add(self, refusal: Refusal, times: int) -> None:
        if refusal not in self._sources and len(self._sources) >= SOURCES:
            refusal = Refusal(OTHER_SOURCE, refusals.with_protocol_only(refusal.rule))
        self._sources[refusal] += times

    def take(self) -> Counter[str]:
        """Return and reset the counts, by rule, of refusals without a source."""
        counts, self._counts = self._counts, Counter()
        return counts

    def take_sources(self) -> Counter[Refusal]:
        """Return and reset the counts, by source and rule, of refusals with a source."""
        sources, self._sources = self._sources, Counter()
        return sources

    def put_back(self, counts: Counter[str], sources: Counter[Refusal]) -> None:
        """Add counts again that `take` and `take_sources` returned and that could not be logged."""
        self._counts += counts
        for refusal, times in sources.items():
            self._add(refusal, times)


class RefusalLog:
    """A writer of refusals to the event log.

    Args:
        counters: counts the refusals that the store cannot log.
    """

    def __init__(self, store: Store, context: Context, counters: RefusalCounters) -> None:
        self._store = store
        self._context = context
        self._counters = counters
        self._logged: dict[tuple[str, str], float] = {}

    def log(self, source: str, rule: str, limit: int) -> None:
        """Log that `rule`, with this limit, refused something to a source (see `Refusal`)."""

        def answer(outcome: StoreError | None) -> None:
            if isinstance(outcome, StoreError):
                self._counters.add(rule, source=source)

        context = self._context
        self._store.submit(lambda tx: refusals.log_source(context, tx, source, rule, limit), answer)

    def log_once_per_window(self, source: str, rule: str, limit: int, now: float) -> None:
        """Log a refusal, once for each source and rule in `limits.refusal_window` seconds.

        `now` is the event loop's time.
        """
        if self._begin_window(source, rule, now):
            self.log(source, rule, limit)

    def log_failed_login(
        self,
        source: str,
        rule: str,
        reason: str,
        tags: Mapping[str, str],
        now: float,
        limit: int | None = None,
    ) -> None:
        """Log a failed login immediately if it is the first of its kind in `limits.refusal_window`
        seconds and `LOGINS_AT_ONCE` is not reached; otherwise count it.

        If the store cannot log it now, it is counted and written to the journal. `tags` are the
        event's details, `limit` the exceeded limit's value. `now` is the event loop's time.
        """
        detailed = refusals.with_details(rule, reason, tags)
        kinds = self._recent_kinds(now)
        own = kinds.count(source)
        if own >= LOGIN_KINDS and (source, detailed) not in self._logged:
            detailed = refusals.with_protocol_only(detailed)
        is_first = self._begin_window(source, detailed, now)
        if not is_first or own >= LOGINS_AT_ONCE[0] or len(kinds) >= LOGINS_AT_ONCE[1]:
            self._counters.add(detailed, source=source)
            return

        def answer(outcome: StoreError | None) -> None:
            if isinstance(outcome, StoreError):
                self._counters.add(detailed, source=source)
                self._store.on_logged((refusals.event(source, detailed, 1, limit),))

        context = self._context
        self._store.submit(
            lambda tx: refusals.log_source(context, tx, source, detailed, limit), answer
        )

    def _recent_kinds(self, now: float) -> list[str]:
        """Return the sources of the last `limits.refusal_window`, once per kind of failed login."""
        window = self._context.limits.refusal_window
        return [
            source
            for (source, rule), at in self._logged.items()
            if now - at < window and refusals.without_details(rule) != rule
        ]

    def _begin_window(self, source: str, rule: str, now: float) -> bool:
        """Return whether a rule has refused nothing to a source in `limits.refusal_window` seconds;
        if so, begin a new window.

        The windows are limited in number; the one that began first is forgotten.
        """
        limits, key = self._context.limits, (source, rule)
        before = self._logged.pop(key, None)
        if before is not None and now - before < limits.refusal_window:
            self._logged[key] = before
            return False
        self._logged[key] = now
        if len(self._logged) > limits.refusal_sources:
            del self._logged[next(iter(self._logged))]
        return True
