"""Handing messages on to devices: the gateway as the sender of quality of service.

A message for a bare JID waits in the outbox of its account and goes to one session, at the level at
which it came. How far each has come, and what may be sent, is decided in `rules.qos_sender`; here
the sessions are looked up, and each step is written down in the unit that sends what depends on it.
Source: XEP QoS, "Use Cases", as the project's protocol decisions complete it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final
from zlib import crc32

from edge.config.limits import Limits
from edge.engine import iq_ids, sessions
from edge.engine.access import Sender
from edge.engine.addresses import pubsub_service
from edge.engine.database import AWAITS_ANSWER, Transaction
from edge.engine.hooks import Context, Hooks, Work
from edge.engine.quota import Usage
from edge.engine.sessions import Session
from edge.features.discovery import capabilities
from edge.features.eventlog.store import epochs
from edge.features.outbox import delivery_targets, qos_stanzas, rules, undelivered
from edge.features.outbox.rules import BOUND, TERMINAL, Action, Candidate, Input, Level, State
from edge.features.outbox.store import outbox
from edge.features.outbox.store.outbox import OutboxRow
from edge.xmpp import jid
from edge.xmpp.errors import StanzaError
from edge.xmpp.stanza import Stanza
from sync.common import backoff

HALF: Final = 2
"""What is on its way to an account takes at most one part in so many of what a session may leave
unacknowledged."""

CUTS: Final = 10
"""Sessions that may end over one step of a message, for each attempt: one that ends them all, since
its device does not bear it, must not do so for ever."""

_BOUND: Final = frozenset(state.value for state in BOUND)


def pump(
    context: Context, tx: Transaction, account: str, *, asked: bool = False, ask: bool = True
) -> None:
    """Send what may be sent of an account's line, by name.

    Sessions of which it is not known what they take are asked, unless they were just `asked`, or
    the caller is not ready for what they do once that is known (`ask`).
    """
    limits = context.limits
    rows = outbox.find_sendable(tx, account, limits.outbox_window)
    if all(row.in_flight or row.held for row in rows):
        return
    among = delivery_targets.find(context, tx, account)
    unknown = among.unknown(rows)
    if unknown and ask and not asked:
        for session in unknown:  # where it is known at once, that has sent what may be sent
            capabilities.learn(context, tx, session)
        pump(context, tx, account, asked=True)
        return
    window = Usage(limits.outbox_window, limits.unacknowledged_bytes // HALF)
    by_number = {row.row: row for row in rows if among.reach(row)}
    anew: list[tuple[OutboxRow, Session]] = []
    for number in rules.plan(map(_line, by_number.values()), among.turn, window):
        row = by_number[number]
        to = among.goal(row)
        if to is not None and to.qos is not None:
            _send(context, tx, row, to, Input.SEND if row.state in _BOUND else among.event(to))
        elif to is not None:
            anew.append((row, to))
    for row, _to in anew:
        _postpone(context, tx, row)
    for _row, to in anew if ask else ():  # last: a session that is known at once is sent what
        capabilities.learn(context, tx, to)  # waits for it, and no row is then as it was read


def _line(row: OutboxRow) -> Candidate:
    level, state = Level(row.qos), State(row.state)
    flags = row.session_bound, row.in_flight, row.held
    return Candidate(row.row, row.source, level, state, row.bytes, *flags)


def _send(
    context: Context, tx: Transaction, row: OutboxRow, session: Session, event: Input | None
) -> None:
    """Write a step down, and send the stanza that depends on it."""
    step = rules.transition(Level(row.qos), State(row.state), event) if event else None
    if step is None:
        return
    if row.due is not None and not row.in_flight and not row.held:
        row = row._replace(attempts=max(0, row.attempts - 1))  # the gateway ended meanwhile
    attempts = row.attempts + 1
    due = tx.now.service + _wait(context.limits, row.row, attempts)
    row = row._replace(
        state=step.state.value,
        session=session.full,
        sends=row.sends + 1,
        attempts=attempts,
        held=False,
        due=None if step.state is State.PLAIN else due,
    )
    outbox.save(tx, row)
    receipt = outbox.mark_sent(tx, row, session.generation)
    if step.state is State.PLAIN:
        tx.send(session.generation, qos_stanzas.plain(context, tx, row), receipt)
        return
    stanza = qos_stanzas.request(context, tx, row, session.full, session.qos or "")
    tx.send(session.generation, stanza, AWAITS_ANSWER)
    tx.wake_at(due)


def _wait(limits: Limits, row: int, attempts: int) -> float:
    """Return for how many seconds an answer is waited for. A unit may run again: what it does by
    chance has to be the same then."""
    chance = crc32(b"%d-%d" % (row, attempts)) / 2**32
    return backoff.delay(attempts - 1, chance, limits.retry_after, limits.retry_most)


def _happens(
    context: Context,
    tx: Transaction,
    row: OutboxRow,
    event: Input,
    error: StanzaError | None = None,
) -> None:
    """Do what an input makes of a message; `error` is told where that ends it.

    What was sent for an item of a queue is the queue's again when it is over, and at level 1 when
    its session has gone: then another may have it.
    """
    if event is Input.WAIT_ERROR and row.attempts >= context.limits.retry_attempts:
        event = Input.EXHAUSTED
    step = rules.transition(Level(row.qos), State(row.state), event)
    if step is None:
        return
    parts = step.state in TERMINAL or (event is Input.SESSION_LOST and row.qos == 1)
    if row.queue_item is not None and parts:
        error = error or _unanswered(context)
        ended = (context, tx, row, event, step.state, error)
        context.hooks.trigger(undelivered.ITEM_MESSAGE_ENDED, *ended)
    elif step.state is State.DONE:
        outbox.remove(tx, row)
    elif step.state in TERMINAL:
        undelivered.give_up(context, tx, row, step.state, error or _unanswered(context))
    else:
        outbox.clear_in_flight(tx, row)
        outbox.save(tx, _after(context, tx, row, step))


def _after(context: Context, tx: Transaction, row: OutboxRow, step: rules.Transition) -> OutboxRow:
    row = row._replace(state=step.state.value, held=False, due=None)
    if step.action is Action.HOLD:
        due = tx.now.service + _wait(context.limits, row.row, row.attempts)
        tx.wake_at(due)
        return row._replace(held=True, due=due, sends=0)
    if step.action is Action.REFUND_ATTEMPT:
        return row._replace(attempts=max(0, row.attempts - 1))
    return row._replace(sends=0, attempts=0)


def _unanswered(context: Context) -> StanzaError:
    text = f"no answer in {context.limits.retry_attempts} attempts"
    return StanzaError("recipient-unavailable", text)


# What sessions do


def answered(context: Context, stanza: Stanza) -> Work | bytes:
    """Take the answer of a session to what it was handed; any other is passed on."""
    asked = iq_ids.parse(stanza.attrs.get("id", ""))
    other = context.hooks.other_answer(context, stanza)
    of_service = stanza.attrs.get("to", "").lower() == pubsub_service(context.domain)
    if asked is None or (isinstance(other, bytes) and not of_service):
        return b""
    to = jid.parse(stanza.attrs["to"]).full

    def work(tx: Transaction, sender: Sender) -> bytes:
        of_us = asked.epoch == epochs.epoch_of_row(tx, asked.row)
        row = outbox.find(tx, asked.row) if of_us else None
        ours = row is None or (row.session, qos_stanzas.author(context, row)) == (sender.full, to)
        if not (of_us and ours):
            return other if isinstance(other, bytes) else other(tx, sender)
        if row is None or qos_stanzas.kind(row) != asked.kind:
            return b""  # it was answered before
        event, error = qos_stanzas.read(stanza, asked.kind, f"{asked.epoch}-{asked.row}")
        if row.in_flight or event in (Input.RECEIVED, Input.RESULT):
            _happens(context, tx, row, event, error)
            pump(context, tx, row.recipient)
        return b""

    return work


def takes(context: Context, tx: Transaction, sender: Sender) -> None:
    """Send a session what waits for it. What it asked to wait with is tried at once, since it has
    just said that it is there; and as it may say so often, that counts as one attempt with the
    last."""
    if not outbox.has_messages(tx, sender.account):
        return
    for row in outbox.find_sendable(tx, sender.account, context.limits.outbox_window):
        if row.held and (row.session == sender.full or not row.session_bound):
            attempts = max(0, row.attempts - 1)
            outbox.save(tx, row._replace(held=False, due=None, attempts=attempts))
    pump(context, tx, sender.account)


def known(context: Context, tx: Transaction, sender: Sender) -> None:
    """Send a session that is not available what is for it alone, now that it is known what it
    takes."""
    if outbox.has_messages(tx, sender.account):
        pump(context, tx, sender.account)


def resumes(context: Context, tx: Transaction, sender: Sender) -> None:
    """Wait anew for a session's answers: it is sent again what it has not acknowledged."""
    if not outbox.has_messages(tx, sender.account):
        return
    for row in outbox.find_sent_to(tx, sender.account, sender.full):
        if row.in_flight:
            _postpone(context, tx, row)
    pump(context, tx, sender.account)


