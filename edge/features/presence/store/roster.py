"""Rosters: whom an account knows, and what the two are to each other.

A row that is not `listed` is somebody's request and nothing more: its owner has not said anything
to them. What a subscription stanza does to a row is decided in `rules`; who hears of it, in
`handlers`. Source: RFC 6121, sections 2 and 3.
"""

from __future__ import annotations

import json
from typing import Any, Final, NamedTuple

from edge.engine.database import Transaction
from edge.features.presence.rules.roster import (
    FIELDS,
    STATES,
    RosterFields,
    SubscriptionState,
    is_listed,
)

_ACCOUNT: Final = "SELECT id FROM accounts WHERE name = ?"
_FIND: Final = """
SELECT jid, listed, subscription, ask, approved, request, name, groups
FROM roster WHERE account = ? AND jid = ?
"""
_LISTED: Final = """
SELECT jid, listed, subscription, ask, approved, request, name, groups
FROM roster WHERE account = ? AND listed = 1 ORDER BY jid
"""
_REQUESTS: Final = """
SELECT request FROM roster WHERE account = ? AND request IS NOT NULL ORDER BY jid LIMIT ?
"""
_COUNT: Final = "SELECT count(*) FROM roster WHERE account = ? AND listed = ?"
_PUT: Final = """
INSERT INTO roster (account, jid, listed, subscription, ask, approved, request, name, groups)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (account, jid) DO UPDATE SET
    listed = excluded.listed, subscription = excluded.subscription, ask = excluded.ask,
    approved = excluded.approved, request = excluded.request, name = excluded.name,
    groups = excluded.groups
"""
_REMOVE: Final = "DELETE FROM roster WHERE account = ? AND jid = ?"
_STRIKE_OUT: Final = "DELETE FROM roster WHERE jid = ?"


class RosterItem(NamedTuple):
    """A row of a roster: a bare JID, the state of the two, and how the owner calls and sorts it.

    `request` is the contact's request as it came, stamped, until it is answered.
    """

    jid: str
    listed: bool = False
    state: SubscriptionState = SubscriptionState.NONE
    request: bytes | None = None
    name: str | None = None
    groups: tuple[str, ...] = ()

    def into(self, state: SubscriptionState, request: bytes) -> RosterItem:
        """Return the row in another state; `request` is kept if the contact now waits for an
        answer and did not before."""
        waits = FIELDS[state].pending
        kept = self.request or request if waits else None
        return self._replace(listed=self.listed or is_listed(state), state=state, request=kept)

    @property
    def shown(self) -> tuple[object, ...] | None:
        """What the owner sees of the row, to tell whether that has changed; `None` is nothing."""
        if not self.listed:
            return None
        fields = FIELDS[self.state]
        return fields.subscription, fields.ask, fields.approved, self.name, self.groups


def account_id(tx: Transaction, name: str) -> int | None:
    """Return the number of a device's row, also of a revoked one; `None` if there is none."""
    row = tx.row(_ACCOUNT, (name,))
    return None if row is None else int(row[0])


def find(tx: Transaction, account: int, jid: str) -> RosterItem:
    """Return what a roster has of a bare JID: a contact in state "None", unlisted, if nothing."""
    row = tx.row(_FIND, (account, jid))
    return RosterItem(jid) if row is None else _contact(row)


def list_items(tx: Transaction, account: int) -> list[RosterItem]:
    """Return an account's roster, by JID: at most `limits.roster_items`."""
    return [_contact(row) for row in tx.rows(_LISTED, (account,))]


def pending_requests(tx: Transaction, account: int, count: int) -> list[bytes]:
    """Return the first `count` requests that an account has not answered, as they came."""
    return [bytes(row[0]) for row in tx.rows(_REQUESTS, (account, count))]


def count(tx: Transaction, account: int, *, listed: bool) -> int:
    """Return how many contacts a roster has, or how many have merely asked."""
    return int(tx.row(_COUNT, (account, listed))[0])


def save(tx: Transaction, account: int, contact: RosterItem) -> None:
    """Write a row; one that says nothing is taken out."""
    if not contact.listed and contact.request is None:
        remove(tx, account, contact.jid)
        return
    fields = FIELDS[contact.state]
    tx.run(
        _PUT,
        (
            account,
            contact.jid,
            contact.listed,
            fields.subscription,
            fields.ask,
            fields.approved,
            contact.request,
            contact.name,
            json.dumps(contact.groups) if contact.groups else None,
        ),
    )


def remove(tx: Transaction, account: int, jid: str) -> None:
    """Take a row out."""
    tx.run(_REMOVE, (account, jid))


def remove_from_all(tx: Transaction, jid: str) -> None:
    """Take a bare JID out of all rosters: who gets it must not find there what another was."""
    tx.run(_STRIKE_OUT, (jid,))


def _contact(row: Any) -> RosterItem:
    jid, listed, subscription, ask, approved, request, name, groups = row
    fields = RosterFields(subscription, bool(ask), request is not None, bool(approved))
    return RosterItem(
        jid,
        bool(listed),
        STATES[fields],
        request,
        name,
        () if groups is None else tuple(json.loads(groups)),
    )
