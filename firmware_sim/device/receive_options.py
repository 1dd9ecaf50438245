"""Options for receiving messages, and the message that the application gets.

    def act(message: ReceivedMessage, db: sqlite3.Connection) -> None:
        db.execute("INSERT INTO done (command) VALUES (?)", (message.id,))

    receive = ReceiveOptions("inbox.db", act, schema="CREATE TABLE done (command TEXT) STRICT")
    async with Device("valve1@gw.example/fw", ..., receive=receive) as device: ...

`on_message` runs inside a transaction of the inbox's file. The rows that it writes there for an
assured message are written exactly once. Its other effects (it opens a valve) happen at least once,
because it is called again after a crash before the commit. Effects that must never be repeated, and
may be lost, belong in `afterwards`, which is called after the commit, at most once. Specification:
docs/how-to/integrate-firmware.md, "Receiving".
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from firmware_sim.device.limits import InboxLimits
from firmware_sim.device.messages import CLIENT
from firmware_sim.device.pubsub import ItemEvent, parse_item_events

if TYPE_CHECKING:
    import sqlite3

_DEFAULT: Final = InboxLimits()


@dataclass(frozen=True, slots=True)
class ReceivedMessage:
    """A received message.

    `number` counts the messages delivered from this inbox, from 1. `sender` is a full JID, verified
    by the gateway. `qos` is the message's level: 0, 1 or 2. `id` and `type` are the message's
    attributes, empty if missing. `text` is the `<message/>`, with `from` and `to` of the stanza
    that carried it (ProtoXEP, Security Considerations).
    """

    number: int
    sender: str
    qos: int
    id: str
    type: str
    text: str

    @classmethod
    def of(cls, number: int, sender: str, qos: int, text: str) -> Self:
        """Create a message from its text, which contains the id and the type."""
        root = ET.fromstring(text)  # noqa: S314 - written by this package, without entities
        return cls(number, sender, qos, root.get("id", ""), root.get("type", ""), text)

    @property
    def body(self) -> str:
        """The text of the message's body; empty if it has none."""
        return self.xml().findtext(f"{{{CLIENT}}}body", "")

    def items(self) -> list[ItemEvent]:
        """Return the changes of items of nodes that the message announces (XEP-0060)."""
        return parse_item_events(self.xml())

    def xml(self) -> ET.Element:
        """Parse the text."""
        return ET.fromstring(self.text)  # noqa: S314 - written by this package, without entities


def trust_everyone(_sender: str) -> bool:
    """Trust every sender that the gateway's roster admits."""
    return True


def commit_nothing(_message: ReceivedMessage, _db: sqlite3.Connection) -> None:
    """Write nothing in the transaction that delivers a message."""


def ignore_message(_message: ReceivedMessage) -> None:
    """Ignore the message."""


@dataclass(frozen=True, slots=True)
class ReceiveOptions:
    """Options for receiving messages.

    Args:
        path: file of the inbox; created if missing. Used by one device in one process.
        on_message: called with each message and the inbox's connection, in its transaction.
            It must neither commit nor roll back, and must not wait. If it raises, its changes are
            undone and the sender gets an error of type `wait`, to repeat. Without it, messages wait
            for `Device.messages`.
        afterwards: called with each message after the commit, at most once.
        on_returned: called with each message of type `error`: the device's own, returned.
        subscriptions: nodes, filters and shares ($share:NAME:FILTER) to which each session is
            subscribed; their items arrive as messages (`ReceivedMessage.items`).
        trusts: returns whether the sender with this full JID is trusted; called before a message is
            held.
        schema: SQL that creates the application's tables, run when the inbox is created.
        priority: priority of the device's presence, -128 to 127. Below 0, the device gets no
            messages sent to the account (bare JID).
        limits: capacity of the inbox.
    """

    path: Path | str
    on_message: Callable[[ReceivedMessage, sqlite3.Connection], None] = commit_nothing
    afterwards: Callable[[ReceivedMessage], None] = ignore_message
    on_returned: Callable[[ReceivedMessage], None] = ignore_message
    subscriptions: Sequence[str] = ()
    trusts: Callable[[str], bool] = trust_everyone
    schema: str = ""
    priority: int = 0
    limits: InboxLimits = _DEFAULT
