"""A database that is full up to its reserve: new messages are refused, held ones delivered."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from edge.config.limits import Limits
from tests.helpers.people import PUMP, VALVE, bodies, provision, received
from tests.helpers.store import Gateway, acknowledged, assured, deliver, log, new_database, refused

MIB = 1024 * 1024
FULL = Limits(database_bytes=8 * MIB, database_reserve=4 * MIB)
ABSENT = "valve@gw.example"
TEXT = "<message xmlns='jabber:client'><body>open</body></message>"
PLAIN = f"<message id='m' to='{ABSENT}'><body>plain</body></message>"


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Gateway]:
    """A gateway with a full database that holds a message of each kind and a contact."""
    path = new_database(tmp_path)
    before = Gateway(path)
    provision(before)
    before.send(PUMP, assured("logged", log("x")))
    before.send(PUMP, assured("handed", TEXT, ABSENT))
    before.send(PUMP, PLAIN)
    before.send(PUMP, contact("known@gw.example"))
    before.close()
    gateway = Gateway(path, FULL)
    yield gateway
    gateway.close()


def contact(jid: str, name: str = "n") -> str:
    item = f"<item jid='{jid}' name='{name}'/>"
    return f"<iq type='set' id='r'><query xmlns='jabber:iq:roster'>{item}</query></iq>"


@pytest.mark.parametrize(
    "stanza",
    [
        assured("new", log("x")),
        assured("new", TEXT, ABSENT),
        acknowledged(log("x")),
        acknowledged(TEXT, ABSENT),
        PLAIN,
        contact("new@gw.example"),
    ],
)
def test_full_database_refuses_new_messages(gateway: Gateway, stanza: str) -> None:
    reply = gateway.ask(PUMP, stanza)
    assert refused(reply) == "wait/resource-constraint"
    assert reply.text == "the limit database_bytes = 8388608 is reached"
    (event,) = [event for event in gateway.events("system") if event.kind == "limit"]
    assert (event.name, event.source) == ("database_bytes", "pump1@gw.example")
    assert event.tags == {"limit": "8388608"}


def test_full_database_still_delivers_messages_in_custody(gateway: Gateway) -> None:
    for xml in (
        assured("logged", log("x")),  # a repeated offer needs no space
        deliver("logged"),
        assured("handed", TEXT, ABSENT),
        deliver("handed", ABSENT),
        contact("known@gw.example", "another"),
    ):
        assert gateway.ask(PUMP, xml).type == "result"
    assert [event.text for event in gateway.events("logs")] == ["x"]
    assert gateway.events("system", "repeated") == [], "a count would need space"
    gateway.bind(VALVE)
    gateway.send(VALVE, "<presence/>")
    assert "plain" in bodies(received(gateway, VALVE))
    assert gateway.count("SELECT count(*) FROM offline") == 0
