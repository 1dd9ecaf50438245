"""Cache who gets what is published to each node, and who may publish to it, in memory.

Nodes are known by name, because a publication may need no stored node (`NEW_NODE`). What is cached
of a node is dropped when the node, its affiliations or its own subscriptions change. A change of
topic filters keeps what does not depend on them, so that the recipients can be found again without
a statement. A change of an account empties the whole of `Transaction.cache`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from edge.engine.store.database import Transaction

CACHED: Final = 8192
"""Maximum number of what is cached of all nodes together: nodes, recipients, subscriptions,
affiliations and publishers; a full cache is emptied."""

_CACHE: Final = "recipients"


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
    """The cached part of a node; `filters` is the change of filters after which `recipients` were
    found, `found` is their size, and `targets` has the node as each full JID was allowed to publish
    to it."""

    __slots__ = ("filters", "found", "readers", "recipients", "targets")

    def __init__(self) -> None:
        self.readers: Readers | None = None
        self.recipients: Sequence[Any] = ()
        self.filters = -1
        self.found = 0
        self.targets: dict[str, Any] = {}

    @property
    def size(self) -> int:
        readers = self.readers
        own = 0 if readers is None else len(readers.subscriptions) + len(readers.affiliations)
        return 1 + own + self.found + len(self.targets)


class _Cache:
    """The cached nodes by name, and the names of those that are stored.

    `filters` counts the changes of topic filters, and `size` what is cached.
    """

    __slots__ = ("by_name", "filters", "names", "size")

    def __init__(self) -> None:
        self.by_name: dict[str, _Node] = {}
        self.names: dict[int, str] = {}
        self.filters = 0
        self.size = 0

    def drop(self, name: str) -> None:
        found = self.by_name.pop(name, None)
        if found is not None:
            self.size -= found.size


def get(tx: Transaction, name: str) -> Sequence[Any] | None:
    """Return the cached recipients of a node; `None` if they are not cached."""
    cache: _Cache | None = tx.cache.get(_CACHE)
    found = None if cache is None else cache.by_name.get(name)
    return found.recipients if found and cache and found.filters == cache.filters else None


def readers(tx: Transaction, name: str) -> Readers | None:
    """Return the cached readers of a node; `None` if they are not cached."""
    cache: _Cache | None = tx.cache.get(_CACHE)
    found = None if cache is None else cache.by_name.get(name)
    return None if found is None else found.readers


def keep(
    tx: Transaction, id: int, name: str, of_node: Readers, recipients: Sequence[Any], size: int
) -> None:
    """Cache the recipients of a node's notifications, which are not cached; `id` is 0 if the node
    is not stored, and `size` is that of the recipients."""
    more = len(of_node.subscriptions) + len(of_node.affiliations) + size
    cache, node = _node(tx, id, name, more)
    cache.size -= node.size
    node.readers, node.recipients, node.filters = of_node, recipients, cache.filters
    node.found = size
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


def note_filters_changed(tx: Transaction) -> None:
    """Record that a subscription to a topic filter has begun, ended or changed."""
    cache: _Cache | None = tx.cache.get(_CACHE)
    if cache is not None:
        cache.filters += 1


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
