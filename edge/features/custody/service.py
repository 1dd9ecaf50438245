"""Take messages into custody, deliver them, and expire them.

`offer`, `deliver` and `acknowledge` are units of work: they return when the request succeeds, and
raise when it is refused. What they changed before they raise is committed all the same, such as the
event that logs the refusal. The decisions are in `rules`.

A message belongs to the session that offered it. If that session has no connection, a later session
of the same account may take the message over, because many clients have a new resource in each
process (`_take_over`). Sessions of protocols that number messages for each session do not do this
(`Declaration.adopts`): their msgIds are stored in a form that no other session uses.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from hashlib import sha256
from typing import Any, Final, NamedTuple

from edge.engine.dispatch import destinations
from edge.engine.dispatch.hooks import ALLOWED, Contents, Context, Destination, Hooks, Message, Plan
from edge.engine.dispatch.item_attributes import NO_ATTRIBUTES, ItemAttributes
from edge.engine.log import refusals
from edge.engine.rules import quota
from edge.engine.rules.access import Sender
from edge.engine.rules.quota import ExceededLimit
from edge.engine.sessions import sessions
from edge.engine.store import events, message_counts, space
from edge.engine.store.database import Transaction
from edge.engine.store.events import NewEvent
from edge.errors import ServiceError
from edge.features.custody import rules, store
from edge.features.custody.rules import Answer, Decision, Effect, Reason, Situation
from edge.features.custody.store import HeldMessage
from edge.features.outbox import service as outbox
from edge.features.outbox.service import DeadLetter
from edge.jid import Jid

# Looking up a member of an Enum runs Python code; each request needs these members.
_HOLD: Final = Effect.HOLD
_DELIVER: Final = Effect.DELIVER
_DEAD_LETTER: Final = Effect.DEAD_LETTER
_REPORT: Final = Effect.REPORT
_EMPTY: Final = Answer.EMPTY


class CustodyError(ServiceError[Reason]):
    """Custody refuses a request."""


class CustodyRequest(NamedTuple):
    """A message that a sender hands over, and where it goes.

    `msg_id` and `digest`, the body's SHA-256, are empty in an `acknowledged`. `parsed` is the body
    as its protocol has parsed it, if it has. `attributes` are its content type, expiry and
    properties.
    """

    body: bytes
    destination: Destination
    address: Jid
    msg_id: str = ""
    digest: bytes = b""
    parsed: Any = None
    attributes: ItemAttributes = NO_ATTRIBUTES


def request(
    target: tuple[Destination, Jid],
    body: bytes,
    parsed: Any = None,
    msg_id: str = "",
    offered: bytes = b"",
    attributes: ItemAttributes = NO_ATTRIBUTES,
) -> CustodyRequest:
    """Prepare the argument of `offer` or, without a msgId, of `acknowledge`.

    This computes the digest before the transaction.

    Args:
        target: the destination and the address (`destinations.find`).
        offered: the body as it was offered, by which a repeated offer is known.
    """
    destination, address = target
    digest = sha256(offered or body).digest() if msg_id else b""
    return CustodyRequest(body, destination, address, msg_id, digest, parsed, attributes)


def offer(context: Context, tx: Transaction, sender: Sender, request: CustodyRequest) -> None:
    """Take a message into custody (XEP QoS, "Assured service").

    If msgIds belong to the sender's session alone, another message under the same one replaces a
    held message: a device with few msgIds that has lost its state uses them again.

    Raises:
        CustodyError: custody refuses the message.
        ServiceError: the destination refuses the message, for a reason of its own.
    """
    body, destination, to, msg_id, digest, parsed, attributes = request
    source, full = sender.bare, sender.full
    if not sender.adopts:
        msg_id = store.own_msg_id(full, msg_id)
    size = store.message_size(msg_id, body, attributes)
    held, others = store.find_all(tx, source, full, msg_id)
    if held is not None and not sender.adopts and _is_other(held, request):
        _drop(context, tx, held, "discarded", "discarded: its sender used its msgId again")
        held = None
    if held is None and others:
        repeated = [one for one in others if not _is_other(one, request)]
        held = _take_over(tx, sender, repeated)
    (allowed, error), (over, evicted) = ALLOWED, quota.FITS
    if held is None:
        allowed, error = destination.acceptance(context, tx, sender, to)
        if allowed and error is None:
            message = Message(sender, to, body, size, 2, msg_id, None, attributes)
            over, evicted = _plan(context, tx, destination, message)
    situation = rules.offer(
        held=None if held is None else held.digest,
        digest=digest,
        trusted=allowed,
        destination=error is None,
        room=over is None,
    )
    decision = rules.OFFERED[situation]
    _answer, effect, rule = decision
    if effect is _HOLD:
        for row in evicted:
            reason = "deleted to make room: its sender is at its limit"
            _drop(context, tx, store.get(tx, row), "evicted", reason)
        store.hold(
            tx, source, full, msg_id, to.full, body, digest, size,
            to.local or None, parsed, sender.generation, attributes,
        )  # fmt: skip
        tx.wake_at(tx.now.service + context.limits.held_ttl)
        message_counts.count(tx, 2, message_counts.ACCEPTED)
    elif _is_refusal(decision):
        message_counts.count(tx, 2, message_counts.REFUSED)
    if rule is not None:
        _conclude(context, tx, sender, decision, error, over)


def _is_other(held: HeldMessage, request: CustodyRequest) -> bool:
    return (held.digest, held.destination) != (request.digest, request.address.full)


def deliver(context: Context, tx: Transaction, sender: Sender, msg_id: str) -> None:
    """Deliver a held message and remove it from custody, in one transaction.

    A message that the destination cannot read or does not accept is kept as a dead letter. Its
    sender is answered as if it were delivered, and then gets an error message. A message whose
    destination is gone or forbidden is also kept as a dead letter, but the answer is an error.

    Raises:
        CustodyError: no message is held under this msgId for the sender's session, there is no room
            to deliver it now, or the sender may no longer send to the destination.
        ServiceError: the destination refuses the message, for a reason of its own.
    """
    key = msg_id if sender.adopts else store.own_msg_id(sender.full, msg_id)
    held = store.find(tx, sender.bare, sender.full, key)
    if held is None:
        missing = _find_elsewhere(tx, sender, key)
        if isinstance(missing, Situation):
            if missing is Situation.RELEASED:  # the answer was lost, and perhaps a report with it
                outbox.repeat_reports(context, tx, sender)
            _conclude(context, tx, sender, rules.RELEASED[missing])
            return
        held = missing
    destination, to = destinations.find(context, held.destination)
    trusted, error = destination.acceptance(context, tx, sender, to)
    if not trusted:
        error = CustodyError(Reason.NOT_ALLOWED)
    body, parsed = store.read_body(tx, held)
    message = Message(sender, to, body, held.size, 2, msg_id, held.since, held.attributes)
    contents = destinations.read(context, destination, message, parsed)
    found = None if error else destination.check(context, tx, message, contents)
    if isinstance(found, ServiceError):
        error, found = found, None
    over = found if isinstance(found, ExceededLimit) else None
    situation = rules.release(
        destination=error is None,
        readable=not contents.unreadable,
        room=over is None,
    )
    decision = rules.RELEASED[situation]
    answer, effect, _rule = decision
    if answer is _EMPTY:  # a repeated deliver gets the same answer
        store.release(tx, held, context.limits.released_keys, sender.generation)
    elif effect is _DEAD_LETTER:
        store.remove(tx, held, context.limits.released_keys)
    _carry_out(context, tx, destination, message, contents, decision, error, found)


def acknowledge(context: Context, tx: Transaction, sender: Sender, request: CustodyRequest) -> None:
    """Deliver a message at once, before it is acknowledged (XEP QoS, "Acknowledged service").

    Raises:
        CustodyError: custody refuses the message.
        ServiceError: the destination refuses the message, for a reason of its own.
    """
    body, destination, to, _msg_id, _digest, parsed, attributes = request
    size = store.message_size("", body, attributes)
    message = Message(sender, to, body, size, 1, None, None, attributes)
    contents = destinations.read(context, destination, message, parsed)
    found: ExceededLimit | Plan | None = None
    allowed, error = destination.acceptance(context, tx, sender, to)
    if allowed and error is None:
        checked = destination.check(context, tx, message, contents)
        if isinstance(checked, ServiceError):
            error = checked
        elif isinstance(checked, ExceededLimit):
            found = checked
        else:
            # an empty message may delete a retained item, which always has room
            found = (space.reserve(tx, size, context.limits) if body else None) or checked
    situation = rules.acknowledge(
        trusted=allowed,
        destination=error is None,
        room=not isinstance(found, ExceededLimit),
        readable=not contents.unreadable,
    )
    decision = rules.ACKNOWLEDGED[situation]
    _carry_out(context, tx, destination, message, contents, decision, error, found)


def _carry_out(
    context: Context,
    tx: Transaction,
    destination: Destination,
    message: Message,
    contents: Contents,
    decision: Decision,
    error: ServiceError[Any] | None,
    found: ExceededLimit | Plan | None,
) -> None:
    """Deliver a message or keep it as a dead letter, as the decision requires; then raise the error
    that answers its sender, if any. `found` is what the destination's `check` has returned."""
    if decision.effect is _DELIVER:
        plan = found if isinstance(found, Plan) else None
        reason = destination.deliver(context, tx, message, contents, plan)
        if not reason:
            message_counts.count(tx, message.qos, message_counts.DELIVERED)
            return
        decision = rules.UNFIT
    else:
        reason = contents.unreadable if error is None else str(error)
    sender, to, qos, msg_id = message.sender, message.to, message.qos, message.msg_id
    if decision.effect in (_REPORT, _DEAD_LETTER):
        letter = DeadLetter(
            sender.full, msg_id, to.full, qos, message.content, reason, recipient=to.local or None
        )
        outbox.add_dead_letter(context, tx, letter)
        if decision.effect is _REPORT:
            outbox.report_refused(context, tx, letter)
    if qos == 1 and _is_refusal(decision):  # at level 2 it was counted as accepted
        message_counts.count(tx, 1, message_counts.REFUSED)
    over = found if isinstance(found, ExceededLimit) else None
    _conclude(context, tx, sender, decision, error, over)


