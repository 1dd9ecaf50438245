"""Deliver messages to devices with QoS: the gateway as the sender.

A message to an account waits in its outbox and is sent to one session, at the QoS level at which it
came. `rules` decides how far each message has come and what is sent next; here the sessions are
found, and each step is stored in the transaction that sends the request which depends on it.
Source: XEP QoS, "Use Cases", as the project's protocol decisions complete it.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from enum import Enum, auto
from typing import Final, NamedTuple
from zlib import crc32

from edge.config.limits import Limits
from edge.engine.dispatch.addresses import pubsub_service
from edge.engine.dispatch.hooks import Context, Event, Hooks
from edge.engine.rules import quota
from edge.engine.rules.access import Sender
from edge.engine.rules.quota import ExceededLimit, Usage, WaitingUsage
from edge.engine.sessions import durable_sessions, sessions
from edge.engine.sessions.sessions import SessionRow
from edge.engine.store import events
from edge.engine.store.database import AWAITS_ANSWER, MessageBytes, Transaction
from edge.engine.store.events import NewEvent
from edge.errors import ServiceError
from edge.features.discovery import service as discovery
from edge.features.eventlog import service as eventlog
from edge.features.messages import rules as routing
from edge.features.messages import service as messages
from edge.features.messages.rules import MessageType
from edge.features.messages.service import AccountMessage
from edge.features.outbox import rules
from edge.features.outbox.rules import (
    BOUND,
    TERMINAL,
    Action,
    Candidate,
    Input,
    SessionWindow,
    State,
)
from edge.features.outbox.store import dead_letters, outbox
from edge.features.outbox.store.dead_letters import DeadLetter as DeadLetter
from edge.features.outbox.store.image import OutboxRow as OutboxRow
from edge.features.outbox.store.outbox import OutgoingMessage as OutgoingMessage
from edge.features.outbox.store.outbox import find as find
from edge.features.outbox.store.outbox import find_by_source as find_by_source
from edge.features.outbox.store.outbox import find_of_session as find_of_session
from edge.features.outbox.store.outbox import is_in_flight as is_in_flight
from edge.features.outbox.store.outbox import remove as remove
from edge.features.outbox.store.outbox import reserve as reserve
from edge.features.outbox.targets import Targets, find_targets, is_eligible
from sync.common import backoff

WINDOW_DIVISOR: Final = 2
"""`limits.unacknowledged_bytes` divided by this is the maximum bytes of an account's messages that
are sent and unfinished."""

MAX_ERROR_TEXT: Final = 200
"""Maximum number of characters that are kept of the text of a device's error."""

LOSSES_PER_ATTEMPT: Final = 10
"""A message is given up when it was sent this number times `limits.retry_attempts` and its session
ended without an answer: if it makes its device fail, it would otherwise end sessions forever."""


class Reason(Enum):
    """Reasons for which the outbox refuses a message."""

    NO_ACCOUNT = "there is no such account"


class OutboxError(ServiceError[Reason]):
    """The outbox refuses a message."""


class FailureReason(Enum):
    """Reasons why a message could not be delivered; rows store the values."""

    NO_ANSWER = "no answer"
    SESSIONS_LOST = "sessions lost"
    EXPIRED = "expired"
    DEVICE_REMOVED = "device removed"
    DEVICE_ERROR = "device error"
    REFUSED = "refused"


class DeviceError(NamedTuple):
    """The error with which a device refused a message, in the words of its protocol."""

    condition: str
    type: str
    text: str


class DeliveryFailure(NamedTuple):
    """The reason why a message could not be delivered, as text for people too, and the device's
    error if it sent one.

    `is_final` is whether no other device may get the item of a queue that the device has refused
    (MQTT 5.0, section 4.8.2).
    """

    reason: FailureReason
    text: str
    device_error: DeviceError | None = None
    is_final: bool = False


class RequestKind(Enum):
    """The requests to a device that deliver a message."""

    __hash__ = object.__hash__  # `Enum.__hash__` is slow: it is written in Python

    ASSURED = auto()
    ACKNOWLEDGED = auto()
    DELIVER = auto()


_REQUESTS: Final[dict[tuple[int, str], RequestKind]] = {
    (1, State.OFFERED): RequestKind.ACKNOWLEDGED,
    (1, State.REPEATED): RequestKind.ACKNOWLEDGED,
    (2, State.OFFERED): RequestKind.ASSURED,
    (2, State.RELEASED): RequestKind.DELIVER,
}
"""The request that a message's recipient has to answer, by the message's QoS level and state."""


