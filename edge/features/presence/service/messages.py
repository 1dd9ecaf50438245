"""Stanzas that the presence and roster features send to sessions, before they are encoded."""

from __future__ import annotations

from typing import NamedTuple

from edge.features.presence.rules.subscriptions import SubscriptionType
from edge.features.presence.store.roster import RosterItem


class SessionPresence(NamedTuple):
    """The last presence of an available session.

    `presence` is the raw stanza, `sender` the full JID of the session, `to` the recipient's
    address.
    """

    presence: bytes | None
    sender: str
    to: str


class UnavailablePresence(NamedTuple):
    """Unavailable presence from the full JID `sender` to the address `to`."""

    sender: str
    to: str | None = None


class SubscriptionStanza(NamedTuple):
    """A subscription stanza that the gateway sends on behalf of an account; both JIDs are bare."""

    type: SubscriptionType
    sender: str
    to: str


class RosterPush(NamedTuple):
    """A roster push: a changed item, for the session with the full JID `to`.

    If `item.listed` is false, the contact was removed. `version` is that of the changed roster.
    """

    to: str
    id: str
    version: str
    item: RosterItem
