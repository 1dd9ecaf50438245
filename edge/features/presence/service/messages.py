"""The messages that presence and rosters send to sessions."""

from __future__ import annotations

from typing import NamedTuple

from edge.features.presence.rules.subscriptions import SubscriptionType
from edge.features.presence.store.roster import RosterItem


class SessionPresence(NamedTuple):
    """The last presence of an available session (raw), from its full JID and to an address."""

    presence: bytes | None
    sender: str
    to: str


class UnavailablePresence(NamedTuple):
    """Unavailable presence, from a full JID and to an address."""

    sender: str
    to: str | None = None


class SubscriptionStanza(NamedTuple):
    """A subscription stanza that the gateway sends on behalf of an account; both JIDs are bare."""

    type: SubscriptionType
    sender: str
    to: str


class RosterPush(NamedTuple):
    """A changed item of the roster, for a session with this full JID, and the roster's version."""

    to: str
    id: str
    version: str
    item: RosterItem


class RosterRemoval(NamedTuple):
    """A contact that was removed, for a session with this full JID, and the roster's version."""

    to: str
    id: str
    version: str
    jid: str
