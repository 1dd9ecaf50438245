"""Target: the features, with stanzas of bound sessions and a real store in memory.

An input is steps separated by NUL bytes. A stanza's first byte names its session: `1` and `2` are
sessions of one trusted device, `3` of another, `4` of an untrusted one; any other byte is part of a
stanza of `1`. `T` lets an hour pass. With a session's digit, `C` confirms what it was sent, `D`
loses its connection, `R` resumes it, and `L` ends it, so that unconfirmed stanzas are routed again.
Each input begins with the same database.

- Handlers and units of work raise no unexpected error.
- An answer is one stanza, well-formed and legal, and an iq's answer has its id.
- A stanza for others is also legal, goes to a bound session, and names its true sender.
"""

from __future__ import annotations

import atexit
import re
import sqlite3
import tempfile
from functools import cache
from pathlib import Path
from typing import Final
from xml.etree.ElementTree import Element

from edge.config.limits import Limits
from edge.engine.dispatch import addresses
from edge.engine.dispatch.hooks import new_context
from edge.routing.xmpp import XmppHooks
from edge.routing.xmpp.router import refusal
from edge.xmpp.errors import StanzaError
from edge.xmpp.namespaces import PUBSUB, PUBSUB_OWNER
from edge.xmpp.stanza import STANZA_NAMES, Stanza
from tests.fuzz.oracle import CLIENT, one_element, one_stanza, parse_stanzas
from tests.helpers.store import DOMAIN, Gateway, Sent, new_database

SERVICE: Final = f"{addresses.PUBSUB}.{DOMAIN}"

MAX_BYTES: Final = 4096

MAX_STEPS: Final = 24
"""Maximum steps of an input: enough to subscribe, approve, become available and leave."""
HOUR: Final = 3600.0
SESSIONS: Final = {
    b"1": f"pump1@{DOMAIN}/fw",
    b"2": f"pump1@{DOMAIN}/b",
    b"3": f"pump2@{DOMAIN}/fw",
    b"4": f"untrusted@{DOMAIN}/x",
}
_EVENT: Final = re.compile(rb"([TCDRL])([1-4]?)")


def check(data: bytes) -> None:
    """Let sessions begin, send stanzas and end."""
    site = _Site()
    for step in data.split(b"\0", MAX_STEPS)[:MAX_STEPS]:
        if event := _EVENT.fullmatch(step):
            site.handle_event(event[1], SESSIONS[event[2] or b"1"])
            continue
        who = step[:1] if step[:1] in SESSIONS else b""
        for stanza in parse_stanzas(step[len(who) :]):
            if stanza.name in STANZA_NAMES:
                site.send(SESSIONS[who or b"1"], stanza)


def seeds() -> list[bytes]:
    """Return a minimal stanza for each handler of a feature."""
    hooks = new_context(DOMAIN, Limits()).hooks.of(XmppHooks)
    known = {("message", "", ""), ("presence", "", ""), ("iq", "", ""), ("iq", "result", "")}
    for handlers in (hooks.server_iqs, hooks.own_account_iqs, hooks.any_iqs):
        known |= {("iq", *key) for key in handlers}
    services = {("iq", *key) for key in hooks.pubsub_iqs}
    verbs = hooks.pubsub_requests
    requests = [_stanza("iq", type_, SERVICE, _pubsub(name)) for type_, name in sorted(verbs)]
    return [
        *(_stanza(kind, type_, DOMAIN, _empty(name)) for kind, type_, name in sorted(known)),
        *(_stanza(kind, type_, SERVICE, _empty(name)) for kind, type_, name in sorted(services)),
        *requests,
    ]


def _empty(name: str, content: str = "", more: str = "") -> str:
    space, _, local = name[1:].partition("}")
    return f"<{local} xmlns='{space}'{more}>{content}</{local}>" if local else ""


def _pubsub(name: str) -> str:
    """Return a publish-subscribe request for a node that does not exist."""
    space = PUBSUB_OWNER if name.startswith(f"{{{PUBSUB_OWNER}}}") else PUBSUB
    request = _empty(name, "<item id='1'/>", f" node='a' jid='pump1@{DOMAIN}'")
    return f"<pubsub xmlns='{space}'>{request}</pubsub>"


def _stanza(kind: str, type_: str, to: str, payload: str) -> bytes:
    type_ = f" type='{type_}'" if type_ else ""
    return f"<{kind} id='1' to='{to}'{type_}>{payload}</{kind}>".encode()


