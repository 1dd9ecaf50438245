"""Usage of a store by each source, from a table that SQL triggers maintain.

The rows of sources that use much are kept in memory (`Transaction.cache`), because `quota` needs
them only if the store is so full that one source could exceed its limit.
"""

from __future__ import annotations

from typing import Any, Final

from edge.engine.database import Transaction
from edge.engine.quota import Usage

CACHED_SOURCES: Final = 256
"""Maximum number of cached sources of one store; a full cache is emptied."""


def get(tx: Transaction, key: str, sql: str, source: str) -> Usage:
    """Return the usage of a source, a bare JID.

    Args:
        key: the key of the store's cache in `Transaction.cache`.
        sql: the statement that reads the number and bytes of a source.
    """
    cache: dict[str, Usage] = tx.cache.setdefault(key, {})
    found = cache.get(source)
    if found is None:
        row = tx.row(sql, (source,))
        if len(cache) >= CACHED_SOURCES:
            cache.clear()
        found = cache[source] = Usage() if row is None else Usage(*row)
    return found


def count(caches: dict[str, Any], key: str, source: str, items: int, size: int) -> None:
    """Add to the cached usage of a source; `caches` is the value of `Transaction.cache`."""
    cache: dict[str, Usage] | None = caches.get(key)
    known = None if cache is None else cache.get(source)
    if cache is not None and known is not None:
        cache[source] = Usage(known.messages + items, known.bytes + size)
