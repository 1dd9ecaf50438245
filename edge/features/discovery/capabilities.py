"""Learning in which namespace a session takes quality of service (XEP-0115, XEP-0030).

A session is asked when something waits for it, and not before. What its presence announces by a
hash that was verified is known without asking; the hash is of what a device does, so all devices of
a kind have one. An answer that does not fit its hash counts for the session that gave it alone.

A device that does not answer is asked again, later each time; one that never does, and one that
knows no service discovery, takes no quality of service. Source: XEP-0115, sections 5.4, 6.1 and 8.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from edge.engine import answers, iq_ids, meta, sessions
from edge.engine.access import Sender
from edge.engine.addresses import AddressKind
from edge.engine.database import Transaction
from edge.engine.hooks import Context, Hooks, Work
from edge.engine.sessions import Session
from edge.features.discovery import store
from edge.features.discovery.store import CapsQuery
from edge.features.messages import rules
from edge.xmpp import capabilities as wire
from edge.xmpp import serialize
from edge.xmpp.capabilities import Caps, Info
from edge.xmpp.errors import StanzaError
from edge.xmpp.namespaces import CAPS, CLIENT, DISCO_INFO, QOS_ALL, clark
from edge.xmpp.stanza import Stanza, parse_fragment

KIND: Final = "i"
"""The kind of the ids of these questions."""

ATTEMPTS: Final = 5
"""Questions without an answer, from which on a device is taken to know no service discovery: with
`limits.retry_after` doubling, that is eight minutes. Where something waits, somebody waits."""

NONE: Final = ""
"""The namespace of a session that takes no quality of service."""

_C: Final = clark(CAPS, "c")
_QUERY: Final = clark(DISCO_INFO, "query")
_ERROR: Final = clark(CLIENT, "error")

_FINAL: Final = frozenset({"cancel", "auth", "modify"})
"""Types of errors after which asking the same again is no use (RFC 6120, section 8.3.2)."""

_LEGACY: Final = wire.Caps("", "", "")
"""What stands for a presence that announces nothing."""


def learn(context: Context, tx: Transaction, session: Session) -> None:
    """Find out in which namespace a session takes quality of service.

    Where it is known, it is set at once, and what features do when a session may take messages is
    done; else the session is asked, and that follows when it has answered. Nothing is done while an
    answer is waited for.
    """
    asked = store.find_query(tx, session.generation)
    if asked is None:
        caps = _announced_in(session.presence) or _LEGACY
        store.add_query(tx, session.generation, *caps)
        qos = store.find_verified(tx, caps.hash, caps.ver) if caps.hash else None
        if qos is not None:
            _settle(context, tx, session.generation, session.full, qos)
            return
        asked = store.find_query(tx, session.generation)
    if asked is None or asked.due is not None:
        return
    if asked.times >= ATTEMPTS:
        _settle(context, tx, session.generation, session.full, NONE)
    else:
        _ask(context, tx, session.generation, session.full, asked)


def announced(stanza: Stanza) -> Caps | None:
    """Return what a presence announces, if it does."""
    found = (wire.announced(child.attrs) for child in stanza.children if child.name == _C)
    return next(found, None)


def outdated(tx: Transaction, generation: int, caps: Caps | None) -> bool:
    """Tell whether a session's new presence announces something else than it was known by.

    Then it is not known any more. One that announces nothing has left out what is unchanged
    (section 8.4).
    """
    asked = store.find_query(tx, generation)
    if asked is None or caps is None or caps == (asked.hash, asked.node, asked.ver):
        return False
    store.delete_query(tx, generation)
    sessions.set_qos(tx, generation, None)
    return True


def _announced_in(presence: bytes | None) -> Caps | None:
    if presence is None:
        return None
    found = (wire.announced(child.attrib) for child in parse_fragment(presence).iterfind(_C))
    return next(found, None)


def _ask(context: Context, tx: Transaction, generation: int, full: str, asked: CapsQuery) -> None:
    id = iq_ids.make(meta.epoch(tx), KIND, asked.number)
    node = f"{asked.node}#{asked.ver}" if asked.by_node else None
    query = serialize.tag("query", {"node": node}, xmlns=DISCO_INFO)
    tx.send(generation, serialize.iq_get(id, full, context.domain, query))
    limits = context.limits
    wait = min(limits.retry_after * 2.0**asked.times, limits.retry_most)
    store.mark_sent(tx, generation, by_node=asked.by_node, due=tx.now.service + wait)


def _settle(context: Context, tx: Transaction, generation: int, full: str, qos: str) -> None:
    """Note what a session takes, and do what waited for that."""
    store.clear_due(tx, generation)
    sessions.set_qos(tx, generation, qos)
    _take(context, tx, generation, full)


def _take(context: Context, tx: Transaction, generation: int, full: str) -> None:
    """Let a session take its messages, if it may; else what is for it alone."""
    session, sender = sessions.find(tx, full), sessions.sender(tx, generation)
    if session is None or sender is None:
        return
    for turn in (
        context.hooks.caps_known
        if rules.best_session((session,)) is None
        else context.hooks.available
    ):
        turn(context, tx, sender)


# Answers


def answered(context: Context, stanza: Stanza) -> Work | bytes:
    """Take an answer of the session that was asked; any other is passed on as if nobody was."""
    question = iq_ids.parse(stanza.attrs.get("id", ""))
    other = context.hooks.other_answer(context, stanza)
    if question is None or not _is_here(context, stanza):
        return other

    def work(tx: Transaction, sender: Sender) -> bytes:
        asked = store.find_query(tx, sender.generation)
        if asked is None or asked.due is None or asked.number != question.row:
            return b""
        if question.epoch == meta.epoch(tx):
            _answered(context, tx, sender, stanza, asked)
        return b""

    return work


def _is_here(context: Context, stanza: Stanza) -> bool:
    """Tell whether an answer is for the gateway itself."""
    try:
        return answers.address_kind(context, stanza.attrs.get("to"), "") is AddressKind.GATEWAY
    except StanzaError:
        return False


def _answered(
    context: Context, tx: Transaction, sender: Sender, stanza: Stanza, asked: CapsQuery
) -> None:
    if stanza.attrs["type"] == "error":
        _refused(context, tx, sender, stanza, asked)
        return
    query = next((child for child in stanza.children if child.name == _QUERY), None)
    info = wire.Info((), None)
    if query is not None:
        info = wire.read(query.tree())
    qos = _first(info.features)
    if asked.hash and asked.node and asked.ver:
        _keep(context, tx, wire.Caps(asked.hash, asked.node, asked.ver), info)
    _settle(context, tx, sender.generation, sender.full, qos)


def _keep(context: Context, tx: Transaction, caps: Caps, info: Info) -> None:
    """Keep what a hash stands for, if the answer has that hash: as the text says that is hashed,
    so that no other answer with the same hash would have said anything else."""
    if info.text is not None and wire.verifies(info.text, caps):
        qos = _first(wire.parts(info.text))
        store.add_verified(tx, caps.hash, caps.ver, qos, context.limits.capabilities)


def _first(features: Collection[str]) -> str:
    return next((name for name in QOS_ALL if name in features), NONE)


def _refused(
    context: Context, tx: Transaction, sender: Sender, stanza: Stanza, asked: CapsQuery
) -> None:
    """Take an error: ask for all that the session does where it does not know the name of its
    capabilities; where it knows no service discovery at all, it takes no quality of service."""
    error = next((child for child in stanza.children if child.name == _ERROR), None)
    if error is None or error.attrs.get("type") not in _FINAL:
        return  # it is asked again when its answer is late
    if asked.by_node:
        _ask(context, tx, sender.generation, sender.full, asked._replace(by_node=False))
    else:
        _settle(context, tx, sender.generation, sender.full, NONE)


# Time


def due(context: Context, tx: Transaction) -> None:
    """See to the sessions whose answer is late: who still has something to take is asked again.

    One that waits to be resumed has the time that it is away.
    """
    for generation, full in store.find_overdue(tx):
        session = sessions.find(tx, full)
        if session is not None and session.detached:
            store.set_due(tx, generation, tx.now.service + context.limits.retry_after)
            continue
        store.clear_due(tx, generation)
        _take(context, tx, generation, full)
    first = store.next_due_time(tx)
    if first is not None:
        tx.wake_at(first)


def leave(_context: Context, tx: Transaction, sender: Sender) -> None:
    """Forget what a session was asked."""
    store.delete_query(tx, sender.generation)


NEEDS_ACCOUNTS: Final = True


def register(hooks: Hooks) -> None:
    """Register with the engine."""
    hooks.iq_answer(KIND, answered)
    hooks.on_session_end(leave)
    hooks.on_timer(due)