def expire(context: Context, tx: Transaction) -> None:
    """Drop messages held for longer than `limits.held_ttl`; set the timer for the next expiry."""
    ttl = context.limits.held_ttl
    for held in store.expired(tx, ttl):
        _drop(context, tx, held, "expired", "expired: its sender did not release it in time")
    since = store.oldest_since(tx)
    if since is not None:
        tx.wake_at(since + ttl)


def on_state_end(context: Context, tx: Transaction, full: str) -> None:
    """Drop the messages of a session whose state ends before it has asked for their delivery, but
    not those for whose delivery another session may ask."""
    for held in store.own_messages(tx, full.partition("/")[0], full):
        _drop(context, tx, held, "discarded", "discarded: the session of its sender has ended")


def _find_elsewhere(tx: Transaction, sender: Sender, msg_id: str) -> HeldMessage | Situation:
    """Find a message that another session of the sender's account offered under this msgId.

    Make it the message of the sender's session and return it, if that session may take it over.
    Otherwise, return the situation of the request.
    """
    key = sender.bare, sender.full, msg_id
    released = store.was_released(tx, *key)
    if released:
        return rules.missing(released=released, elsewhere=False)
    _own, others = store.find_all(tx, *key)
    held = _take_over(tx, sender, others)
    if held is not None:
        return held
    connected = _connected(tx, sender)
    releasers = store.releasers(tx, sender.bare, msg_id)
    known = releasers & {store.hash_sender(full) for full in connected}
    return rules.missing(
        released=bool(releasers - known),
        elsewhere=bool(known) or any(one.sender in connected for one in others),
    )


