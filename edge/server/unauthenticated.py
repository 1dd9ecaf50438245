"""Limits on unauthenticated connections, shared fairly among source addresses.

If there is no room, a new connection replaces an old one: the oldest of its own address, or, if all
addresses together have too many, the oldest of the address that has most. So idle connections do
not keep others out.
"""

from __future__ import annotations

from typing import Final, Generic, TypeVar

from edge.config.limits import Limits

T = TypeVar("T")

MIN_AGE: Final = 5.0
"""Age in seconds up to which a connection is protected, to log in over a slow radio link. It is
replaced then only if its address has at least two connections more than that of the new one."""


class UnauthenticatedConnections(Generic[T]):
    """The unauthenticated connections by source address, the oldest of each first."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._by_source: dict[str, dict[T, float]] = {}
        self._sources: dict[T, str] = {}

    def __len__(self) -> int:
        return len(self._sources)

    def largest_group(self) -> int:
        """Return the largest number of connections of one source address."""
        return max(map(len, self._by_source.values()), default=0)

    def admit(self, connection: T, source: str, now: float) -> tuple[bool, T | None]:
        """Add a connection if there is room, or if another can be replaced.

        Args:
            source: its source address, as `login_throttle.source_of` returns it.
            now: the present time in seconds.

        Returns:
            Whether the connection was added, and the connection that it replaces, if any.
        """
        full_source = self._full_source(source)
        replaced = None
        if full_source is not None:
            group = self._by_source[full_source]
            replaced = next(iter(group))
            is_young = now - group[replaced] < MIN_AGE
            if is_young and len(group) <= len(self._by_source.get(source, ())) + 1:
                return False, None
            self.remove(replaced)
        self._by_source.setdefault(source, {})[connection] = now
        self._sources[connection] = source
        return True, replaced

    def remove(self, connection: T) -> None:
        """Remove a connection, because it is authenticated or closed."""
        source = self._sources.pop(connection, None)
        if source is None:
            return
        group = self._by_source[source]
        del group[connection]
        if not group:
            del self._by_source[source]

    def _full_source(self, source: str) -> str | None:
        """Return the source that must give up a connection for one more from `source`, if any."""
        if len(self._by_source.get(source, ())) >= self._limits.unauthenticated_per_address:
            return source
        if len(self._sources) >= self._limits.unauthenticated:
            return max(self._by_source, key=lambda key: len(self._by_source[key]))
        return None
