"""Plain messages: quality of service level 0, at most once.

Source: XEP QoS, "Unacknowledged service"; RFC 6121, section 5.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from edge.handlers import delivery, destinations, refusals
from edge.handlers.feature import Feature
from edge.rules import access
from edge.wire import serialize
from edge.wire.errors import StanzaError

if TYPE_CHECKING:
    from edge.handlers.feature import House, Work
    from edge.rules.access import Sender
    from edge.store.database import Transaction
    from edge.wire.stanza import Stanza


def plain(house: House, stanza: Stanza) -> Work | bytes:
    """Deliver a message that nobody acknowledges; a refusal is answered with an error message."""
    if stanza.attrs.get("type") == "error":
        return b""
    destinations.check(house.domain, stanza.attrs.get("to"))
    contents = delivery.read(house, stanza.raw)

    def work(tx: Transaction, sender: Sender) -> bytes:
        error = None
        if not access.may_use_services(sender):
            error = StanzaError("not-allowed")
            refusals.log(house, tx, sender, "untrusted")
        elif contents.unreadable:
            error = StanzaError("not-acceptable", contents.unreadable)
        elif not delivery.has_room(house, tx, contents):
            error = StanzaError("resource-constraint")
            refusals.log(house, tx, sender, "no_room", house.limits.unsealed_events)
        if error is None:
            delivery.deliver(tx, contents, sender.full, qos=0)
            return b""
        return serialize.message_error(stanza, error, to=sender.full, from_=stanza.attrs.get("to"))

    return work


FEATURE = Feature(anywhere={("message", "", ""): plain})