class QosRequest(NamedTuple):
    """A request that delivers a message to a session.

    Attributes:
        epoch: the epoch in which the message was stored, a part of the request's ids.
        row: the row number of the message in the outbox, a part of the request's ids.
        sender: the address that the request and the message come from.
        to: the address that the message is for.
        session: the full JID of the session that the request is for.
        namespace: the QoS namespace of the session.
        content: the message; `None` for `DELIVER`.
        is_repeated: whether the same request was sent before.
    """

    request: RequestKind
    epoch: str
    row: int
    sender: str
    to: str
    session: str
    namespace: str
    content: MessageBytes | None
    is_repeated: bool = False


class PlainMessage(NamedTuple):
    """A message sent without QoS; `received` is when the gateway got it, in ms since 1970 UTC."""

    sender: str
    to: str
    content: MessageBytes
    received: int


REPORT: Final = "failure report"
"""The kind of the rows that store a `FailureReport`."""

ENCODED_REPORT: Final = "encoded failure report"
"""The kind of the rows in which versions before migration 0018 stored a report as XML."""


class FailureReport(NamedTuple):
    """A report to the sender of a message that could not be delivered.

    Attributes:
        to: the full JID of the session that receives the report; the sender's if none is bound.
        in_doubt: whether the message may have been delivered.
        stored: when the report is stored, in ms since 1970 UTC; `None` if it is sent at once.
        id: the id that the sender gave the message in its protocol, if any.
    """

    qos: int
    msg_id: str | None
    destination: str
    to: str
    failure: DeliveryFailure
    in_doubt: bool
    stored: int | None
    id: str | None

    @property
    def sender(self) -> str:
        """Return the address that the report comes from."""
        return self.destination


ITEM_MESSAGE_ENDED: Final = Event[
    [Context, Transaction, OutboxRow, Input, State, DeliveryFailure]
]()
"""Hook event: a message with an item of a queue is finished, or was sent at QoS 1 to a session that
ended without an answer, so that another session can have the item.

Arguments: the row of the message, which the hook must remove from the outbox; the `Input` that
ended it, and its new state; the failure to report if it was not delivered.
"""


ANSWERED: Final = Event[[Context, Transaction, str]]()
"""Hook event: a session has answered a message of an account, which may have finished it. The
argument is the account's name."""


# Adding messages


def enqueue(context: Context, tx: Transaction, account: str, message: OutgoingMessage) -> None:
    """Append a message to the outbox of an account, if that exists, and send what can be sent."""
    row = outbox.new_row(tx, account, message)
    session = _free_target(context, tx, row)
    step = None if session is None else rules.transition(row.qos, row.state, Input.SEND)
    if session is not None and step is not None:
        row = _row_sent(context, tx, row, session, step)
    if not outbox.insert(tx, row, message.content):
        return
    tx.wake_at(tx.now.service + context.limits.outbox_ttl)
    if session is None:
        send_ready(context, tx, account)
    else:
        _send_row(context, tx, row, session)


def _free_target(context: Context, tx: Transaction, row: OutboxRow) -> SessionRow | None:
    """Return the session for a new message, if the message is the only one of its account, or is
    for an ordered session that has room for it.

    `None` leaves the decision to `send_ready`. A returned session is the one that `send_ready`
    would choose, too.
    """
    if row.only_session is not None:
        to = find_targets(context, tx, row.recipient).own_windows.get(row.only_session)
        if to is not None and to.ordered and to.qos and not (to.accepts or to.detached):
            window = _session_window(context.limits, to)
            return to if outbox.has_room_in_turn(tx, row, to, window) else None
    if row.session is not None or not outbox.is_idle(tx, row.recipient, row.source):
        return None
    targets = find_targets(context, tx, row.recipient)
    return targets.target_of(row) if targets.send is Input.SEND else None


def add(context: Context, tx: Transaction, account: str, message: OutgoingMessage) -> int | None:
    """Append a message to an account's outbox; return its number, `None` if there is no account.

    The caller must call `send_ready` afterwards, so that the message is sent.
    """
    row = outbox.add(tx, account, message)
    if row is not None:
        tx.wake_at(tx.now.service + context.limits.outbox_ttl)
    return row


