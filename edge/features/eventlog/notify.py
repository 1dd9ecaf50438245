"""Telling people what the gateway itself logs: messages with a `<log/>` (XEP-0337).

A notice is written in the transaction of its event, and is a plain message: it goes to whoever of
the account is there, or is stored like any. A notice makes no other: what becomes of one is in the
event log alone. Beyond `log.notify_most` in a minute, events are counted, and told as one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from edge.config.options import Log
from edge.engine import events, meta, refusals, sessions
from edge.engine.database import Transaction
from edge.engine.events import NewEvent
from edge.engine.hooks import Context
from edge.features.accounts.store import accounts
from edge.features.eventlog.rules.levels import RANKS
from edge.features.eventlog.store import notices
from edge.features.messages import rules
from edge.features.messages.rules import MessageType
from edge.features.messages.service import AccountMessage, deliver
from edge.xmpp import jid, serialize
from edge.xmpp.namespaces import EVENTLOG

RULE: Final = "notices"
"""The rule under which it is logged that events were not told one by one."""

FACILITY: Final = "fieldpost"
"""What type of application tells (XEP-0337, section 5.6)."""

LEVELS: Final = {
    "Debug": "Minor",
    "Informational": "Minor",
    "Notice": "Minor",
    "Warning": "Medium",
    "Error": "Major",
    "Critical": "Major",
    "Alert": "Major",
    "Emergency": "Major",
}
"""The types of events, and the extent that an event of such a type has."""

INFORMATIONAL: Final = "Informational"
"""The type of an event that names none (XEP-0337, section 5.1)."""

_SELDOM: Final = frozenset({"heartbeat"})
"""Events that tell the centre something by coming often, and people nothing."""

_BY_SOURCE: Final = frozenset({"limit", "message"})
"""Kinds of events that somebody else than the gateway brings about."""


def teller(context: Context, log: Log) -> Callable[[Transaction], None]:
    """Return what tells people of the events of a transaction, to be called at its end."""
    return partial(_tell, context, log)


def _tell(context: Context, log: Log, tx: Transaction) -> None:
    while noted := events.take_logged(tx):
        for number, event in noted:
            if event.source == context.domain:  # it is about notices
                if event.name == RULE:
                    _send(context, log, tx, number, event)
            elif not _is_wanted(log, event):
                continue
            elif notices.count(tx) <= log.notify_most:
                _send(context, log, tx, number, event)
            else:
                refusals.log_source(context, tx, context.domain, RULE, log.notify_most)


def _is_wanted(log: Log, event: NewEvent) -> bool:
    rank = RANKS[event.level or INFORMATIONAL]
    return rank >= RANKS[log.notify_level] and event.name not in _SELDOM


def _send(context: Context, log: Log, tx: Transaction, number: int, event: NewEvent) -> None:
    id = f"{meta.epoch(tx)}-{number}-log"
    content = _content(context, event, tx.now.wall)
    for to in log.notify:
        attrs = {"to": to, "from": context.domain, "id": id, "type": "normal", "xml:lang": "en"}
        stanza = serialize.tag("message", attrs, content)
        if context.has_accounts:
            _post(context, tx, to, stanza)
        else:
            tx.send(sessions.COMPONENT_LINK, stanza)


def _post(context: Context, tx: Transaction, to: str, stanza: bytes) -> None:
    account = jid.parse(to).local
    exists = accounts.is_active(tx, account)
    route = rules.route(
        MessageType.NORMAL, sessions.of_account(tx, to) if exists else (), None, exists=exists
    )
    message = AccountMessage(stanza, context.domain, account, MessageType.NORMAL, storable=True)
    refusal = deliver(context, tx, message, route)
    if refusal is not None:
        refusals.log_source(context, tx, context.domain, refusal.rule, refusal.figure)


def _content(context: Context, event: NewEvent, wall: int) -> bytes:
    """Make the `<log/>`, and a body for who reads messages only."""
    source = event.source or context.domain
    target = (event.tags or {}).get("destination", "") if event.kind == "message" else ""
    attrs = {
        "timestamp": serialize.timestamp(wall),
        "id": event.name,
        "type": event.level or INFORMATIONAL,
        "level": LEVELS[event.level or INFORMATIONAL],
        "object": target or event.topic or source,
        "subject": source if event.kind in _BY_SOURCE else context.domain,
        "facility": FACILITY,
        "module": event.kind,
    }
    text = serialize.escape(_text(event, source, target))
    tags = b"".join(
        serialize.tag("tag", {"name": name, "value": value, "type": type_})
        for name, value, type_ in _tags(event)
    )
    content = serialize.tag("message", content=text) + tags
    log = serialize.tag("log", attrs, content, xmlns=EVENTLOG)
    return serialize.tag("body", content=text) + log


def _text(event: NewEvent, source: str, target: str) -> str:
    """Say in words what happened."""
    told, item = f"{event.name} at {source}", (event.tags or {}).get("item")
    if event.kind == "limit":
        told = f"{event.name} refused {event.value or 1:.0f} from {source}"
    elif event.kind == "message" and event.topic is None:
        told = f"{event.name}: a message from {source}" + (f" to {target}" if target else "")
    elif event.topic is not None:  # a node, or what a share has of several
        told = f"{event.name} of {item}" if item else f"{event.name}"
        told += f" at {event.topic}"
        told += f", from {event.source}" if event.source else ""
    if event.kind != "limit" and event.value is not None:
        told += f": {event.value:g} {event.unit or ''}".rstrip()
    return f"{told} ({event.text})" if event.text else told


def _tags(event: NewEvent) -> Iterator[tuple[str, str, str]]:
    """Name what an event tells beside: names, values, and their types (XEP-0337, section 5.10)."""
    if event.value is not None and event.kind == "limit":
        yield "count", f"{event.value:.0f}", "xs:long"
    elif event.value is not None:
        yield "value", repr(event.value), "xs:double"
    if event.unit:
        yield "unit", event.unit, "xs:string"
    if event.qos is not None:
        yield "qos", str(event.qos), "xs:int"
    for name, value in (event.tags or {}).items():
        whole = value.isascii() and value.isdigit() and len(value) <= _LONG
        yield name, value, "xs:long" if whole else "xs:string"


_LONG: Final = 18
"""Digits that every `xs:long` can have."""
