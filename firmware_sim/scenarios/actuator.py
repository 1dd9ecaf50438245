"""A simulated actuator: a valve that counts durably how often each command was executed.

    valve = Actuator()
    receive = ReceiveOptions("inbox.db", valve.run, schema=valve.SCHEMA)
    await device.send(command("c-17", "open"), to="valve1@gw.example/fw")

Commands are XEP-0325 control commands with an additional string parameter `command`, the command's
id. The count is written in the inbox's transaction, so it shows whether a command was executed
exactly once.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple

from firmware_sim.device import messages

if TYPE_CHECKING:
    import sqlite3

    from firmware_sim.device.receive_options import ReceivedMessage

CONTROL: Final = "urn:xmpp:iot:control"

_RUN: Final = (
    "INSERT INTO actuator_run (sender, command, value, qos, first, last) VALUES (?, ?, ?, ?, ?, ?)"
    " ON CONFLICT (sender, command) DO UPDATE"
    " SET times = times + 1, value = excluded.value, last = excluded.last"
)
_FORGET: Final = (
    "DELETE FROM actuator_run WHERE number <= (SELECT max(number) FROM actuator_run) - ?"
)
_RAN: Final = (
    "SELECT sender, command, value, qos, times, first, last FROM actuator_run ORDER BY first"
)


class CommandRuns(NamedTuple):
    """A command: its sender, its level at the first execution, and the number of its executions.

    `first` and `last` are the `ReceivedMessage.number` of its first and last execution.
    """

    sender: str
    command: str
    value: str
    qos: int
    times: int
    first: int
    last: int


def command(id_: str, value: str, name: str = "valve") -> str:
    """Return a message with a command (XEP-0325) that sets the parameter `name` to `value`.

    Raises MessageRefused if an argument has characters that XML forbids.
    """
    root = ET.Element(f"{{{messages.CLIENT}}}message")
    setting = ET.SubElement(root, f"{{{CONTROL}}}set")
    for key, content in (("command", id_), (name, value)):
        ET.SubElement(setting, f"{{{CONTROL}}}string", {"name": key, "value": content})
    return messages.write(root)


class Actuator:
    """Executes and counts commands, and remembers the latest `keep` commands."""

    SCHEMA: ClassVar[str] = """
    CREATE TABLE actuator_run (
        number INTEGER PRIMARY KEY,
        sender TEXT NOT NULL,
        command TEXT NOT NULL,
        value TEXT NOT NULL,
        qos INTEGER NOT NULL,
        times INTEGER NOT NULL DEFAULT 1,
        first INTEGER NOT NULL,
        last INTEGER NOT NULL,
        UNIQUE (sender, command)
    ) STRICT
    """

    def __init__(self, name: str = "valve", keep: int = 100_000) -> None:
        self._name = name
        self._keep = keep

    def run(self, message: ReceivedMessage, db: sqlite3.Connection) -> None:
        """Execute and count a message's command, if any; for `ReceiveOptions.on_message`."""
        values = {
            each.get("name", ""): each.get("value", "")
            for each in message.xml().iterfind(f"{{{CONTROL}}}set/{{{CONTROL}}}string")
        }
        if "command" not in values or self._name not in values:
            return
        of = (message.sender, values["command"], values[self._name], message.qos)
        db.execute(_RUN, (*of, message.number, message.number))
        if message.number > self._keep:
            db.execute(_FORGET, (self._keep,))

    @staticmethod
    def ran(db: sqlite3.Connection) -> list[CommandRuns]:
        """Return the executed commands of an inbox, in the order of their first execution."""
        return [CommandRuns(*row) for row in db.execute(_RAN)]