def exceeded_limit(
    context: Context, tx: Transaction, account: str, source: str | None, size: int
) -> ExceededLimit | None:
    """Return the limit that one more message of a source to an account would exceed, if any.

    Args:
        source: the sender's bare JID; `None` for the publish-subscribe service. The limits for one
            source do not apply to this service, because it sends the notifications of all
            publishers. It cannot use the part of the outbox that is reserved for sources with few
            waiting messages.
        size: the bytes that the message would count towards limits.
    """
    limits = context.limits
    of_source, usage = outbox.usage(tx, account, source or "")
    total = Usage(limits.outbox_messages, limits.outbox_bytes)
    per_source = Usage(limits.outbox_messages_per_source, limits.outbox_bytes_per_source)
    if source is None:
        of_source, per_source = quota.FEW_MESSAGES, total
        usage = usage._replace(source=Usage(of_source))
    per_account = Usage(limits.outbox_messages_per_account, limits.outbox_bytes_per_account)
    most = WaitingUsage(per_account, per_source, total)
    return quota.exceeded_waiting_limit(quota.OUTBOX_LIMITS, size, of_source, usage, most)


# Sending


def send_ready(
    context: Context,
    tx: Transaction,
    account: str,
    *,
    query_caps: bool = True,
    queried: bool = False,
) -> None:
    """Send all messages of an account's outbox that can be sent now.

    Args:
        query_caps: whether to ask sessions whether they support QoS, if this is not known. False if
            the caller has not finished a change: a session whose support is found runs hooks.
        queried: whether this has just been done.
    """
    if not outbox.may_have_sendable(tx, account):
        return
    limits, targets = context.limits, find_targets(context, tx, account)
    rows = _find_sendable(limits, tx, account, targets)
    in_flight = {row.row for row in rows if outbox.is_in_flight(tx, row)}
    if all(row.deferred or row.row in in_flight for row in rows):
        return
    unknown = targets.to_query(rows)
    if unknown and query_caps and not queried:
        for session in unknown:  # known capabilities take effect at once and send messages
            discovery.learn(context, tx, session)
        send_ready(context, tx, account, queried=True)
        return
    waiting: list[tuple[OutboxRow, SessionRow]] = []
    for row in _plan(limits, rows, targets, in_flight):
        to = targets.target_of(row)
        if to is not None and to.qos is not None:
            event = Input.SEND if row.state in BOUND else targets.input_for(to)
            _send(context, tx, row, to, event)
        elif to is not None:
            waiting.append((row, to))
    for row, _to in waiting:
        _restart_timer(context, tx, row)
    # last, because learning may send messages, and the rows read above would be outdated
    for _row, to in waiting if query_caps else ():
        discovery.learn(context, tx, to)


def _find_sendable(
    limits: Limits, tx: Transaction, account: str, targets: Targets
) -> list[OutboxRow]:
    own_windows = targets.own_windows
    if not own_windows:
        return outbox.find_sendable(tx, account, limits.outbox_window)
    count, rooms = limits.outbox_window, dict[str | None, int]()
    for session in own_windows.values():
        window = session.window or limits.outbox_window
        count += window
        room = max(0, window - len(outbox.find_unfinished(tx, account, session.full)))
        rooms[session.full] = room if session.ordered else min(room, 1)
    return outbox.find_sendable(tx, account, count, rooms)


