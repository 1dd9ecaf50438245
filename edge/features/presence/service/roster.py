"""Operations on an account's roster (RFC 6121, section 2).

Clients change names and groups of contacts here; `subscriptions` changes their states and removes
contacts. A client that has the current version of the roster is sent no items (section 2.6). Any
other client is sent the whole roster, not only the changes, because rosters are short.
"""

from __future__ import annotations

import secrets
from typing import Final, NamedTuple

from edge.engine.dispatch.encoding import encodings
from edge.engine.dispatch.hooks import Context, Hooks
from edge.engine.log import refusals
from edge.engine.rules import access
from edge.engine.rules.access import Relation, Sender
from edge.engine.rules.quota import ExceededLimit
from edge.engine.store import space
from edge.engine.store.database import Transaction
from edge.features.presence.service.errors import PresenceError, Reason
from edge.features.presence.service.messages import RosterPush
from edge.features.presence.store import presence, roster
from edge.features.presence.store.roster import RosterItem as RosterItem

MAX_ITEM_BYTES: Final = 600
"""Maximum bytes of an encoded contact.

A roster of 200 contacts then fits into a session's limit of unacknowledged bytes.
"""


class Party(NamedTuple):
    """An account of this gateway: its row number in `accounts` and its bare JID."""

    account: int
    bare: str


class Contact(NamedTuple):
    """A contact as a client adds or updates it."""

    jid: str
    name: str | None
    groups: tuple[str, ...]


def find_party(tx: Transaction, bare: str, name: str) -> Party | None:
    """Return the account `name`, even a revoked one, with its bare JID; `None` if unknown."""
    row = roster.account_id(tx, name) if name else None
    return None if row is None else Party(row, bare)


def find_contact(tx: Transaction, name: str, jid: str) -> RosterItem | None:
    """Return the roster item of a bare JID in the roster of account `name`.

    Returns `None` if the account does not exist.
    """
    account = roster.account_id(tx, name)
    return None if account is None else roster.find(tx, account, jid)


def own_roster(tx: Transaction, sender: Sender, relation: Relation) -> Party:
    """Return the sender's account; raise `PresenceError` if it may not use the requested roster.

    `relation` is the sender's relation to the account that has this roster.
    """
    own = find_party(tx, sender.bare, sender.account)
    if own is None or not access.may_use_roster(sender, relation):
        raise PresenceError(Reason.NOT_ALLOWED)
    return own


def request(
    tx: Transaction, sender: Sender, own: Party, known: str | None
) -> tuple[str, list[RosterItem]] | None:
    """Return the roster's version and its items; return `None` if `known` is that version.

    The session receives roster pushes from now on (section 2.2).
    """
    presence.set_interested(tx, sender.generation)
    version = roster.version(tx, own.account)
    return None if version == known else (version, roster.list_items(tx, own.account))


def put(context: Context, tx: Transaction, sender: Sender, own: Party, contact: Contact) -> None:
    """Add or update a contact (sections 2.3 and 2.4).

    Raises:
        PresenceError: the contact is the account itself or too large, or the roster or the disk is
            full.
    """
    check_not_own(own, contact.jid)
    item = roster.find(tx, own.account, contact.jid)
    exceeded = None if item.listed else _exceeded_limit(context, tx, own)
    if exceeded is not None:
        refusals.log(context, tx, sender, exceeded.name, exceeded.value)
        is_roster = exceeded.name == "roster_items"
        reason = Reason.ROSTER_FULL if is_roster else Reason.DISK_FULL
        raise PresenceError(reason, exceeded.text)
    item = item._replace(listed=True, name=contact.name, groups=contact.groups)
    check_size(context, item)
    roster.save(tx, own.account, item)
    push(tx, own, item)


def check_size(context: Context, item: RosterItem) -> None:
    """Raise `PresenceError` if an item exceeds `MAX_ITEM_BYTES` in one of the protocols."""
    if any(len(encoded) > MAX_ITEM_BYTES for encoded in encodings(context, item)):
        text = f"a contact must not exceed {MAX_ITEM_BYTES} bytes"
        raise PresenceError(Reason.ITEM_TOO_LARGE, text)


def check_not_own(own: Party, jid: str) -> None:
    """Raise `PresenceError` if a contact is the account itself."""
    if jid == own.bare:
        raise PresenceError(Reason.OWN_CONTACT)


def _exceeded_limit(context: Context, tx: Transaction, own: Party) -> ExceededLimit | None:
    limit = context.limits.roster_items
    if roster.count(tx, own.account, listed=True) >= limit:
        return ExceededLimit("roster_items", limit)
    return space.reserve(tx, MAX_ITEM_BYTES, context.limits)


def on_external_change(context: Context, tx: Transaction) -> None:
    """Push the removal of contacts that an operator's command has removed in another process."""
    for account, name, jid in roster.take_removed(tx):
        push(tx, Party(account, f"{name}@{context.domain}"), RosterItem(jid))


def push(tx: Transaction, own: Party, item: RosterItem) -> None:
    """Send a changed item to the account's sessions that requested the roster (section 2.1.6).

    An item that is not listed is sent as the removal of its contact (section 2.5.2).
    """
    version = roster.version(tx, own.account)
    for generation, full in presence.interested_sessions(tx, own.bare):
        tx.send(generation, RosterPush(full, f"push-{secrets.token_hex(6)}", version, item))


def register_for_accounts(hooks: Hooks) -> None:
    """Register the hooks of this module with the engine."""
    hooks.on_external_change.append(on_external_change)
