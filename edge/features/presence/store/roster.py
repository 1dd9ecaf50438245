"""The table `roster`: each account's contacts and the state of the presence subscriptions.

A row that is not `listed` is not part of the roster. If it has a `request`, it is a pending
subscription request. Otherwise it is a removed contact whose removal has not been pushed to the
account yet. Source: RFC 6121, sections 2 and 3.
"""

from __future__ import annotations

import json
from typing import Any, Final, NamedTuple

from edge.engine.store.database import Transaction
from edge.features.accounts import service as accounts
from edge.features.presence.rules.subscriptions import (
    FIELDS,
    STATES,
    RosterFields,
    SubscriptionState,
    is_listed,
)

_ACCOUNT: Final = "SELECT id FROM accounts WHERE name = ?"
_VERSION: Final = "SELECT roster_version FROM accounts WHERE id = ?"
_ITEMS: Final = """
SELECT jid, listed, subscription, ask, approved, request, name, groups FROM roster WHERE account = ?
"""
_FIND: Final = f"{_ITEMS} AND jid = ?"
_LISTED: Final = f"{_ITEMS} AND listed = 1 ORDER BY jid"
_REQUESTS: Final = """
SELECT jid, request FROM roster WHERE account = ? AND request IS NOT NULL ORDER BY jid LIMIT ?
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
_DELETE_REQUESTS: Final = "DELETE FROM roster WHERE jid = ? AND request IS NOT NULL AND listed = 0"
_STRIKE_OUT: Final = """
UPDATE roster SET listed = 0, subscription = 'none', ask = 0, approved = 0, request = NULL,
    name = NULL, groups = NULL
WHERE jid = ?
"""
_STRUCK_OUT: Final = """
SELECT r.account, a.name, r.jid FROM roster AS r JOIN accounts AS a ON a.id = r.account
WHERE r.listed = 0 AND r.request IS NULL
"""


UNCHANGED: Final = "0"
"""The version of a roster that never had a contact."""


class RosterItem(NamedTuple):
    """A row of a roster.

    Args:
        jid: the bare JID of the contact.
        listed: whether the contact is part of the roster.
        state: the state of the subscriptions between account and contact.
        request: the contact's subscription request as received, until it is answered.
    """

    jid: str
    listed: bool = False
    state: SubscriptionState = SubscriptionState.NONE
    request: bytes | None = None
    name: str | None = None
    groups: tuple[str, ...] = ()

    def with_state(self, state: SubscriptionState, request: bytes) -> RosterItem:
        """Return the item in a new state; keep the first request received, if one is pending."""
        waits = FIELDS[state].pending
        kept = self.request or request if waits else None
        return self._replace(listed=self.listed or is_listed(state), state=state, request=kept)

    @property
    def visible_fields(self) -> tuple[object, ...] | None:
        """Return the fields that the account sees, or `None` if the item is not listed."""
        if not self.listed:
            return None
        fields = FIELDS[self.state]
        return fields.subscription, fields.ask, fields.approved, self.name, self.groups


def account_id(tx: Transaction, name: str) -> int | None:
    """Return an account's row number, even if it is revoked; `None` if it does not exist."""
    row = tx.row(_ACCOUNT, (name,))
    return None if row is None else int(row[0])


def version(tx: Transaction, account: int) -> str:
    """Return the version of an account's roster (section 2.1.1), which each change replaces."""
    return tx.row(_VERSION, (account,))[0] or UNCHANGED


def find(tx: Transaction, account: int, jid: str) -> RosterItem:
    """Return the roster item of a bare JID, or an unlisted item in state "None"."""
    row = tx.row(_FIND, (account, jid))
    return RosterItem(jid) if row is None else _contact(row)


def list_items(tx: Transaction, account: int) -> list[RosterItem]:
    """Return the contacts (`RosterItem.listed`) of an account's roster, ordered by JID.

    There are at most `limits.roster_items`.
    """
    return [_contact(row) for row in tx.rows(_LISTED, (account,))]


def pending_requests(tx: Transaction, account: int, count: int) -> list[tuple[str, bytes]]:
    """Return the first `count` unanswered requests to an account: contacts' JIDs, and the requests
    as they were received."""
    return tx.rows(_REQUESTS, (account, count))


def count(tx: Transaction, account: int, *, listed: bool) -> int:
    """Count the contacts of a roster or, without `listed`, the pending requests of other JIDs."""
    return int(tx.row(_COUNT, (account, listed))[0])


def save(tx: Transaction, account: int, contact: RosterItem) -> None:
    """Insert or update a roster item; delete it if it is neither listed nor a pending request."""
    if not contact.listed and contact.request is None:
        remove(tx, account, contact.jid)
        return
    fields = FIELDS[contact.state]
    accounts.forget_relations(tx)
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
    """Delete a roster item."""
    accounts.forget_relations(tx)
    tx.run(_REMOVE, (account, jid))


def remove_from_all(tx: Transaction, jid: str) -> None:
    """Remove a bare JID from all rosters, so that a new account of that name inherits nothing.

    Its items become unlisted rows without content, which `take_removed` deletes.
    """
    accounts.forget_relations(tx)
    tx.run(_DELETE_REQUESTS, (jid,))
    tx.run(_STRIKE_OUT, (jid,))


def take_removed(tx: Transaction) -> list[tuple[int, str, str]]:
    """Delete and return the rows that `remove_from_all` has unlisted.

    Each result has the number and the name of the account whose roster it was, and the removed JID.
    """
    found = [(int(row[0]), str(row[1]), str(row[2])) for row in tx.rows(_STRUCK_OUT)]
    for account, _name, jid in found:
        tx.run(_REMOVE, (account, jid))
    return found


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