def _plan(
    limits: Limits, rows: Sequence[OutboxRow], targets: Targets, in_flight: Container[int]
) -> list[OutboxRow]:
    rows = [row for row in rows if row.row in in_flight or targets.can_plan(row)]
    by_number = {row.row: row for row in rows}
    candidates = [_candidate(row, targets, row.row in in_flight) for row in rows]
    if targets.own_windows:
        candidates = [
            _with_window(limits, one, row, targets)
            for one, row in zip(candidates, rows, strict=True)
        ]
    elif len(rows) == 1:  # the usual case
        return rows if rules.may_send_alone(candidates[0], targets.send) else []
    window = Usage(limits.outbox_window, limits.unacknowledged_bytes // WINDOW_DIVISOR)
    chosen = rules.plan(candidates, targets.send, window)
    return [by_number[number] for number in chosen]


def _candidate(row: OutboxRow, targets: Targets, in_flight: bool) -> Candidate:
    own = None
    if row.only_session is not None or row.turn:
        session = targets.target_of(row)
        own = None if session is None else targets.input_for(session)
    return Candidate(
        row.row, row.source, row.qos, row.state, row.bytes, in_flight, row.deferred, own
    )


def _with_window(limits: Limits, one: Candidate, row: OutboxRow, targets: Targets) -> Candidate:
    session = None if one.in_flight else targets.target_of(row)
    to = row.session if session is None else session.full
    found = targets.own_windows.get(to or "")
    if found is None:
        return one
    own = SessionWindow(found.full, _session_window(limits, found), found.ids, found.ordered)
    joins = to != row.session or not row.turn  # it was restored from the dead letters
    return one._replace(turn=row.turn, session=own, joins=joins)


def _session_window(limits: Limits, session: SessionRow) -> Usage:
    number = session.window or limits.outbox_window
    return Usage(number, limits.unacknowledged_bytes // WINDOW_DIVISOR)


def _send(
    context: Context, tx: Transaction, row: OutboxRow, session: SessionRow, event: Input | None
) -> None:
    step = rules.transition(row.qos, row.state, event) if event else None
    if step is not None:
        row = _row_sent(context, tx, row, session, step)
        outbox.save(tx, row)
        _send_row(context, tx, row, session)


def _row_sent(
    context: Context, tx: Transaction, row: OutboxRow, session: SessionRow, step: rules.Transition
) -> OutboxRow:
    attempts, due = row.attempts + 1, None
    if row.due is not None and not row.deferred and not outbox.is_in_flight(tx, row):
        attempts = max(1, row.attempts)  # the gateway was restarted
    if session.resends and step.state is not State.PLAIN:
        due = tx.now.service + _answer_timeout(context.limits, row.row, attempts)
    sent = row.with_progress(step.state, session.full, row.sends + 1, attempts, False, due)
    if not session.has_own_window or step.state is State.PLAIN:
        return sent
    return sent._replace(turn=outbox.next_turn(tx))


def _send_row(context: Context, tx: Transaction, row: OutboxRow, session: SessionRow) -> None:
    receipt = outbox.mark_sent(tx, row, session.generation)
    if row.due is None and row.state == State.PLAIN:
        tx.send(session.generation, _plain_message(context, tx, row), receipt)
    else:
        request = _qos_request(context, tx, row, session)
        tx.send(session.generation, request, AWAITS_ANSWER)
        if row.due is not None:
            tx.wake_at(row.due)


def _qos_request(
    context: Context, tx: Transaction, row: OutboxRow, session: SessionRow
) -> QosRequest:
    request = pending_request(row) or RequestKind.DELIVER
    return QosRequest(
        request,
        eventlog.epoch_of_row(tx, row.row),
        row.row,
        author(context, row),
        _address(context, row),
        session.full,
        session.qos or "",
        None if request is RequestKind.DELIVER else outbox.content(tx, row.row),
        row.sends > 1,
    )


def _plain_message(context: Context, tx: Transaction, row: OutboxRow) -> PlainMessage:
    received = tx.now.wall - max(0, round((tx.now.service - row.since) * 1000))
    content = outbox.content(tx, row.row)
    return PlainMessage(author(context, row), _address(context, row), content, received)


def author(context: Context, row: OutboxRow) -> str:
    """Return the `from` of a message: its sender or, for an item of a node, the pubsub service.

    Source: XEP-0060, section 7.1.2.
    """
    service = pubsub_service(context.domain)
    return service if row.sender.startswith(f"{service}/") else row.sender


def _address(context: Context, row: OutboxRow) -> str:
    return row.only_session or f"{row.recipient}@{context.domain}"


def pending_request(row: OutboxRow) -> RequestKind | None:
    """Return the unanswered request of a message, or `None`."""
    return _REQUESTS.get((row.qos, row.state))


def _answer_timeout(limits: Limits, row: int, attempts: int) -> float:
    # the same each time, because a unit of work may run again
    jitter = crc32(b"%d-%d" % (row, attempts)) / 2**32
    return backoff.delay(attempts - 1, jitter, limits.retry_after, limits.retry_most)


# Transitions


def _apply(
    context: Context,
    tx: Transaction,
    row: OutboxRow,
    event: Input,
    failure: DeliveryFailure | None = None,
) -> None:
    """Apply an input to a message; `failure` is reported if the message is then given up.

    A message with an item of a queue returns to the queue when it is finished or, at level 1, when
    its session is lost, so that another session can have the item.
    """
    if event is Input.WAIT_ERROR and row.attempts >= context.limits.retry_attempts:
        event = Input.EXHAUSTED
    step = rules.transition(row.qos, row.state, event)
    if step is None:
        return
    is_session_lost = event is Input.SESSION_LOST and row.qos == 1
    if row.queue_item is not None and (step.state in TERMINAL or is_session_lost):
        failure = failure or _no_answer(context)
        context.hooks.trigger(ITEM_MESSAGE_ENDED, context, tx, row, event, step.state, failure)
    elif step.state is State.DONE:
        outbox.remove(tx, row)
    elif step.state in TERMINAL:
        give_up(context, tx, row, step.state, failure or _no_answer(context))
    else:
        outbox.clear_in_flight(tx, row)
        outbox.save(tx, _row_after(context, tx, row, step))


def _row_after(
    context: Context, tx: Transaction, row: OutboxRow, step: rules.Transition
) -> OutboxRow:
    state, session, attempts = step.state, row.session, row.attempts
    if step.action is Action.DEFER:
        due = tx.now.service + _answer_timeout(context.limits, row.row, attempts)
        tx.wake_at(due)
        return row.with_progress(state, session, 0, attempts, True, due)
    if step.action is Action.REFUND_ATTEMPT:
        return row.with_progress(state, session, row.sends, max(0, attempts - 1), False, None)
    return row.with_progress(state, session, 0, 0, False, None)


def _no_answer(context: Context) -> DeliveryFailure:
    text = f"no answer in {context.limits.retry_attempts} attempts"
    return DeliveryFailure(FailureReason.NO_ANSWER, text)


def give_up(
    context: Context, tx: Transaction, row: OutboxRow, state: State, failure: DeliveryFailure
) -> None:
    """Move a message that failed or is in doubt to the dead letters, and report it to its sender.

    There is no report of an item of a node, because its sender is the node, none of a message of
    the operator, because the operator has no account, and none of a sender that was removed.
    """
    destination = _address(context, row)
    letter = DeadLetter(
        row.sender,
        row.msg_id,
        destination,
        row.qos,
        outbox.content(tx, row.row),
        failure.text,
        state=state,
        recipient=row.recipient,
        outbox=row.row,
        session=row.session if row.state == State.RELEASED else None,
    )
    add_dead_letter(context, tx, letter)
    outbox.remove(tx, row)
    if row.source and author(context, row) == row.sender != context.domain:
        _report(context, tx, letter, failure, in_doubt=state is State.IN_DOUBT)


def add_dead_letter(context: Context, tx: Transaction, letter: DeadLetter) -> None:
    """Keep a message that could not be delivered as a dead letter, and log that."""
    dead_letters.add(tx, letter, Usage(context.limits.dead_messages, context.limits.dead_bytes))


def report_refused(context: Context, tx: Transaction, letter: DeadLetter) -> None:
    """Report a message to its sender that its destination could not use, after it was answered.

    `letter` is the message as a dead letter, with the reason.
    """
    failure = DeliveryFailure(FailureReason.REFUSED, letter.reason)
    _report(context, tx, letter, failure, in_doubt=False)


def repeat_reports(context: Context, tx: Transaction, sender: Sender) -> None:
    """Send a session the stored reports to its account, if only an available one would get them."""
    if context.has_accounts:
        messages.flush_own(context, tx, sender, (REPORT, ENCODED_REPORT))


def _report(
    context: Context,
    tx: Transaction,
    letter: DeadLetter,
    failure: DeliveryFailure,
    *,
    in_doubt: bool,
) -> None:
    """Report a failure to the sending session, or else to another session of its account.

    The report is stored until it is acknowledged, as offline messages are. If it cannot be stored,
    it is only sent; if no session is bound either, only the event and the dead letter remain.
    """
    sender, msg_id, destination, qos, content, *_ = letter
    source = sender.partition("/")[0]
    own = sessions.find(tx, sender)
    session = own or routing.best_session(sessions.of_account(tx, source))
    to = sender if session is None else session.full
    read_id = context.hooks.message_ids.get(content.content_type)
    id = None if read_id is None or content.kind else read_id(content.body)
    report = FailureReport(qos, msg_id, destination, to, failure, in_doubt, None, id)
    is_stored = False
    receives_stored = own is None or own.accepts
    is_enabled = context.has_accounts and context.hooks.stores_messages
    if is_enabled and receives_stored:
        stored = report._replace(stored=tx.now.wall)
        message = AccountMessage(
            stored, sender, source, MessageType.ERROR, storable=True, delayed=True
        )
        is_stored = isinstance(messages.store(context, tx, message), int)
    if session is None:
        return
    if not is_stored:
        tx.send(session.generation, report)
    elif (recipient := sessions.sender(tx, session.generation)) is not None:
        messages.flush(context, tx, recipient)


# Hooks of sessions


class Answer(NamedTuple):
    """A session's answer to a request.

    `epoch` and `row` are parts of the answered request's id. `addressee` is the address to which
    the session sent the answer; it must be that from which the request came (`author`).
    """

    request: RequestKind
    epoch: str
    row: int
    addressee: str
    event: Input
    failure: DeliveryFailure | None = None


def handle_answer(context: Context, tx: Transaction, sender: Sender, answer: Answer) -> bool:
    """Apply a session's answer to a request; return `False` if the gateway sent no such request.

    A repeated answer changes nothing.
    """
    if answer.epoch != eventlog.epoch_of_row(tx, answer.row):
        return False
    row = outbox.find(tx, answer.row)
    if row is None:
        return True
    if (row.session, author(context, row)) != (sender.full, answer.addressee):
        return False
    if pending_request(row) is answer.request:
        _apply_answer(context, tx, sender, row, answer.event, answer.failure)
    return True


def handle_answer_by_id(
    context: Context,
    tx: Transaction,
    sender: Sender,
    request: RequestKind,
    id: int,
    failure: DeliveryFailure | None = None,
) -> bool:
    """Record that a session has carried out a request, which it names by an id of its protocol, or
    has refused it with `failure`; return `False` if the session has no such request to answer."""
    row = _find_by_id(tx, sender, id)
    if row is None or pending_request(row) is not request:
        return False
    event = Input.RECEIVED if request is RequestKind.ASSURED else Input.RESULT
    _apply_answer(context, tx, sender, row, Input.FINAL_ERROR if failure else event, failure)
    return True


def is_released_by_id(tx: Transaction, sender: Sender, id: int) -> bool:
    """Return whether the message that a session knows by an id of its protocol was released, and
    the session has not confirmed that."""
    row = _find_by_id(tx, sender, id)
    return row is not None and row.state == State.RELEASED


def _find_by_id(tx: Transaction, sender: Sender, id: int) -> OutboxRow | None:
    session = sessions.find(tx, sender.full)
    return None if session is None else find_by_message_id(tx, session, id)


def discard(context: Context, tx: Transaction, sender: Sender, number: int) -> None:
    """Finish a message that was to be sent to a session and was not, because the session's protocol
    has no form for it or it is larger than the device accepts.

    A message of another device is kept as a dead letter and reported to its sender; an item of a
    node is dropped. Either is logged.
    """
    row = outbox.find(tx, number)
    if row is None or row.session != sender.full or row.state in TERMINAL:
        return
    text = "the device's protocol cannot carry the message, or the device accepts no such size"
    failure = DeliveryFailure(FailureReason.REFUSED, text)
    _apply_answer(context, tx, sender, row, Input.FINAL_ERROR, failure)


def _apply_answer(
    context: Context,
    tx: Transaction,
    sender: Sender,
    row: OutboxRow,
    event: Input,
    failure: DeliveryFailure | None = None,
) -> None:
    if event is Input.RECEIVED and _release(context, tx, row, sender):
        return
    is_success = event in (Input.RECEIVED, Input.RESULT)
    if is_success or outbox.is_in_flight(tx, row):
        _apply(context, tx, row, event, failure)
        send_ready(context, tx, row.recipient)
        context.hooks.trigger(ANSWERED, context, tx, row.recipient)


def find_by_message_id(tx: Transaction, session: SessionRow, id: int) -> OutboxRow | None:
    """Return the unfinished message that a session knows by an id of its protocol, if any.

    The id follows from the row's number (`rules.message_id`), so it is known after a restart.
    """
    account, ids = session.full.partition("@")[0], session.ids or 0
    found = outbox.find_unfinished(tx, account, session.full)
    same = [row for row in found if ids and rules.message_id(row.row, ids) == id]
    # a message that was restored from the dead letters waits for another with its id
    return max(same, key=lambda row: outbox.is_in_flight(tx, row), default=None)


def _release(context: Context, tx: Transaction, row: OutboxRow, sender: Sender) -> bool:
    """Release a message that a session has received, if the message is its account's only one, or
    the session is ordered.

    This has the effect of `_apply` and `send_ready` in less time. Returns `False`, and changes
    nothing, if the caller has to call those.
    """
    session = sessions.find(tx, sender.full)
    step = rules.transition(row.qos, row.state, Input.RECEIVED)
    if (
        step is None
        or session is None
        or session.qos is None
        or not (session.ordered or outbox.is_only_message(tx, row))
        or not outbox.is_in_flight_to(tx, row, session.generation)
    ):
        return False
    received = _row_after(context, tx, row, step)
    _send(context, tx, received, session, Input.SEND)
    return True


def on_accepting(context: Context, tx: Transaction, sender: Sender) -> None:
    """Send a session the messages that wait for it.

    Messages with which the session asked to wait are sent at once, because it has just shown that
    it is ready. It can show this often, so sending them again does not count as another attempt.
    """
    for row in outbox.find_sendable(tx, sender.account, context.limits.outbox_window):
        if row.deferred and (row.session == sender.full or not outbox.is_session_bound(tx, row)):
            attempts = max(0, row.attempts - 1)
            outbox.save(tx, row._replace(deferred=False, due=None, attempts=attempts))
    send_ready(context, tx, sender.account)


def on_qos_known(context: Context, tx: Transaction, sender: Sender) -> None:
    """Send the messages that only this session may get, because its QoS support is now known."""
    send_ready(context, tx, sender.account)


def on_resumed(context: Context, tx: Transaction, sender: Sender) -> None:
    """Restart the timers of unanswered requests, which are sent again to the resumed session."""
    for row in outbox.find_unfinished(tx, sender.account, sender.full):
        if row.due is not None and outbox.is_in_flight(tx, row):
            _restart_timer(context, tx, row)
    send_ready(context, tx, sender.account)


def on_session_lost(
    context: Context, tx: Transaction, _sender: Sender | None, rows: Sequence[int]
) -> None:
    """Make messages available to other sessions, because their session ended without an answer.

    The attempt does not count. But if many sessions ended while the same message was the first
    unanswered one, that message is considered the cause and given up; if the session is durable,
    its whole state ends, because the device may still know the message.
    """
    most = LOSSES_PER_ATTEMPT * context.limits.retry_attempts
    found = [row for row in (outbox.find(tx, number) for number in rows) if row is not None]
    is_cause = bool(found) and found[0].sends >= most
    if is_cause and durable_sessions.exists(tx, found[0].session or ""):
        durable_sessions.end(context, tx, found[0].session or "")
        is_cause = False
    for row in _reread(tx, found):
        if outbox.is_in_flight(tx, row):
            continue  # sent to another session as a consequence of an earlier row
        if is_cause and row.row == found[0].row:
            text = f"{most} sessions ended without an answer"
            failure = DeliveryFailure(FailureReason.SESSIONS_LOST, text)
            _apply(context, tx, row, Input.EXHAUSTED, failure)
        else:
            row = row._replace(sends=0) if is_cause else row
            _apply(context, tx, row, Input.SESSION_LOST)
    _send_ready_all(context, tx, (row.recipient for row in found))


def on_plain_acknowledged(
    context: Context, tx: Transaction, _sender: Sender | None, rows: Sequence[int]
) -> None:
    """Finish messages that were sent as plain messages, when a session has acknowledged them."""
    touched = []
    for number in rows:
        if (row := outbox.find(tx, number)) is not None and row.state == State.PLAIN:
            _apply(context, tx, row, Input.RESULT)
            touched.append(row.recipient)
    _send_ready_all(context, tx, touched)


def _reread(tx: Transaction, rows: Iterable[OutboxRow]) -> Iterator[OutboxRow]:
    """Yield the current state of rows, because handling one row may change others."""
    for row in rows:
        found = outbox.find(tx, row.row)
        if found is not None:
            yield found


def _send_ready_all(context: Context, tx: Transaction, accounts: Iterable[str]) -> None:
    for account in dict.fromkeys(accounts):
        send_ready(context, tx, account)


def on_state_end(context: Context, tx: Transaction, full: str) -> None:
    """Give up messages that a session has received, drop those that only it may receive, and let
    others have the rest, because its state ends.

    Items of queues return to their queues with the end of the session's subscriptions.
    """
    ended = DeliveryFailure(FailureReason.SESSIONS_LOST, "the device's session ended")
    dropped = 0
    found = find_of_session(tx, full.partition("@")[0], full)
    for row in _reread(tx, [row for row in found if row.queue_item is None]):
        if row.only_session is not None:
            outbox.remove(tx, row)
            dropped += 1
        elif row.state in BOUND:
            _apply(context, tx, row, Input.EXPIRED, ended)
        else:
            outbox.save(tx, row._replace(turn=0))  # another session may have it
    log_dropped(tx, full, dropped, "Notifications were dropped because their session ended.")
    send_ready(context, tx, full.partition("@")[0])


def log_dropped(
    tx: Transaction, source: str, count: int, text: str, tags: Mapping[str, str] | None = None
) -> None:
    """Log that notifications of an address were dropped, unless the number is 0."""
    if count:
        event = NewEvent(
            "message",
            source,
            name="notifications_dropped",
            value=float(count),
            level="Notice",
            text=text,
            tags=dict(tags or {}),
        )
        events.append(tx, events.SYSTEM, event)


# Timers and changes by other processes


def on_timer(context: Context, tx: Transaction) -> None:
    """Handle messages that expired, whose account was removed, or whose timer fired."""
    expired = DeliveryFailure(
        FailureReason.EXPIRED, "no session of the device became available in time"
    )
    touched = []
    for row in _reread(tx, outbox.find_expired(tx, context.limits.outbox_ttl)):
        if row.state != State.QUEUED and durable_sessions.exists(tx, row.session or ""):
            outbox.set_since(tx, row)  # until the session or its state ends: it may have the id
            continue
        _apply(context, tx, row, Input.EXPIRED, expired)
        touched.append(row.recipient)
    _give_up_orphans(context, tx)
    for row in _reread(tx, outbox.find_due(tx)):
        if row.due is not None and row.due <= tx.now.service:
            _handle_timer(context, tx, row)
            touched.append(row.recipient)
    _send_ready_all(context, tx, touched)
    _wake_at_expiry(context, tx)
    first = outbox.next_due_time(tx)
    if first is not None:
        tx.wake_at(first)


def _wake_at_expiry(context: Context, tx: Transaction) -> None:
    since = outbox.oldest_since(tx)
    if since is not None:
        tx.wake_at(since + context.limits.outbox_ttl)


def _give_up_orphans(context: Context, tx: Transaction) -> None:
    removed = DeliveryFailure(FailureReason.DEVICE_REMOVED, "the device was removed")
    orphans = outbox.find_orphans(tx)
    for row in _reread(tx, orphans):
        _apply(context, tx, row, Input.EXPIRED, removed)
    if orphans:  # there may be more than one batch
        tx.wake_at(tx.now.service)


def _handle_timer(context: Context, tx: Transaction, row: OutboxRow) -> None:
    in_flight = outbox.is_in_flight(tx, row)
    session = sessions.find(tx, row.session or "") if in_flight else None
    if row.deferred:
        outbox.save(tx, row._replace(deferred=False, due=None))
    elif not in_flight:  # the gateway was restarted, or the session had to be queried
        outbox.save(tx, row._replace(attempts=max(0, row.attempts - 1), due=None))
    elif session is not None and session.detached:
        _restart_timer(context, tx, row)
    elif session is None or not _can_repeat(session, row):
        _apply(context, tx, row, Input.SESSION_LOST)
    elif row.attempts >= context.limits.retry_attempts:
        _apply(context, tx, row, Input.EXHAUSTED)
    else:
        _send(context, tx, row, session, Input.TIMEOUT)


def _can_repeat(session: SessionRow, row: OutboxRow) -> bool:
    """Return whether a session can be sent a request again after its presence or QoS changed."""
    if row.state in BOUND:
        return session.qos is not None
    return bool(session.qos) and (is_eligible(session) or session.full == row.only_session)


def _restart_timer(context: Context, tx: Transaction, row: OutboxRow) -> None:
    due = tx.now.service + _answer_timeout(context.limits, row.row, row.attempts)
    outbox.save(tx, row._replace(due=due))
    tx.wake_at(due)


def on_external_change(context: Context, tx: Transaction) -> None:
    """Give up messages to removed accounts, and send messages that the operator requeued."""
    _give_up_orphans(context, tx)
    _send_ready_all(context, tx, outbox.accounts_with_sessions(tx))
    _wake_at_expiry(context, tx)


def register(hooks: Hooks) -> None:
    """Register the hooks of this module with the engine."""
    hooks.store(REPORT, FailureReport)
    hooks.add(hooks.stored, ENCODED_REPORT, MessageBytes)
    hooks.images.append(outbox.load)  # a component may have rows, too
    hooks.on_time_off.append(outbox.age)


def register_for_accounts(hooks: Hooks) -> None:
    """Register the hooks of this module that need accounts."""
    hooks.on_accepting.append(on_accepting)
    hooks.on_qos_known.append(on_qos_known)
    hooks.on_resumed.append(on_resumed)
    hooks.on_state_end.append(on_state_end)
    hooks.add(hooks.on_acknowledged, outbox.PLAIN_RECEIPT, on_plain_acknowledged)
    hooks.add(hooks.on_unacknowledged, outbox.QOS_RECEIPT, on_session_lost)
    hooks.add(hooks.on_unacknowledged, outbox.PLAIN_RECEIPT, on_session_lost)
    hooks.on_timer.append(on_timer)
    hooks.on_external_change.append(on_external_change)
