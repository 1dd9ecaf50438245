"""Where a stanza may go: the addresses of this gateway (RFC 6120, section 10); and what takes
custody of messages there.

A feature registers itself as the destination of a kind of address (`Feature.destinations`): the
event log of the gateway's own, the outbox of an account's. Where none has, there is nobody.
"""

from __future__ import annotations

from enum import Enum
from functools import lru_cache
from typing import Final, NamedTuple, Protocol

from edge.engine import access
from edge.engine.access import Sender
from edge.engine.database import Transaction
from edge.engine.events import NewEvent
from edge.engine.feature import House
from edge.features.custody.quota import Over
from edge.xmpp import jid
from edge.xmpp.errors import StanzaError
from edge.xmpp.jid import Jid

PUBSUB: Final = "pubsub"
"""What stands before the gateway's domain in the address of the publish-subscribe service."""


@lru_cache(maxsize=4)
def pubsub_service(domain: str) -> str:
    """Return the address of the publish-subscribe service of a gateway's domain."""
    return f"{PUBSUB}.{domain}"


class Place(Enum):
    """Whose address it is."""

    GATEWAY = "the gateway itself"
    OWN = "the account that the stanza comes from"
    ACCOUNT = "an account, perhaps"
    SESSION = "a session of an account, perhaps"
    SERVICE = "the publish-subscribe service"
    NODE = "a node of that service, perhaps"


SERVICES: Final = (Place.GATEWAY, Place.SERVICE, Place.NODE)
"""What is the gateway's own, and nobody's account."""


class Published(NamedTuple):
    """An item for a node: its ItemID, its payload (empty if it has none), and the namespace of
    that."""

    id: str
    payload: bytes
    namespace: str


class Contents(NamedTuple):
    """What a destination reads in a message: events, or an item, perhaps with events; or why it
    cannot be read."""

    events: list[tuple[str, NewEvent]]
    unreadable: str = ""
    item: Published | None = None


class Message(NamedTuple):
    """A message that is handed over: whom it comes from, what it is for, and its body as it came.

    `size` is what it is charged with, in bytes; `since` the service second from which it was in
    custody, if it was.
    """

    sender: Sender
    to: Jid
    body: bytes
    size: int
    qos: int
    msg_id: str | None = None
    since: float | None = None


class Standing(NamedTuple):
    """Whether a sender may hand messages over, and the destination's error if there is nobody."""

    allowed: bool
    error: StanzaError | None = None


ALLOWED: Final = Standing(allowed=True)
NOT_ALLOWED: Final = Standing(allowed=False)


class Destination(Protocol):
    """What takes messages at an address, at any level."""

    def standing(self, house: House, tx: Transaction, sender: Sender, to: Jid) -> Standing:
        """Tell whether the sender may hand messages over, and whether there is anybody."""

    def room_to_hold(self, house: House, tx: Transaction, message: Message) -> Over | None:
        """Tell which limit a message would exceed that is taken into custody, and not read yet.

        If none, the room is charged with the row of `held`, which has the `recipient`.
        """

    def recipient(self, to: Jid) -> str | None:
        """Return the account that an address is of, by name, if it is of one."""

    def read(self, house: House, body: bytes, to: Jid) -> Contents:
        """Read a message that is for this address."""

    def room_now(
        self, house: House, tx: Transaction, message: Message, contents: Contents
    ) -> Over | None:
        """Tell which limit a message would exceed that is delivered now."""

    def deliver(self, house: House, tx: Transaction, message: Message, contents: Contents) -> None:
        """Deliver a message, in the transaction that it leaves custody in."""


class Nowhere:
    """The destination of an address that nobody has."""

    def __init__(self, error: StanzaError) -> None:
        self._error = error

    def standing(self, house: House, _tx: Transaction, sender: Sender, _to: Jid) -> Standing:
        """Tell a trusted sender why there is nobody."""
        return Standing(access.may_use_services(sender, house.trusted_domains), self._error)

    def room_to_hold(self, _house: House, _tx: Transaction, _message: Message) -> Over | None:
        """Nothing is ever held."""
        return None

    def recipient(self, _to: Jid) -> str | None:
        """It is of no account."""
        return None

    def read(self, _house: House, _body: bytes, _to: Jid) -> Contents:
        """Nothing is read."""
        return Contents([])

    def room_now(
        self, _house: House, _tx: Transaction, _message: Message, _contents: Contents
    ) -> Over | None:
        """Nothing is ever delivered."""
        return None

    def deliver(
        self, _house: House, _tx: Transaction, _message: Message, _contents: Contents
    ) -> None:
        """Nothing is ever delivered."""


def find(house: House, to: str | None) -> tuple[Destination, Jid]:
    """Return what takes messages at an address, and the address; none at all is the gateway's.

    Where there is nobody, what is returned says so.
    """
    gateway = jid.parse(house.domain)
    if to is None or to == house.domain:
        return house.destinations[Place.GATEWAY], gateway
    try:
        address = jid.parse(to)
        place = _whose(house.domain, address)
    except StanzaError as error:
        return Nowhere(error.with_traceback(None)), gateway  # which would keep its frames
    found = house.destinations.get(place)
    if found is not None:
        return found, address
    if place is Place.NODE:
        return Nowhere(StanzaError("item-not-found", "there is no such node")), address
    return Nowhere(_nobody()), address


def place(domain: str, to: str | None, own: str) -> Place:
    """Tell whose address `to` is, for a stanza from the bare JID `own`; none at all is its own.

    Raises:
        StanzaError: there is nobody to take the stanza there (RFC 6120, section 10.5).
    """
    if to is None:
        return Place.OWN
    if to == domain:
        return Place.GATEWAY
    address = jid.parse(to)
    found = _whose(domain, address)
    return Place.OWN if found is Place.ACCOUNT and address.bare == own else found


def _whose(domain: str, address: Jid) -> Place:
    if address.domain == pubsub_service(domain) and not address.local:
        return Place.NODE if address.resource else Place.SERVICE
    if address.domain != domain:
        raise StanzaError("remote-server-not-found", "this gateway serves its own domain alone")
    if not address.local:
        if address.resource:
            raise _nobody()
        return Place.GATEWAY
    return Place.SESSION if address.resource else Place.ACCOUNT


def _nobody() -> StanzaError:
    return StanzaError("service-unavailable", "nobody is reached at this address")
