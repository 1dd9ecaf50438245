"""Retrieve, delete and expire stored items (XEP-0060, sections 5.5, 6.5 and 7.2)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from edge.engine.dispatch.hooks import Context, Hooks
from edge.engine.rules.access import Sender
from edge.engine.store.database import Transaction
from edge.features.pubsub.rules import affiliation
from edge.features.pubsub.rules.reasons import Reason
from edge.features.pubsub.rules.topic_rights import Right
from edge.features.pubsub.service import access, topic_rights
from edge.features.pubsub.service.errors import PubsubError
from edge.features.pubsub.service.item_publisher import named_publisher
from edge.features.pubsub.service.notifications import ItemRetracted, announce
from edge.features.pubsub.store import items
from edge.features.pubsub.store.items import StoredItem
from edge.features.pubsub.store.nodes import Node


class PageRequest(NamedTuple):
    """Requested part of a node's items, in the order of their publication.

    The page has at most `size` items: the first items after the ItemID `after`, the last items
    before the ItemID `before` (empty: the last items of the node), or the items from the index
    `start` on, which counts from 0. If none of the three is set, it has the first items.
    """

    size: int
    after: str | None = None
    before: str | None = None
    start: int | None = None


class ItemPage(NamedTuple):
    """Page of a node's items.

    Attributes:
        items: each item with the bare JID that it names as its publisher, or `None`.
        start: the index of the page's first item among the node's items, from 0; 0 if items were
            requested by ItemID.
        total: the number of the node's items, or of those requested by ItemID that exist.
    """

    node: Node
    items: Sequence[tuple[StoredItem, str | None]]
    start: int
    total: int


class ItemIdPage(NamedTuple):
    """Page of a node's ItemIDs: the first has the index `start` (from 0) among all `total`."""

    ids: Sequence[str]
    start: int
    total: int


def retrieve(
    context: Context,
    tx: Transaction,
    sender: Sender,
    name: str | None,
    ids: Sequence[str],
    page: PageRequest,
    max_bytes: int,
) -> ItemPage:
    """Return items of a node, by ItemID or as a page (section 6.5).

    Args:
        ids: the ItemIDs of the items to return; if empty, `page` selects the items.
        max_bytes: the maximum sum of the items' sizes; a larger first item is returned alone.

    Raises:
        PubsubError: the request is refused, or none of the items in `ids` exists.
    """
    node = access.get_readable_node(context, tx, sender, name)
    if node.config.queueing:
        raise PubsubError(Reason.IS_QUEUE)
    if not node.config.persist_items:
        raise PubsubError(Reason.NOT_PERSISTENT)
    if ids:
        found, total = _items_by_id(tx, node, ids, max_bytes)
        start = 0
    else:
        found = _page(tx, node, page, max_bytes)
        start = items.count_before(tx, node.id, found[0].position) if found else 0
        total = node.items
    with_publishers = [(item, named_publisher(tx, node, item.publisher)) for item in found]
    return ItemPage(node, with_publishers, start, total)


def _items_by_id(
    tx: Transaction, node: Node, ids: Sequence[str], max_bytes: int
) -> tuple[list[StoredItem], int]:
    """Return the first of the requested items, as many as fit into `max_bytes` but at least one,
    and how many of the requested items exist; raises `PubsubError` if none exists."""
    found: list[StoredItem] = []
    total = 0
    for id in dict.fromkeys(ids):
        if max_bytes < 0:  # do not read what has no room
            total += items.position(tx, node.id, id) is not None
        elif item := items.get(tx, node.id, id):
            total += 1
            max_bytes -= item.size
            if not found or max_bytes >= 0:
                found.append(item)
    if not found:
        raise PubsubError(Reason.ITEM_NOT_FOUND)
    return found, total


def _page(tx: Transaction, node: Node, page: PageRequest, max_bytes: int) -> list[StoredItem]:
    if page.before is not None:
        before = _position(tx, node, page.before) if page.before else items.LAST_POSITION
        return items.page(tx, node.id, page.size, before=before, max_bytes=max_bytes)
    after = 0 if page.after is None else _position(tx, node, page.after)
    skip = page.start or 0
    return items.page(tx, node.id, page.size, after=after, skip=skip, max_bytes=max_bytes)


def list_ids(
    context: Context, tx: Transaction, sender: Sender, name: str, page: PageRequest
) -> ItemIdPage:
    """Return a page of a node's ItemIDs (section 5.5); raises `PubsubError`."""
    node = access.get_readable_node(context, tx, sender, name)
    start, size = page.start or 0, page.size
    if page.after is not None:
        start = items.count_before(tx, node.id, _position(tx, node, page.after)) + 1
    elif page.before is not None:
        end = node.items
        if page.before:
            end = items.count_before(tx, node.id, _position(tx, node, page.before))
        start, size = max(0, end - size), min(size, end)
    return ItemIdPage(items.item_ids(tx, node.id, start, size), start, node.items)


def _position(tx: Transaction, node: Node, id: str) -> int:
    position = items.position(tx, node.id, id)
    if position is None:
        raise PubsubError(Reason.ITEM_NOT_FOUND)
    return position


def retract(
    context: Context,
    tx: Transaction,
    sender: Sender,
    node: Node,
    id: str,
    *,
    notify: bool | None = None,
) -> None:
    """Delete an item of a node that is not a queue node (section 7.2); raises `PubsubError`.

    Args:
        notify: whether to notify subscribers; if `None`, the node's configuration decides.
    """
    topic_rights.require(context, tx, sender, Right.PUBLISH, node.name)
    author = items.author(tx, node.id, id)
    own = author in (None, sender.bare)
    if not affiliation.may_delete_item(access.affiliation_of(tx, node, sender.bare), own=own):
        raise PubsubError(Reason.FORBIDDEN, "you may not delete this item")
    if not node.config.persist_items:
        raise PubsubError(Reason.NOT_PERSISTENT)
    if author is None:
        raise PubsubError(Reason.ITEM_NOT_FOUND)
    items.remove(tx, node.id, id)
    if notify is not False:
        announce(context, tx, node, ItemRetracted(node.name, id), always=notify is True)


def expire(context: Context, tx: Transaction) -> None:
    """Remove expired items (`pubsub#item_expire`) and set the timer for the next expiry."""
    items.expire(tx)
    due = items.next_expiry(tx)
    if due is not None:
        tx.wake_at(due)


def register_for_accounts(hooks: Hooks) -> None:
    """Register the hooks of this module with the engine."""
    hooks.on_timer.append(expire)
