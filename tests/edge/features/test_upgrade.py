"""Messages that an older version stored are sent as that version would have sent them."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from edge.engine.store import database
from edge.engine.store.database import AWAITS_ANSWER
from edge.features.outbox.store import dead_letters
from tests.helpers.people import PUMP
from tests.helpers.store import QOS, Clock, Gateway, deliver

DATA = Path(__file__).parents[2] / "data"
SCHEMA = 11

SESSIONS = {
    PUMP: QOS,
    "valve@gw.example/fw": QOS,
    "drive@gw.example/fw": QOS,
    "lamp@gw.example/fw": "",
    "cam@gw.example/fw": QOS,
    "cam2@gw.example/fw": QOS,
    "worker@gw.example/w": "",
    "person@gw.example/phone": "",
}
"""The sessions, in the order in which they begin, with the QoS namespace that they support."""

DISCO = "http://jabber.org/protocol/disco#info"


LEFT = """
SELECT (SELECT count(*) FROM outbox), (SELECT count(*) FROM offline),
    (SELECT count(*) FROM notifications), (SELECT count(*) FROM dead), (SELECT count(*) FROM held)
"""


@pytest.fixture
def gateway(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Gateway]:
    path = tmp_path / "fieldpost.db"
    steps = database.migrations()
    with monkeypatch.context() as patch, closing(sqlite3.connect(path)) as connection:
        connection.isolation_level = None
        patch.setattr(database, "migrations", lambda: [step for step in steps if step[0] <= SCHEMA])
        database.migrate(connection)
        load(connection, (DATA / "messages-11.sql").read_text("utf-8"))
    gateway = Gateway(path, clock=Clock(1010.0))
    yield gateway
    gateway.close()


def load(connection: sqlite3.Connection, rows: str) -> None:
    """Replace all rows; triggers would count them again."""
    found = connection.execute("SELECT type, name, sql FROM sqlite_schema").fetchall()
    triggers = {name: sql for kind, name, sql in found if kind == "trigger"}
    for name in triggers:
        connection.execute(f"DROP TRIGGER {name}")
    for table in re.findall(r"^INSERT INTO (\w+)", rows, re.MULTILINE):
        connection.execute(f"DELETE FROM {table}")  # noqa: S608 - of the file's names
    connection.executescript(rows)
    for sql in triggers.values():
        connection.execute(sql)


def answer(stanza: str, qos: str) -> str | None:
    """Return a device's answer to a request of the gateway."""
    request = re.match(r"<iq type='(?:get|set)' id='([^']*)'.*? from='([^']*)'", stanza)
    if request is None:
        return None
    id, sender = request.groups()
    payload = ""
    if DISCO in stanza:
        features = "".join(f"<feature var='{one}'/>" for one in (DISCO, qos) if one)
        identity = "<identity category='client' type='bot'/>"
        payload = f"<query xmlns='{DISCO}'>{identity}{features}</query>"
    elif offer := re.search(r"<qos:assured [^>]*msgId='([^']*)'", stanza):
        payload = f"<received xmlns='{QOS}' msgId='{offer[1]}'/>"
    return f"<iq type='result' id='{id}' to='{sender}'>{payload}</iq>"


def exchange(gateway: Gateway) -> list[tuple[str, str]]:
    """Let the sessions answer and acknowledge all that they are sent; return the messages and the
    requests that deliver messages."""
    found: list[tuple[str, str]] = []
    while sent := [(full, send) for full in gateway.bound() for send in gateway.sends(full)]:
        for full, send in sent:
            stanza = send.stanza.decode()
            if DISCO not in stanza and not stanza.startswith("<presence"):
                found.append((full, stanza))
            if send.receipt is not None and send.receipt is not AWAITS_ANSWER:
                gateway.acknowledge(full, send.receipt)
            if (reply := answer(stanza, SESSIONS[full])) is not None:
                gateway.send(full, reply)
    return found


def test_each_message_of_an_older_version_is_sent_once_and_unchanged(gateway: Gateway) -> None:
    sent = []
    for full in SESSIONS:
        gateway.bind(full)
        gateway.send(full, "<presence/>")
        sent += exchange(gateway)
    gateway.ask(PUMP, deliver("held", "valve@gw.example"))
    sent += exchange(gateway)
    for letter in gateway.tx(lambda tx: dead_letters.list_page(tx, 0, 10)):
        gateway.tx(partial(dead_letters.requeue, row=letter.row, may_repeat=False))
        gateway.tx(gateway.router.context.run_external_change)
        sent += exchange(gateway)
    gateway.clock.service += 100  # the locks of queue items end
    gateway.run_timers()
    sent += exchange(gateway)
    lines = (DATA / "messages-11.tsv").read_text("utf-8").splitlines()
    assert sent == [tuple(line.split("\t")) for line in lines]
    assert gateway.connection.execute(LEFT).fetchone() == (0, 0, 0, 0, 0)
