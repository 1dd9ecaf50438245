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
    astray = destinations.error(house.domain, stanza.attrs.get("to"))

    def work(tx: Transaction, sender: Sender) -> bytes:
        contents = delivery.read(house, stanza.raw)
        figure = None
        if not access.may_use_services(sender):
            rule, error = "untrusted", StanzaError("not-allowed")
        elif astray is not None:
            rule, error = "no_destination", astray
        elif contents.unreadable:
            rule, error = "unreadable", StanzaError("not-acceptable", contents.unreadable)
        elif not delivery.has_room(house, tx, contents):
            rule, error = "unsealed_events", StanzaError("resource-constraint")
            figure = house.limits.unsealed_events
        else:
            delivery.deliver(tx, contents, sender.full, qos=0)
            return b""
        refusals.log(house, tx, sender, rule, figure)
        return serialize.message_error(stanza, error, to=sender.full, from_=stanza.attrs.get("to"))

    return work


FEATURE = Feature(anywhere={("message", "", ""): plain})
