"""Options for receiving messages, and the type of received messages.

    def act(message: ReceivedMessage, db: sqlite3.Connection) -> None:
        db.execute("INSERT INTO done (command) VALUES (?)", (message.id,))

    receive = ReceiveOptions("inbox.db", act, schema="CREATE TABLE done (command TEXT) STRICT")
    async with Device("valve1@gw.example/fw", ..., receive=receive) as device: ...

`on_message` is called in a transaction of the inbox's file. The rows that it writes to this file
for an assured message are written exactly once. Its other effects, such as opening a valve, happen
at least once: after a crash before the commit, `on_message` is called again. Effects that may be
lost, but must never be repeated, belong in `afterwards`, which is called after the commit, at most
once. Specification: docs/how-to/integrate-firmware.md, "Receiving".
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
    """A received message, as passed to the application.

    `number` counts the messages delivered from the inbox, from 1. `sender` is a full JID, verified
    by the gateway. `qos` is the message's level: 0, 1 or 2. `id` and `type` are the message's
    attributes, empty if missing. `text` is the `<message/>`, with `from` and `to` of the enclosing
    stanza (quality of service ProtoXEP, Security Considerations).
    """

    number: int
    sender: str
    qos: int
    id: str
    type: str
    text: str

    @classmethod
    def of(cls, number: int, sender: str, qos: int, text: str) -> Self:
        """Create a received message; `id` and `type` are taken from the `<message/>` in `text`."""
        root = ET.fromstring(text)  # noqa: S314 - written by this package, without entities
        return cls(number, sender, qos, root.get("id", ""), root.get("type", ""), text)

    @property
    def body(self) -> str:
        """The text of the element `body`; empty if there is none."""
        return self.xml().findtext(f"{{{CLIENT}}}body", "")

    def items(self) -> list[ItemEvent]:
        """Return the changes of publish-subscribe items that the message announces (XEP-0060)."""
        return parse_item_events(self.xml())

    def xml(self) -> ET.Element:
        """Parse `text`, and return the element `message`."""
        return ET.fromstring(self.text)  # noqa: S314 - written by this package, without entities


def trust_everyone(_sender: str) -> bool:
    """Return True: trust every sender whose messages the gateway delivers."""
    return True


def commit_nothing(_message: ReceivedMessage, _db: sqlite3.Connection) -> None:
    """Write nothing; the default of `on_message`."""


def ignore_message(_message: ReceivedMessage) -> None:
    """Do nothing; the default of `afterwards` and `on_returned`."""


@dataclass(frozen=True, slots=True)
class ReceiveOptions:
    """Options for receiving messages.

    Args:
        path: the inbox's file, created if missing; only one device in one process may use it.
        on_message: called with each message and the inbox's database connection, in a transaction.
            It must neither commit nor roll back, and must not block. If it raises, its changes are
            undone and the sender gets an error of type `wait`, so that it repeats the request. By
            default, messages are queued for `Device.messages`.
        afterwards: called with each message after the commit, at most once.
        on_returned: called with each message of type `error`: a message of this device came back.
        subscriptions: nodes, filters and shares ($share:NAME:FILTER) to which each session is
            subscribed; their items arrive as messages (`ReceivedMessage.items`).
        trusts: called with the sender's full JID for each request; returns whether the sender is
            trusted.
        schema: SQL that creates the application's tables, run when the inbox is created.
        priority: priority of the device's presence, -128 to 127. If below 0, the device gets no
            messages that are sent to its account (bare JID).
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
