"""Stanzas that the presence and roster features send to sessions, before they are encoded."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from edge.features.presence.rules.subscriptions import SubscriptionType
from edge.features.presence.store.roster import RosterItem


class SessionPresence(NamedTuple):
    """A presence of a session, as the session sent it.

    `presence` is the raw stanza, `sender` the full JID of the session, `to` the recipient's
    address. `is_error` is whether it is of type `error`.
    """

    presence: bytes
    sender: str
    to: str
    is_error: bool = False

    @property
    def replacement_key(self) -> str:
        """Return the key of `Presence`."""
        return f"{self.sender} error" if self.is_error else self.sender


class UnavailablePresence(NamedTuple):
    """Unavailable presence from the full JID `sender` to the address `to`."""

    sender: str
    to: str | None = None

    @property
    def replacement_key(self) -> str:
        """Return the key of `Presence`."""
        return self.sender


class SubscriptionStanza(NamedTuple):
    """A subscription stanza of an account; both JIDs are bare.

    `stanza` is the complete stanza if a session of the account sent it, and empty if the gateway
    sends it on behalf of the account.
    """

    type: SubscriptionType
    sender: str
    to: str
    stanza: bytes = b""

    @property
    def replacement_key(self) -> str:
        """Return the key of `Presence`."""
        return f"{self.sender} {self.type.value}"


Presence: TypeAlias = SessionPresence | UnavailablePresence | SubscriptionStanza
"""A presence; a later one with the same `replacement_key` replaces it for its recipient."""


class RosterPush(NamedTuple):
    """A roster push: a changed item, for the session with the full JID `to`.

    If `item.listed` is false, the contact was removed. `version` is that of the changed roster.
    """

    to: str
    id: str
    version: str
    item: RosterItem
