"""Usage of a store by each source, from a table.

New rows are counted in batches (`count_new`), because a trigger for each row takes far longer; SQL
triggers count rows that are deleted.

The total is kept in memory (`Transaction.cache`), and so are the rows of sources that use much,
because `quota` needs them only if the store is so full that one source could exceed its limit.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from edge.engine.rules.quota import Usage
from edge.engine.store.database import Transaction

CACHED_SOURCES: Final = 256
"""Maximum number of cached sources of one store; a full cache is emptied."""


def get(tx: Transaction, key: str, sql: str, source: str | None = None) -> Usage:
    """Return the usage of a source, a bare JID, or of all sources.

    Args:
        key: the key of the store's cache in `Transaction.cache`.
        sql: the statement that reads the number and bytes of a source, or of all.
    """
    cache: dict[str | None, Usage] = tx.cache.setdefault(key, {})
    found = cache.get(source)
    if found is None:
        row = tx.row(sql, () if source is None else (source,))
        if len(cache) >= CACHED_SOURCES:
            cache.clear()
        found = cache[source] = Usage() if row is None else Usage(*row)
    return found


def count(caches: dict[str, Any], key: str, source: str, items: int, size: int) -> None:
    """Add to the usage of a source and of all sources in a store's cache, if they are cached.

    `caches` is `Transaction.cache`.
    """
    cache: dict[str | None, Usage] | None = caches.get(key)
    if cache is None:
        return
    known = cache.get(source)
    if known is not None:
        cache[source] = Usage(known.messages + items, known.bytes + size)
    known = cache.get(None)
    if known is not None:
        cache[None] = Usage(known.messages + items, known.bytes + size)


def count_new(
    tx: Transaction, statements: tuple[str, str, str], rows: Iterable[tuple[int, str, int, int]]
) -> None:
    """Count new rows of a store in the database.

    Args:
        statements: they add ?3 rows with ?4 bytes to the counts of a node or queue (?1), to those
            of an author (?2), and to the total.
        rows: the number of the node or queue, the author, the number of rows and their bytes. A
            row in place of another is no further one, and its bytes are the difference.
    """
    counts: dict[tuple[int, str], tuple[int, int]] = {}
    for place, author, items, size in rows:
        counted = counts.get((place, author), (0, 0))
        counts[place, author] = counted[0] + items, counted[1] + size
    values = [(*key, *count) for key, count in counts.items() if count != (0, 0)]
    if values:
        *of_places, of_all = statements
        for sql in of_places:
            tx.run_many(sql, values)
        tx.run(of_all, (None, None, sum(row[2] for row in values), sum(row[3] for row in values)))
