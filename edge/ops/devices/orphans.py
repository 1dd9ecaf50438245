"""Find the possessions of a removed device; give them to others, or delete them.

A later device of the same name must not have the rights of its predecessor. Rows that name an
account by its number end with the account. Rows that name it by its JID are handled here, in the
transaction that removes the device, and again in the one that adds a device under its name, because
an older version may have removed the predecessor.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from edge.config.limits import Limits
from edge.engine.rules.quota import Usage
from edge.engine.store.database import Transaction
from edge.features.custody import store as custody
from edge.features.custody.store import AbandonedMessage
from edge.features.outbox.store import dead_letters, outbox
from edge.features.outbox.store.dead_letters import DeadLetter
from edge.features.pubsub.store import affiliations
from edge.features.queues.store import queue_items


class Orphans(NamedTuple):
    """Possessions of a device that would have no owner after its removal.

    Attributes:
        nodes: the names of the nodes that it alone owns.
        items: the number of its items that nodes store.
        queued: the number of its items in queues.
    """

    nodes: Sequence[str]
    items: int
    queued: int


def find(tx: Transaction, jid: str) -> Orphans:
    """Return what the device with a bare JID would leave behind."""
    return Orphans(
        affiliations.only_owned(tx, jid),
        affiliations.count_items(tx, jid),
        queue_items.count_by_author(tx, jid),
    )


def delete_items(tx: Transaction, jid: str) -> None:
    """Delete the items of a device, except those that workers have locked; subscribers are not
    notified."""
    affiliations.delete_items(tx, jid)
    queue_items.delete_by_author(tx, jid)


def hand_over(
    tx: Transaction, domain: str, limits: Limits, jid: str, heir: str | None = None
) -> None:
    """Take all rights from the bare JID of a device that is removed.

    Its messages in custody become dead letters.

    Args:
        domain: the gateway's domain.
        heir: the bare JID that gets its nodes, items and affiliations; `None` gives its items, and
            the nodes that it alone owned, to the gateway itself, so that the operator manages them.
    """
    new = domain if heir is None else heir
    affiliations.transfer(tx, jid, new, all_rights=heir is not None)
    queue_items.transfer(tx, jid, new)
    outbox.disown(tx, jid)
    _add_dead_letters(tx, limits, custody.take_messages(tx, jid), "its sender was removed")


def take_messages_to(tx: Transaction, limits: Limits, name: str) -> None:
    """Make dead letters of the messages in custody for a device that was removed."""
    _add_dead_letters(tx, limits, custody.take_messages_to(tx, name), "its recipient was removed")


def _add_dead_letters(
    tx: Transaction, limits: Limits, messages: Sequence[AbandonedMessage], reason: str
) -> None:
    most = Usage(limits.dead_messages, limits.dead_bytes)
    for sender, msg_id, destination, recipient, content in messages:
        letter = DeadLetter(sender, msg_id, destination, 2, content, reason, recipient=recipient)
        dead_letters.add(tx, letter, most)