def _take_over(
    tx: Transaction, sender: Sender, others: Sequence[HeldMessage]
) -> HeldMessage | None:
    """Give the sender's session the newest of `others` that it may take over; return this message.

    `others` are messages of one msgId, of other sessions of the account, oldest first. Returns
    `None` if the session may take over none of them.
    """
    session = sessions.find(tx, sender.full)
    if session is None:
        return None
    connected = _connected(tx, sender)
    for held in reversed(others):
        if rules.may_inherit(
            connected=held.sender in connected,
            exclusive=held.exclusive,
            since=held.since,
            began=session.since,
        ):
            return store.move(tx, held, sender.full)
    return None


def _connected(tx: Transaction, sender: Sender) -> set[str]:
    found = sessions.of_account(tx, sender.bare)
    return {session.full for session in found if not session.detached}


def _plan(
    context: Context, tx: Transaction, destination: Destination, message: Message
) -> quota.EvictionPlan:
    limits, size, source = context.limits, message.size, message.sender.bare
    over = destination.room_to_hold(context, tx, message)
    over = over or space.reserve(tx, size, limits)
    if over is not None:
        return quota.EvictionPlan(over)
    of_source, total = store.usage(tx, source)
    oldest = partial(store.oldest, tx, source)
    return quota.plan_eviction(size, of_source, total, limits, oldest, limits.held_grace)


def _is_refusal(decision: Decision) -> bool:
    """Return whether the answer to the sender is an error."""
    return isinstance(decision.answer, Reason) or decision.answer is Answer.DESTINATION_ERROR


def _conclude(
    context: Context,
    tx: Transaction,
    sender: Sender,
    decision: Decision,
    error: ServiceError[Any] | None = None,
    over: ExceededLimit | None = None,
) -> None:
    """Log the request if the decision has a rule; then raise the error that answers it, if any."""
    answer, _effect, rule = decision
    if rule is None:
        return
    if rule == rules.REPEATED:
        refusals.log_if_room(context, tx, sender, refusals.REPEATED)
        return
    exceeded = over if answer is Reason.NO_ROOM else None
    if exceeded is not None:
        rule = exceeded.name
    elif error is not None and error.rule is not None:
        rule = error.rule
    refusals.log(context, tx, sender, rule, exceeded and exceeded.value)
    if isinstance(answer, Reason):
        raise CustodyError(answer, "" if exceeded is None else exceeded.text)
    if answer is Answer.DESTINATION_ERROR and error is not None:
        raise error


def _drop(context: Context, tx: Transaction, held: HeldMessage, name: str, reason: str) -> None:
    store.remove(tx, held, context.limits.released_keys)
    tags = {"msgId": store.sent_msg_id(held.msg_id), "destination": held.destination}
    event = NewEvent(
        "message", held.sender, name=name, level="Warning", text=reason, qos=2, tags=tags
    )
    events.append(tx, events.SYSTEM, event)


def register(hooks: Hooks) -> None:
    """Register the hooks of this module with the engine."""
    hooks.images.append(store.load)
    hooks.on_timer.append(expire)
    hooks.on_state_end.append(on_state_end)
    hooks.on_time_off.append(store.age)
