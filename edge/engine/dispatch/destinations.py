"""Find the destination of messages to an address."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from edge import jid
from edge.engine.dispatch import addresses
from edge.engine.dispatch.addresses import AddressKind
from edge.engine.dispatch.hooks import Acceptance, Contents, Context, Destination, Message, Plan
from edge.engine.rules import access
from edge.engine.rules.access import Sender
from edge.engine.rules.quota import ExceededLimit
from edge.engine.store import space
from edge.engine.store.database import Transaction
from edge.errors import ServiceError
from edge.jid import AddressError, AddressReason, Jid

_GATEWAY: Final = AddressKind.GATEWAY


class NoDestination:
    """The destination of an address that takes no messages: it refuses every message with one
    error."""

    kind: Final = AddressKind.SERVICE

    def __init__(self, error: AddressError) -> None:
        self._error = error

    def acceptance(
        self, context: Context, _tx: Transaction, sender: Sender, _to: Jid
    ) -> Acceptance:
        """Return whether the sender may use services, and the destination's error, which only
        such a sender gets."""
        return Acceptance(access.may_use_services(sender, context.trusted_domains), self._error)

    def room_to_hold(
        self, _context: Context, _tx: Transaction, _message: Message
    ) -> ExceededLimit | None:
        """Return `None`: no limit can be exceeded, because no message is held."""
        return None

    def read(self, _context: Context, _message: Message) -> Contents:
        """Return nothing: `acceptance` refuses every message."""
        return Contents([])

    def check(
        self, _context: Context, _tx: Transaction, _message: Message, _contents: Contents
    ) -> None:
        """Return `None`: `acceptance` refuses every message."""
        return

    def deliver(
        self,
        _context: Context,
        _tx: Transaction,
        _message: Message,
        _contents: Contents,
        _plan: Plan | None,
    ) -> str:
        """Do nothing: `acceptance` refuses every message."""
        return ""


def find(
    context: Context, to: str | None, parse: Callable[[str], Jid] = jid.split
) -> tuple[Destination, Jid]:
    """Return the destination of messages to an address, and the address.

    `None` stands for the gateway's own address. `parse` normalises an address that a peer sent, as
    its protocol does. If the address takes no messages, the destination refuses them.
    """
    if to is None or to == context.domain:
        return context.hooks.destinations[_GATEWAY], jid.split(context.domain)
    try:
        address = parse(to)
        kind = addresses.kind_of(context.domain, address)
    except AddressError as error:
        refused = NoDestination(error.with_traceback(None))  # a traceback keeps its frames
        return refused, jid.split(context.domain)
    found = context.hooks.destinations.get(kind)
    if found is not None:
        return found, address
    reason = AddressReason.NO_NODE if kind is AddressKind.NODE else AddressReason.NOBODY
    return NoDestination(AddressError(reason)), address


def read(
    context: Context, destination: Destination, message: Message, parsed: Any = None
) -> Contents:
    """Read a message for a destination; `parsed` is its body as its protocol has parsed it, if it
    has."""
    reader = context.hooks.readers.get((message.attributes.content_type, destination.kind))
    if reader is None:
        return destination.read(context, message)
    return reader(context, message, parsed)


UNTRUSTED: Final = "untrusted"
"""The rule that refuses a message because its sender may not hand over messages to the address."""

NO_DESTINATION: Final = "no_destination"
"""The rule that refuses a message to an address that takes no messages."""

UNREADABLE: Final = "unreadable"
"""The rule that refuses a message whose contents the destination cannot read."""


UNFIT: Final = "unfit"
"""The rule that refuses a message which its destination does not accept, although it can read it:
the configuration of a node forbids the item."""


class Rejection(NamedTuple):
    """The rejection of a message: the rule under which it is logged, and details for the sender.

    Attributes:
        error: the destination's error, if the rule is `NO_DESTINATION` or that of the error.
        text: the reason, if the rule is `UNREADABLE` or `UNFIT`.
        figure: the value of the exceeded limit, if the rule is the name of a limit.
    """

    rule: str
    error: ServiceError[Any] | None = None
    text: str = ""
    figure: int | None = None


def hand_over(
    context: Context, tx: Transaction, destination: Destination, message: Message
) -> Rejection | None:
    """Deliver a message that is not in custody; return a `Rejection` if it is not delivered.

    A rejected message changes no rows.
    """
    sender, to = message.sender, message.to
    acceptance = destination.acceptance(context, tx, sender, to)
    if not acceptance.allowed:
        return Rejection(UNTRUSTED)
    if acceptance.error is not None:
        return Rejection(acceptance.error.rule or NO_DESTINATION, acceptance.error)
    contents = read(context, destination, message)
    if contents.unreadable:
        return Rejection(UNREADABLE, text=contents.unreadable)
    found = destination.check(context, tx, message, contents)
    if isinstance(found, ServiceError):
        return Rejection(found.rule or NO_DESTINATION, found)
    plan = found if isinstance(found, Plan) else None
    exceeded = found if isinstance(found, ExceededLimit) else None
    if exceeded is None and message.qos:  # at level 0 the destination includes the database
        exceeded = space.reserve(tx, message.size, context.limits)
    if exceeded is not None:
        return Rejection(exceeded.name, figure=exceeded.value)
    unfit = destination.deliver(context, tx, message, contents, plan)
    return Rejection(UNFIT, text=unfit) if unfit else None
