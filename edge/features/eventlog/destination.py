"""The gateway itself as a destination: the contents of messages become events.

Messages of all QoS levels are delivered here. Source: XEP QoS, "Generic implementation".
"""

from __future__ import annotations

from typing import Final

from edge.engine.dispatch.addresses import AddressKind
from edge.engine.dispatch.hooks import (
    ALLOWED,
    NOT_ALLOWED,
    Acceptance,
    Contents,
    Context,
    Hooks,
    Message,
    Plan,
    unreadable,
)
from edge.engine.rules import access
from edge.engine.rules.access import Sender
from edge.engine.rules.quota import ExceededLimit
from edge.engine.store.database import Transaction
from edge.features.eventlog import decoders, service
from edge.jid import Jid


class EventLogDestination:
    """The gateway itself as a destination: it stores the messages as events in the event log."""

    kind: Final = AddressKind.GATEWAY

    def acceptance(
        self, context: Context, _tx: Transaction, sender: Sender, _to: Jid
    ) -> Acceptance:
        """Allow every sender that may use the gateway's services, which include the event log."""
        allowed = access.may_use_services(sender, context.trusted_domains)
        return ALLOWED if allowed else NOT_ALLOWED

    def room_to_hold(
        self, context: Context, tx: Transaction, _message: Message
    ) -> ExceededLimit | None:
        """Return the limit that is reached, if a lane of the log is full."""
        return service.exceeded_limit_unread(context, tx)

    def read(self, _context: Context, message: Message) -> Contents:
        """Decode the events in a message."""
        content_type = message.attributes.content_type
        found = decoders.decode(message.body, content_type)
        if found.events or found.unreadable:
            return found
        return unreadable(f"there are no events in messages of the content type {content_type}")

    def check(
        self, context: Context, tx: Transaction, _message: Message, contents: Contents
    ) -> ExceededLimit | None:
        """Return the limit that the events of a message would exceed, if any."""
        return service.exceeded_limit(context, tx, contents.events)

    def deliver(
        self,
        _context: Context,
        tx: Transaction,
        message: Message,
        contents: Contents,
        _plan: Plan | None,
    ) -> str:
        """Write the events of a message to the log; return ""."""
        service.write(tx, contents.events, message.sender.full, message.qos, message.since)
        return ""


def register(hooks: Hooks) -> None:
    """Register the hooks of this module with the engine."""
    hooks.add(hooks.destinations, AddressKind.GATEWAY, EventLogDestination())