class _Site:
    """A gateway and its sessions during one input."""

    def __init__(self) -> None:
        self._gateway = _fresh()
        self._bound: dict[int, str] = {}
        self._waiting: dict[str, list[Sent]] = {}
        for full in SESSIONS.values():
            self._bind(full)

    def send(self, full: str, stanza: Stanza) -> None:
        """Send a stanza of a session, which is bound if necessary."""
        gateway = self._gateway
        if full not in self._waiting:
            self._bind(full)
        try:
            work = gateway.work(full, stanza.raw.decode())
        except StanzaError as error:  # of offloaded work, as a session handles it
            answer = refusal(stanza, error, full)
        else:
            answer = gateway.tx(work)
        if answer:
            _check_answer(one_stanza(answer), stanza, full)
        self._distribute(full)

    def handle_event(self, kind: bytes, full: str) -> None:
        """Let time pass, or an event happen to a session."""
        gateway, lifecycle = self._gateway, self._gateway.lifecycle
        if kind == b"T":
            gateway.clock.service += HOUR
            gateway.run_timers()
        elif full in self._waiting:
            generation = gateway.generation(full)
            if kind == b"C":
                sends, self._waiting[full] = self._waiting[full], []
                receipts = [send.receipt for send in sends if send.receipt is not None]
                gateway.tx(lambda tx: lifecycle.acknowledge(tx, generation, receipts))
            elif kind == b"D":
                gateway.tx(lambda tx: lifecycle.detach(tx, generation))
            elif kind == b"R":
                assert gateway.tx(lambda tx: lifecycle.resume(tx, generation))
            else:
                sends = self._waiting.pop(full)
                del self._bound[generation]
                gateway.end(full, *(send.message for send in sends if send.receipt is None))
        self._distribute(None)

    def _bind(self, full: str) -> None:
        self._bound[self._gateway.bind(full)] = full
        self._waiting[full] = []
        self._distribute(full)

    def _distribute(self, sender: str | None) -> None:
        """Check the stanzas for other sessions that a stanza or an event has caused."""
        sends, self._gateway.sent = self._gateway.sent, []
        for send in sends:
            to = self._bound[send.generation]
            stanza = one_element(send.stanza)  # its content may be a client's
            assert stanza.tag in STANZA_NAMES
            self._waiting[to].append(send)
            if sender is not None and to != sender:
                _check_sender(stanza, sender, to)


def _check_answer(answer: Element, stanza: Stanza, full: str) -> None:
    assert stanza.attrs.get("type") not in ("result", "error"), "an answer was answered"
    assert answer.get("to") in (full, None)
    if stanza.name == CLIENT + "iq":
        assert answer.tag == stanza.name
        assert answer.get("type") in ("result", "error")
        assert answer.get("id") == stanza.attrs.get("id", answer.get("id"))


def _check_sender(stanza: Element, sender: str, to: str) -> None:
    """Check that a stanza's sender is true, or is the service, which notifies of items, or is the
    recipient's own account, for which the server sends iqs and presence. (All sessions of an
    account see what one of them may see.)"""
    named = stanza.get("from", DOMAIN).partition("/")[0]
    actor, own = sender.partition("/")[0], to.partition("/")[0]
    allowed = {actor, DOMAIN, SERVICE}
    if stanza.tag != CLIENT + "message":
        allowed.add(own)
    own_presence = actor == own and stanza.tag == CLIENT + "presence"
    assert named in allowed or own_presence, f"{sender} sent to {to} as {named}"


@cache
def _context() -> tuple[Gateway, sqlite3.Connection]:
    """Create a gateway on a temporary file, and a copy of its initial database."""
    folder = tempfile.TemporaryDirectory()
    atexit.register(folder.cleanup)  # the gateway checks the free space of its disk
    gateway = Gateway(new_database(Path(folder.name)))
    gateway.connection.execute("PRAGMA synchronous = OFF")
    gateway.connection.execute("PRAGMA journal_mode = MEMORY")
    gateway.add("pump1")
    gateway.add("pump2")
    gateway.add("untrusted", trusted=False)
    first = sqlite3.connect(":memory:", isolation_level=None)
    gateway.connection.backup(first)
    return gateway, first


def _fresh() -> Gateway:
    """Return the gateway in its initial state, without sessions."""
    gateway, first = _context()
    first.backup(gateway.connection)
    tables = gateway.connection.execute("SELECT name FROM sqlite_temp_master WHERE type = 'table'")
    for (table,) in tables.fetchall():
        gateway.connection.execute(f'DELETE FROM temp."{table}"')  # noqa: S608 - a table's name
    gateway.clock.service = 1000.0
    gateway.sent.clear()
    return gateway
