"""What an application says of the messages its device shall take, and what it is given of each.

    def act(message: Received, db: sqlite3.Connection) -> None:
        db.execute("INSERT INTO done (command) VALUES (?)", (message.id,))

    receive = Receiving("inbox.db", act, schema="CREATE TABLE done (command TEXT) STRICT")
    async with Device("valve1@gw.example/fw", ..., receive=receive) as device: ...

`on_message` runs inside the transaction of the inbox's own file. What it writes there is done
exactly once for an assured message. What it does elsewhere (it opens a valve) is done at least
once, since a crash before the commit has it called again. What must never be done twice, and may
be left out, belongs into `afterwards`: called after the commit, at most once.

Nothing here acts; `porter` does. Specification: docs/how-to/firmware.md, "Receiving".
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from firmware_sim.device.limits import InboxLimits

if TYPE_CHECKING:
    import sqlite3

_DEFAULT: Final = InboxLimits()


@dataclass(frozen=True, slots=True)
class Received:
    """A message as it is handed over.

    `number` counts what this inbox handed over, from 1. `sender` is a full JID, as the gateway
    vouches for it. `qos` is the level at which it came: 0, 1 or 2. `id` and `type` are the
    message's own, empty where it has none. `text` is the `<message/>`, with the `from` and `to` of
    the stanza that carried it (ProtoXEP, Security Considerations).
    """

    number: int
    sender: str
    qos: int
    id: str
    type: str
    text: str

    @classmethod
    def of(cls, number: int, sender: str, qos: int, text: str) -> Self:
        """Make it of the text, which has the id and the type."""
        root = ET.fromstring(text)  # noqa: S314 - this package wrote it, without entities
        return cls(number, sender, qos, root.get("id", ""), root.get("type", ""), text)

    def xml(self) -> ET.Element:
        """Parse the text."""
        return ET.fromstring(self.text)  # noqa: S314 - this package wrote it, without entities


def everyone(_sender: str) -> bool:
    """Trust whoever the gateway lets through: it decides by its own roster."""
    return True


def nothing(_message: Received) -> None:
    """Do nothing."""


@dataclass(frozen=True, slots=True)
class Receiving:
    """How a device takes messages.

    Args:
        path: the file of the inbox; made when missing. One inbox, one device, one process.
        on_message: given each message, and the connection of the inbox's file, within its
            transaction: it must neither commit nor roll back, and must not wait. If it raises,
            nothing that it wrote is kept and the sender is told `wait`, to repeat.
        afterwards: given each message after that transaction is durable, at most once.
        on_returned: given each message of type `error`: one of the device's own that came back.
        trusts: whether the sender with that full JID is trusted; asked before anything is held.
        schema: SQL of the application's own tables, run when the inbox is made.
        priority: of the presence that is sent, -128 to 127. Below 0, what is sent to the account
            alone (its bare JID) does not come here.
        limits: how much the inbox holds and remembers.
    """

    path: Path | str
    on_message: Callable[[Received, sqlite3.Connection], None]
    afterwards: Callable[[Received], None] = nothing
    on_returned: Callable[[Received], None] = nothing
    trusts: Callable[[str], bool] = everyone
    schema: str = ""
    priority: int = 0
    limits: InboxLimits = _DEFAULT
