from __future__ import annotations

from edge.engine.dispatch import destinations
from edge.engine.dispatch.addresses import AddressKind
from edge.engine.dispatch.destinations import Rejection
from edge.engine.dispatch.hooks import Contents, Context, Message
from edge.engine.dispatch.item_attributes import ItemAttributes
from edge.engine.rules.access import operator
from edge.engine.store.database import Transaction
from edge.engine.store.events import NewEvent
from tests.helpers.store import DOMAIN, Gateway


def test_readers_of_content_types_are_side_by_side(gateway: Gateway) -> None:
    context = gateway.router.context
    destination, to = destinations.find(context, None)
    message = Message(operator(DOMAIN), to, b"21.5", 4, 0, attributes=ItemAttributes("text/plain"))

    def hand_over(tx: Transaction) -> Rejection | None:
        return destinations.hand_over(context, tx, destination, message)

    refused = gateway.tx(hand_over)
    assert refused is not None
    assert refused.rule == destinations.UNREADABLE
    assert "content type" in refused.text

    def read(_context: Context, message: Message, _parsed: object) -> Contents:
        return Contents([("readings", NewEvent("reading", name="t", value=float(message.body)))])

    context.hooks.add(context.hooks.readers, ("text/plain", AddressKind.GATEWAY), read)
    assert gateway.tx(hand_over) is None
    assert [event.value for event in gateway.events("readings")] == [21.5]
