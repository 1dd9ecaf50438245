"""Cache who gets what is published to each node, and who may publish to it, in memory.

Nodes are known by name, because a publication may need no stored node (`NEW_NODE`). What is cached
of a node is dropped when the node, its affiliations or its own subscriptions change. A change of
topic filters drops nothing: if it makes a difference to the recipients, they are found again from
the rest, without a statement. A change of an account empties the whole of `Transaction.cache`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any, Final, NamedTuple

from edge.engine.store.database import Transaction
from edge.topics import matches

CACHED: Final = 8192
"""Maximum number of what is cached of all nodes together: nodes, recipients, subscriptions,
affiliations and publishers; a full cache is emptied."""

CHANGES: Final = 256
"""Maximum number of changes of filters that are kept: while sessions subscribe to many filters,
about a hundred change between two publications to a node."""

_CACHE: Final = "recipients"


class FilterChange(NamedTuple):
    """A subscription to a topic filter that has begun or ended.

    `bundle` is the same text for subscriptions of which a JID gets an item only for the first, and
    empty if it gets an item for this one anyway.
    """

    id: int
    filter: str
    bundle: str
    begins: bool


class Matching(NamedTuple):
    """The subscriptions to filters that match a node's name, of a bundle only the first; its number
    by `FilterChange.bundle`; and the number of all that match."""

    subscriptions: Sequence[Any]
    firsts: Mapping[str, int]
    total: int


class Readers:
    """The part of those who get a node's items that the rows of the node alone say.

    Attributes:
        subscriptions: those to the node, except those of queue members and of revoked accounts.
        affiliations: those with the node, by bare JID.
    """

    __slots__ = ("affiliations", "subscriptions")

    def __init__(self, subscriptions: Sequence[Any], affiliations: Mapping[str, Any]) -> None:
        self.subscriptions = subscriptions
        self.affiliations = affiliations


class _Node:
    """The cached part of a node.

    `recipients` were right after so many changes of filters (`changes`). They were found with
    `firsts` and the number `matching` of `Matching`. `found` is the size of recipients and firsts,
    and `targets` has the node as each full JID was allowed to publish to it.
    """

    __slots__ = ("changes", "firsts", "found", "matching", "readers", "recipients", "targets")

    def __init__(self) -> None:
        self.readers: Readers | None = None
        self.recipients: Sequence[Any] = ()
        self.firsts: Mapping[str, int] = {}
        self.matching = 0
        self.changes = 0
        self.found = 0
        self.targets: dict[str, Any] = {}

    @property
    def size(self) -> int:
        readers = self.readers
        own = 0 if readers is None else len(readers.subscriptions) + len(readers.affiliations)
        return 1 + own + self.found + len(self.targets)

    def is_affected(self, name: str, change: FilterChange) -> bool:
        """Return whether a change of filters changes the recipients of this node, called `name`."""
        first = self.firsts.get(change.bundle)
        if first is None:
            return matches(change.filter, name)
        if change.begins:
            return change.id < first and matches(change.filter, name)
        return change.id == first


class _Cache:
    """The cached nodes by name, and the names of those that are stored.

    `change_count` counts the changes of topic filters, `changes` has the last ones, and `size`
    counts what is cached.
    """

    __slots__ = ("by_name", "change_count", "changes", "names", "size")

    def __init__(self) -> None:
        self.by_name: dict[str, _Node] = {}
        self.names: dict[int, str] = {}
        self.changes: deque[FilterChange] = deque(maxlen=CHANGES)
        self.change_count = 0
        self.size = 0

    def drop(self, name: str) -> None:
        found = self.by_name.pop(name, None)
        if found is not None:
            self.size -= found.size


def get(tx: Transaction, name: str) -> Sequence[Any] | None:
    """Return the cached recipients of a node; `None` if they are not cached."""
    cache: _Cache | None = tx.cache.get(_CACHE)
    found = None if cache is None else cache.by_name.get(name)
    if cache is None or found is None or found.readers is None:  # only targets are cached
        return None
    missed = cache.change_count - found.changes
    if missed:
        # beyond that many changes, it takes less time to find the recipients again
        if missed > min(4 + found.matching // 4, len(cache.changes)):
            return None
        for change in islice(cache.changes, len(cache.changes) - missed, None):
            if found.is_affected(name, change):
                return None
        found.changes = cache.change_count
    return found.recipients


def readers(tx: Transaction, name: str) -> Readers | None:
    """Return the cached readers of a node; `None` if they are not cached."""
    cache: _Cache | None = tx.cache.get(_CACHE)
    found = None if cache is None else cache.by_name.get(name)
    return None if found is None else found.readers


def keep(
    tx: Transaction,
    id: int,
    name: str,
    of_node: Readers,
    matching: Matching,
    recipients: Sequence[Any],
    size: int,
) -> None:
    """Cache the recipients of a node's notifications, which are not cached.

    Args:
        id: 0 if the node is not stored.
        matching: with what the recipients were found.
        size: the size of the recipients.
    """
    size += len(matching.firsts)
    more = len(of_node.subscriptions) + len(of_node.affiliations) + size
    cache, node = _node(tx, id, name, more)
    cache.size -= node.size
    node.readers, node.recipients, node.found = of_node, recipients, size
    node.firsts, node.matching, node.changes = matching.firsts, matching.total, cache.change_count
    cache.size += node.size


def target(tx: Transaction, name: str, jid: str) -> Any:
    """Return the node to which a full JID may publish, as it was when this was recorded; `None` if
    that is not known."""
    cache: _Cache | None = tx.cache.get(_CACHE)
    found = None if cache is None else cache.by_name.get(name)
    return None if found is None else found.targets.get(jid)


def keep_target(tx: Transaction, id: int, name: str, jid: str, node: Any) -> None:
    """Record that a full JID may publish to a node; `id` is 0 if the node is not stored."""
    cache, found = _node(tx, id, name, 1)
    cache.size += jid not in found.targets
    found.targets[jid] = node


def _node(tx: Transaction, id: int, name: str, more: int) -> tuple[_Cache, _Node]:
    """Return the cache with room for `more`, and the part of a node."""
    cache: _Cache | None = tx.cache.get(_CACHE)
    if cache is None or cache.size + 1 + more > CACHED:
        cache = tx.cache[_CACHE] = _Cache()
    found = cache.by_name.get(name)
    if found is None:
        found = cache.by_name[name] = _Node()
        cache.size += 1
        if id:
            cache.names[id] = name
    return cache, found


def note_filter_change(tx: Transaction, change: FilterChange) -> None:
    """Record that a subscription to a topic filter has begun or ended."""
    cache: _Cache | None = tx.cache.get(_CACHE)
    if cache is not None:
        cache.change_count += 1
        cache.changes.append(change)


def forget_node(tx: Transaction, id: int) -> None:
    """Drop what is cached of a stored node."""
    cache: _Cache | None = tx.cache.get(_CACHE)
    name = None if cache is None else cache.names.pop(id, None)
    if cache is not None and name is not None:
        cache.drop(name)


def forget_new(tx: Transaction, name: str) -> None:
    """Drop what is cached of a node that was not stored before."""
    cache: _Cache | None = tx.cache.get(_CACHE)
    if cache is not None:
        cache.drop(name)


def forget(tx: Transaction) -> None:
    """Drop what is cached of all nodes."""
    tx.cache.pop(_CACHE, None)
