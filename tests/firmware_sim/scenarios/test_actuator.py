from __future__ import annotations

import sqlite3
from collections.abc import Iterator

import pytest

from firmware_sim.device import messages
from firmware_sim.device.receive_options import ReceivedMessage
from firmware_sim.scenarios.actuator import Actuator, CommandRuns, command

SENDER = "pump1@gw.example/fw"


@pytest.fixture
def db() -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.executescript(Actuator.SCHEMA)
    yield connection
    connection.close()


def received(number: int, text: str, sender: str = SENDER, qos: int = 2) -> ReceivedMessage:
    return ReceivedMessage.of(number, sender, qos, text)


def test_runs_of_each_command_are_counted(db: sqlite3.Connection) -> None:
    valve = Actuator()
    valve.run(received(1, command("c1", "open")), db)
    valve.run(received(2, command("c2", "close"), qos=0), db)
    valve.run(received(3, command("c1", "closed <&>")), db)
    valve.run(received(4, command("c1", "open"), sender="other@gw.example/x", qos=1), db)
    assert valve.ran(db) == [
        CommandRuns(SENDER, "c1", "closed <&>", 2, 2, 1, 3),
        CommandRuns(SENDER, "c2", "close", 0, 1, 2, 2),
        CommandRuns("other@gw.example/x", "c1", "open", 1, 1, 4, 4),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "<message xmlns='jabber:client'/>",
        command("c1", "open", name="lamp"),
        command("c1", "open").replace('name="command"', 'name="other"'),
        command("c1", "open").replace("urn:xmpp:iot:control", "urn:other"),
        messages.log("Event", "text"),
    ],
)
def test_other_messages_run_nothing(db: sqlite3.Connection, text: str) -> None:
    Actuator().run(received(1, text), db)
    assert Actuator.ran(db) == []


def test_number_of_remembered_commands_is_bounded(db: sqlite3.Connection) -> None:
    valve = Actuator(keep=2)
    for number in range(1, 5):
        valve.run(received(number, command(f"c{number}", "open")), db)
    valve.run(received(5, command("c4", "open")), db)
    assert [(run.command, run.times) for run in valve.ran(db)] == [("c3", 1), ("c4", 2)]
