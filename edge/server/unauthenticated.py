"""Who has connected and not logged in yet: bounded in number, and shared fairly by address.

Where there is no room, a newcomer is preferred to those who sit there: a stranger of its own
address that has been there for a while makes room, and where the addresses together are too many,
one of the address that has most. So nobody who opens connections and says nothing, or next to
nothing, keeps others out. What is done to a connection that has to go is the registry's.
"""

from __future__ import annotations

from typing import Final, Generic, TypeVar

from edge.config.limits import Limits

T = TypeVar("T")

PATIENCE: Final = 5.0
"""Seconds that a stranger may sit there without making room for another of its own address: a
log-in takes less than that on a slow radio, and most of it is waiting for the peer."""


class Strangers(Generic[T]):
    """The strangers, by address, each address's oldest first."""

    def __init__(self, limits: Limits) -> None:
        self._total = limits.unauthenticated
        self._per_address = limits.unauthenticated_per_address
        self._by_source: dict[str, dict[T, float]] = {}
        self._sources: dict[T, str] = {}

    def __len__(self) -> int:
        return len(self._sources)

    def __contains__(self, stranger: T) -> bool:
        return stranger in self._sources

    def fullest(self) -> int:
        """Return how many the address has that has most."""
        return max(map(len, self._by_source.values()), default=0)

    def admit(self, newcomer: T, source: str, now: float) -> tuple[bool, T | None]:
        """Take a newcomer in, if there is room or somebody makes room.

        Args:
            newcomer: who comes.
            source: the address, as `throttle.source` gives it.
            now: the present second.

        Returns:
            Whether the newcomer may stay, and who has to go for that, if anybody has.
        """
        place = self._crowded(source)
        goes = None
        if place is not None:
            goes = self._oldest(place)
            has, wants = len(self._by_source[place]), len(self._by_source.get(source, ()))
            fresh = now - self._by_source[place][goes] < PATIENCE
            if fresh and has <= wants + 1:
                return False, None
            self.remove(goes)
        self._by_source.setdefault(source, {})[newcomer] = now
        self._sources[newcomer] = source
        return True, goes

    def remove(self, stranger: T) -> None:
        """Forget one: it has logged in, or it is gone."""
        source = self._sources.pop(stranger, None)
        if source is None:
            return
        there = self._by_source[source]
        del there[stranger]
        if not there:
            del self._by_source[source]

    def _crowded(self, source: str) -> str | None:
        """Return the address that has to make room for one more from `source`, if one has to."""
        if len(self._by_source.get(source, ())) >= self._per_address:
            return source
        if len(self._sources) >= self._total:
            return max(self._by_source, key=lambda place: len(self._by_source[place]))
        return None

    def _oldest(self, source: str) -> T:
        return next(iter(self._by_source[source]))
