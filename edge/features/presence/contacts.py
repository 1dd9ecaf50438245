"""Rosters as XML, and telling an account's sessions what has changed in theirs.

What changes is decided elsewhere. A session's answer to what it is told is not waited for: the rows
are true whatever it says. Source: RFC 6121, sections 2.1.2, 2.1.6 and 2.5.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from typing import Final

from edge.engine import sessions
from edge.engine.database import Transaction
from edge.features.presence.rules.roster import FIELDS
from edge.features.presence.store.roster import RosterItem
from edge.xmpp import serialize
from edge.xmpp.namespaces import ROSTER

ITEM_BYTES: Final = 600
"""Bytes of a contact as it is told: a whole roster of 200 fits into what may be unacknowledged to a
session, and nobody makes the gateway write megabytes for a short question."""


def query(items: Iterable[bytes]) -> bytes:
    """Make the `<query/>` around items."""
    return serialize.tag("query", content=b"".join(items), xmlns=ROSTER)


def item(contact: RosterItem) -> bytes:
    """Make the item of a contact (section 2.1.2)."""
    fields = FIELDS[contact.state]
    attrs = {
        "jid": contact.jid,
        "name": contact.name,
        "subscription": fields.subscription,
        "ask": "subscribe" if fields.ask else None,
        "approved": "true" if fields.approved else None,
    }
    groups = (serialize.tag("group", content=serialize.escape(name)) for name in contact.groups)
    return serialize.tag("item", attrs, b"".join(groups))


def push(tx: Transaction, bare: str, contact: RosterItem) -> None:
    """Tell the sessions of an account that asked for the roster of a contact's item (2.1.6)."""
    _push(tx, bare, item(contact))


def push_removal(tx: Transaction, bare: str, jid: str) -> None:
    """Tell them that a contact is not in the roster any more (2.5.2)."""
    _push(tx, bare, serialize.tag("item", {"jid": jid, "subscription": "remove"}))


def _push(tx: Transaction, bare: str, item: bytes) -> None:
    for session in sessions.of_account(tx, bare):
        if session.interested:
            id = f"push-{secrets.token_hex(6)}"
            tx.send(session.generation, serialize.iq_set(id, session.full, None, query([item])))