def lost(context: Context, tx: Transaction, _sender: Sender | None, rows: Sequence[int]) -> None:
    """Take back what a session ended without answering: others of its account may take over.

    That is no attempt. But where many sessions ended on the same message, the first that they had
    not answered, it is what ends them, and is given up; what was behind it is not to blame.
    """
    most = CUTS * context.limits.retry_attempts
    found = [row for row in (outbox.find(tx, number) for number in rows) if row is not None]
    choked = bool(found) and found[0].sends >= most
    for row in _fresh(tx, found):
        if row.in_flight:
            continue  # another has it, from what became of one before
        if choked and row.row == found[0].row:
            text = f"{most} sessions ended without an answer"
            error = StanzaError("recipient-unavailable", text)
            _happens(context, tx, row, Input.EXHAUSTED, error)
        else:
            _happens(context, tx, row._replace(sends=0) if choked else row, Input.SESSION_LOST)
    _pump_all(context, tx, (row.recipient for row in found))


def settled(context: Context, tx: Transaction, _sender: Sender | None, rows: Sequence[int]) -> None:
    """Be done with what a session has as a plain message."""
    touched = []
    for number in rows:
        if (row := outbox.find(tx, number)) is not None and row.state == State.PLAIN.value:
            _happens(context, tx, row, Input.RESULT)
            touched.append(row.recipient)
    _pump_all(context, tx, touched)


