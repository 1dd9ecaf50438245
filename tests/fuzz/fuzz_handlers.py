"""The features: stanzas of bound sessions, against a real store in memory.

An input is stanzas separated by NUL bytes. The first byte of each says whose it is: `1` and `2` are
two sessions of one trusted device, `3` of another, `4` of one that is not trusted; anything else is
part of the stanza, and `1` sends it. `T` alone lets an hour pass. Each input begins with the same
database.

- No handler and no unit of work raises what it should not, whatever it is given.
- What is answered is one stanza, well-formed and legal, and an iq's answer is to that iq.
- What others are sent names its sender, and no other device.
"""

from __future__ import annotations

import sqlite3
import tempfile
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from edge.handlers.router import features
from edge.wire.errors import StreamError
from edge.wire.parser import StreamParser
from edge.wire.requests import STANZAS
from edge.wire.stanza import Stanza
from tests.fuzz.oracle import CLIENT, one_stanza
from tests.helpers.store import DOMAIN, Gateway, new_database
from tests.helpers.wire_corpus import HEADER

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

MAX_BYTES: Final = 4096

MAX_STANZAS: Final = 16
"""Stanzas of one input: enough to offer, repeat, deliver, and be told what comes of it."""
HOUR: Final = 3600.0
SESSIONS: Final = {
    b"1": f"pump1@{DOMAIN}/fw",
    b"2": f"pump1@{DOMAIN}/b",
    b"3": f"pump2@{DOMAIN}/fw",
    b"4": f"stranger@{DOMAIN}/x",
}


def check(data: bytes) -> None:
    """Let sessions send stanzas, one after the other."""
    gateway = _fresh()
    for piece in data.split(b"\0", MAX_STANZAS)[:MAX_STANZAS]:
        if piece == b"T":
            gateway.clock.service += HOUR
            gateway.ring()
            continue
        who = piece[:1] if piece[:1] in SESSIONS else b""
        for stanza in _stanzas(piece[len(who) :]):
            _send(gateway, SESSIONS[who or b"1"], stanza)


def seeds() -> list[bytes]:
    """Write one bare stanza for each that some feature has a handler for."""
    known = {
        key
        for feature in features()
        for handlers in (feature.here, feature.mine, feature.anywhere)
        for key in handlers
    }
    return [_bare(*key) for key in sorted(known)]


def _bare(kind: str, type_: str, name: str) -> bytes:
    namespace, _, local = name[1:].partition("}")
    payload = f"<{local} xmlns='{namespace}'/>" if local else ""
    type_ = f" type='{type_}'" if type_ else ""
    return f"<{kind} id='1' to='{DOMAIN}'{type_}>{payload}</{kind}>".encode()


def _stanzas(xml: bytes) -> list[Stanza]:
    parser = StreamParser()
    try:
        items = parser.feed(HEADER + xml)
    except StreamError as error:
        items = error.items
    parser.close()
    return [item for item in items if isinstance(item, Stanza) and item.name in STANZAS]


def _send(gateway: Gateway, full: str, stanza: Stanza) -> None:
    answer = gateway.tx(gateway.work(full, stanza.raw.decode()))
    if answer:
        _check_answer(one_stanza(answer), stanza, full)
    for other in SESSIONS.values():
        for reply in gateway.received(other):
            if other != full:
                _check_sender(reply.attrs.get("from"), full, other)


def _check_answer(answer: Element, stanza: Stanza, full: str) -> None:
    assert stanza.attrs.get("type") not in ("result", "error"), "an answer was answered"
    assert answer.get("to") in (full, None)
    if stanza.name == CLIENT + "iq":
        assert answer.tag == stanza.name
        assert answer.get("type") in ("result", "error")
        assert answer.get("id") == stanza.attrs.get("id", answer.get("id"))


def _check_sender(told: str | None, full: str, to: str) -> None:
    bare, own = full.partition("/")[0], to.partition("/")[0]
    assert told in (full, bare, own, DOMAIN, None), f"{full} spoke to {to} as {told}"


@cache
def _house() -> tuple[Gateway, sqlite3.Connection]:
    """Make a gateway on a file that nobody sees, and a copy of it as it is at first."""
    with tempfile.TemporaryDirectory() as folder:
        gateway = Gateway(new_database(Path(folder)))
        gateway.connection.execute("PRAGMA synchronous = OFF")
        gateway.connection.execute("PRAGMA journal_mode = MEMORY")
        gateway.add("pump1")
        gateway.add("pump2")
        gateway.add("stranger", trusted=False)
    first = sqlite3.connect(":memory:", isolation_level=None)
    gateway.connection.backup(first)
    return gateway, first


def _fresh() -> Gateway:
    """Return the gateway as it is at first, with its sessions bound."""
    gateway, first = _house()
    first.backup(gateway.connection)
    tables = gateway.connection.execute("SELECT name FROM sqlite_temp_master WHERE type = 'table'")
    for (table,) in tables.fetchall():
        gateway.connection.execute(f'DELETE FROM temp."{table}"')  # noqa: S608 - a table's name
    gateway.clock.service = 1000.0
    for full in SESSIONS.values():
        gateway.bind(full)
    gateway.sent.clear()
    return gateway
