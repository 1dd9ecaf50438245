"""Find out in which namespace a session supports QoS.

A session is queried when a message waits for it, or when it could get items of a shared
subscription. If its presence announces capabilities by a hash that was verified before, no query is
needed; the hash depends on the features only, so all devices of a kind share it. If an answer does
not match the announced hash, it counts for that session only.

A session that does not answer is queried again after growing delays. A session that never answers,
or does not support service discovery, has no QoS support. Source: XEP-0115, sections 5.4, 6.1 and
8.
"""

from __future__ import annotations

from typing import Final, NamedTuple, TypeAlias

from edge.engine.dispatch.hooks import Context, Event, Hooks
from edge.engine.rules.access import Sender
from edge.engine.sessions import sessions
from edge.engine.sessions.sessions import SessionRow
from edge.engine.store import meta
from edge.engine.store.database import Transaction
from edge.features.discovery import store
from edge.features.discovery.store import CapsQuery as CapsQuery

MAX_QUERIES: Final = 5
"""Unanswered queries after which a session is considered to have no QoS support.

The wait for the first answer is `limits.retry_after`, each further wait is twice the one before, up
to `limits.retry_most`: by default eight minutes in all.
"""

NO_QOS: Final = ""
"""The value that replaces the QoS namespace for a session without QoS support."""

Announced: TypeAlias = tuple[str, str, str]
"""The capabilities that a presence announces: hash function, node and verification string."""

CAPS_NEEDED: Final = Event[[Context, Transaction, SessionRow]]()
"""Hook event: the capabilities that a session announced are needed to find out its QoS support.

The hook records them by `set_announced`.
"""


class InfoQuery(NamedTuple):
    """A disco#info query to a session.

    With `node`, it asks for the features of the capabilities that the session announced.
    """

    epoch: str
    number: int
    to: str
    node: str | None


def learn(context: Context, tx: Transaction, session: SessionRow) -> None:
    """Find out in which namespace a session supports QoS, and run the hooks that wait for this.

    This happens at once if the session announced a verified hash, or has left `MAX_QUERIES` queries
    unanswered. Otherwise it happens when the session answers a query, which is sent unless an
    earlier one still awaits its answer.
    """
    query = store.find_query(tx, session.generation)
    if query is None:
        context.hooks.trigger(CAPS_NEEDED, context, tx, session)
        query = store.find_query(tx, session.generation)
        qos = _verified_qos(tx, query)
        if qos is not None:
            _set_qos(context, tx, session.generation, qos)
            return
    if query is None or query.due is not None:
        return
    if query.times >= MAX_QUERIES:
        _set_qos(context, tx, session.generation, NO_QOS)
    else:
        _send_query(context, tx, session.generation, session.full, query)


def _verified_qos(tx: Transaction, query: CapsQuery | None) -> str | None:
    if query is None or not query.hash or not query.ver:
        return None
    return store.find_verified(tx, query.hash, query.ver)


def set_announced(tx: Transaction, session: SessionRow, announced: Announced | None) -> None:
    """Record the capabilities that a session's presence announces; `None` if it announces none."""
    store.add_query(tx, session.generation, *(announced or ("", "", "")))


def forget_outdated(tx: Transaction, generation: int, announced: Announced | None) -> bool:
    """Forget the features of a session if its new presence announces other capabilities.

    A presence without capabilities means that they are unchanged (XEP-0115, section 8.4). Returns
    whether anything was forgotten.
    """
    query = store.find_query(tx, generation)
    if query is None or announced is None or announced == (query.hash, query.node, query.ver):
        return False
    store.delete_query(tx, generation)
    sessions.set_qos(tx, generation, None)
    tx.wake_at(tx.now.service)  # those that need to know it find it out again
    return True


def _send_query(
    context: Context, tx: Transaction, generation: int, full: str, query: CapsQuery
) -> None:
    node = f"{query.node}#{query.ver}" if query.by_node else None
    tx.send(generation, InfoQuery(meta.epoch(tx), query.number, full, node))
    limits = context.limits
    wait = min(limits.retry_after * 2.0**query.times, limits.retry_most)
    store.mark_sent(tx, generation, by_node=query.by_node, due=tx.now.service + wait)


def _set_qos(context: Context, tx: Transaction, generation: int, qos: str) -> None:
    store.set_due(tx, generation, None)
    sessions.set_qos(tx, generation, qos)
    _run_hooks(context, tx, generation)


def _run_hooks(context: Context, tx: Transaction, generation: int) -> None:
    if (sender := sessions.sender(tx, generation)) is not None:
        sessions.run_ready_hooks(context, tx, sender)


# Answers


def find_query(tx: Transaction, sender: Sender, epoch: str, number: int) -> CapsQuery | None:
    """Return the query whose id has `epoch` and `number`; `None` if no answer to it is expected."""
    query = store.find_query(tx, sender.generation)
    if query is None or query.due is None or query.number != number:
        return None
    return query if epoch == meta.epoch(tx) else None


def handle_answer(
    context: Context,
    tx: Transaction,
    sender: Sender,
    query: CapsQuery,
    qos: str,
    verified_qos: str | None,
) -> None:
    """Record the QoS namespace of a session and, if `verified_qos` is set, of its announced hash.

    Args:
        qos: the QoS namespace among the features in the answer, or `NO_QOS`.
        verified_qos: the QoS namespace that the hash of the announced capabilities proves; `None`
            if the answer does not match the hash.
    """
    if query.hash and query.ver and verified_qos is not None:
        most = context.limits.capabilities
        store.add_verified(tx, query.hash, query.ver, verified_qos, most)
    _set_qos(context, tx, sender.generation, qos)


def handle_refusal(context: Context, tx: Transaction, sender: Sender, query: CapsQuery) -> None:
    """Handle an error with which a session refuses a query permanently.

    If the query named the announced capabilities, query all features instead. Otherwise the session
    does not support service discovery and so has no QoS support.
    """
    if query.by_node:
        without_node = query._replace(by_node=False)
        _send_query(context, tx, sender.generation, sender.full, without_node)
    else:
        _set_qos(context, tx, sender.generation, NO_QOS)


# Timers and sessions


def on_timer(context: Context, tx: Transaction) -> None:
    """Run the hooks for sessions that have not answered a query in time.

    A hook that needs a session's QoS support queries it again. A detached session gets more time.
    """
    for generation, full in store.find_overdue(tx):
        session = sessions.find(tx, full)
        if session is not None and session.detached:
            store.set_due(tx, generation, tx.now.service + context.limits.retry_after)
            continue
        store.set_due(tx, generation, None)
        _run_hooks(context, tx, generation)
    first = store.next_due_time(tx)
    if first is not None:
        tx.wake_at(first)


def on_session_end(_context: Context, tx: Transaction, sender: Sender) -> None:
    """Delete the query to a session that ends."""
    store.delete_query(tx, sender.generation)


def register_for_accounts(hooks: Hooks) -> None:
    """Register the hooks of this module with the engine."""
    hooks.on_session_end.append(on_session_end)
    hooks.on_timer.append(on_timer)