def _fresh(tx: Transaction, rows: Iterable[OutboxRow]) -> Iterator[OutboxRow]:
    """Name messages again, each as it is by then: what becomes of one may move others."""
    for row in rows:
        found = outbox.find(tx, row.row)
        if found is not None:
            yield found


def _pump_all(context: Context, tx: Transaction, names: Iterable[str]) -> None:
    for account in dict.fromkeys(names):
        pump(context, tx, account)


# Time, and what others change


def due(context: Context, tx: Transaction) -> None:
    """See to what is late, to what has waited as long as asked, and to what has expired."""
    expired = StanzaError("recipient-unavailable", "its device did not come in time")
    touched = []
    for row in _fresh(tx, outbox.find_expired(tx, context.limits.outbox_ttl)):
        _happens(context, tx, row, Input.EXPIRED, expired)
        touched.append(row.recipient)
    _bury_orphans(context, tx)
    for row in _fresh(tx, outbox.find_due(tx)):
        if row.due is not None and row.due <= tx.now.service:
            _fall_due(context, tx, row)
            touched.append(row.recipient)
    _pump_all(context, tx, touched)
    since, first = outbox.oldest_since(tx), outbox.next_due_time(tx)
    if since is not None:
        tx.wake_at(since + context.limits.outbox_ttl)
    if first is not None:
        tx.wake_at(first)


def _bury_orphans(context: Context, tx: Transaction) -> None:
    removed = StanzaError("service-unavailable", "its device was removed")
    orphans = outbox.find_orphans(tx)
    for row in _fresh(tx, orphans):
        _happens(context, tx, row, Input.EXPIRED, removed)
    if orphans:  # there may be more
        tx.wake_at(tx.now.service)


def _fall_due(context: Context, tx: Transaction, row: OutboxRow) -> None:
    session = sessions.find(tx, row.session or "") if row.in_flight else None
    if row.held:
        outbox.save(tx, row._replace(held=False, due=None))
    elif not row.in_flight:  # the gateway ended meanwhile, or its session had to be asked
        outbox.save(tx, row._replace(attempts=max(0, row.attempts - 1), due=None))
    elif session is not None and session.detached:
        _postpone(context, tx, row)
    elif session is None or not _still_takes(session, row):
        _happens(context, tx, row, Input.SESSION_LOST)
    elif row.attempts >= context.limits.retry_attempts:
        _happens(context, tx, row, Input.EXHAUSTED)
    else:
        _send(context, tx, row, session, Input.TIMEOUT)


def _still_takes(session: Session, row: OutboxRow) -> bool:
    """Tell whether a session may be asked again what it has not answered: its presence, and what it
    takes, may have changed since."""
    if row.state in _BOUND:
        return session.qos is not None
    return bool(session.qos) and (
        delivery_targets.is_able(session) or session.full == row.only_session
    )


def _postpone(context: Context, tx: Transaction, row: OutboxRow) -> None:
    due = tx.now.service + _wait(context.limits, row.row, row.attempts)
    outbox.save(tx, row._replace(due=due))
    tx.wake_at(due)


def changed(context: Context, tx: Transaction) -> None:
    """Bury what was for an account that is removed, and send what was requeued."""
    _bury_orphans(context, tx)
    _pump_all(context, tx, outbox.accounts_with_sessions(tx))
    since = outbox.oldest_since(tx)
    if since is not None:
        tx.wake_at(since + context.limits.outbox_ttl)


NEEDS_ACCOUNTS: Final = True


def register(hooks: Hooks) -> None:
    """Register with the engine."""
    for kind in qos_stanzas.KINDS:
        hooks.iq_answer(kind, answered)
    hooks.on_available(takes)
    hooks.on_caps_known(known)
    hooks.on_resumed(resumes)
    hooks.on_acknowledged(outbox.PLAIN_RECEIPT, settled)
    hooks.on_unacknowledged(outbox.QOS_RECEIPT, lost)
    hooks.on_unacknowledged(outbox.PLAIN_RECEIPT, lost)
    hooks.on_timer(due)
    hooks.on_external_change(changed)
