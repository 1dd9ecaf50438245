"""Quality of service: the acknowledged and the assured exchange, as their receiver.

What is answered and done is decided in `rules.qos_receiver`; this file reads the requests, looks up
what the rules ask for, and carries the decision out in the same transaction. What is at the address
is known to its `Destination` alone: the event log, an account's outbox. Source: XEP QoS.
"""

from __future__ import annotations

from functools import partial
from hashlib import sha256
from typing import Final, NamedTuple

from edge.engine import destinations, hooks, quota, refusals, space, timers
from edge.engine.access import Sender
from edge.engine.database import Transaction
from edge.engine.hooks import Context, Destination, Handler, Hooks, Message, Work
from edge.engine.quota import ExceededLimit
from edge.features.custody import rules
from edge.features.custody.rules import Answer, Condition, Decision, Effect
from edge.features.custody.store import dedup_keys
from edge.features.custody.store import held as custody
from edge.features.custody.store.held import Held
from edge.features.outbox.store import dead_letters
from edge.features.outbox.store.dead_letters import DeadLetter
from edge.xmpp import replies, serialize
from edge.xmpp.errors import StanzaError
from edge.xmpp.namespaces import CLIENT, QOS_ALL, clark
from edge.xmpp.stanza import Stanza


class _Fault(NamedTuple):
    """What an answer tells beside the decision: the destination's error, the limit exceeded."""

    error: StanzaError | None = None
    over: ExceededLimit | None = None


def assured(context: Context, stanza: Stanza) -> Work:
    """Take a message into custody (XEP QoS, "Assured service")."""
    try:
        msg_id, body = _msg_id(context, stanza), _embedded(stanza)
    except StanzaError as malformed:
        return _malformed(context, stanza, malformed)
    goal, to = destinations.find(context, stanza.attrs.get("to"))
    digest = sha256(body).digest()
    size = custody.charge(msg_id, body)

    def work(tx: Transaction, sender: Sender) -> bytes:
        held = custody.digest(tx, sender.bare, sender.full, msg_id)
        standing, plan = hooks.ALLOWED, quota.FITS
        if held is None:
            standing = goal.standing(context, tx, sender, to)
            if standing.allowed and standing.error is None:
                message = Message(sender, to, body, size, 2, msg_id)
                plan = _plan(context, tx, goal, message)
        situation = rules.offer(
            held=held,
            digest=digest,
            trusted=standing.allowed,
            destination=standing.error is None,
            room=plan.over is None,
        )
        decision = rules.OFFERED[situation]
        if decision.effect is Effect.HOLD:
            for row in plan.evict:
                timers.drop_held(
                    tx, custody.remove(tx, row), "evicted", "its source is at its limit"
                )
            key = sender.bare, sender.full, msg_id
            custody.hold(tx, *key, to.full, body, digest, goal.recipient(to))
            tx.wake_at(tx.now.service + context.limits.held_ttl)
        fault = _Fault(standing.error, plan.over)
        return _answer(context, tx, stanza, sender, decision, fault, msg_id)

    return work


def deliver(context: Context, stanza: Stanza) -> Work:
    """Deliver a message that is in custody, in one transaction with its removal."""
    try:
        msg_id = _msg_id(context, stanza)
    except StanzaError as malformed:
        return _malformed(context, stanza, malformed)

    def work(tx: Transaction, sender: Sender) -> bytes:
        held = custody.find(tx, sender.bare, sender.full, msg_id)
        if held is None:
            known = dedup_keys.has(tx, sender.bare, sender.full, msg_id)
            decision = rules.RELEASED[rules.missing(released=known)]
            return _answer(context, tx, stanza, sender, decision, _Fault())
        decision, fault = _release(context, tx, sender, held)
        return _answer(context, tx, stanza, sender, decision, fault)

    return work


def _release(
    context: Context, tx: Transaction, sender: Sender, held: Held
) -> tuple[Decision, _Fault]:
    goal, to = destinations.find(context, held.destination)
    trusted, error = goal.standing(context, tx, sender, to)
    if not trusted:
        error = StanzaError("not-allowed")
    size = custody.charge(held.msg_id, held.body)
    message = Message(sender, to, held.body, size, 2, held.msg_id, held.since)
    contents = goal.read(context, held.body, to)
    over = None if error else goal.room_now(context, tx, message, contents)
    situation = rules.release(
        destination=error is None,
        readable=not contents.unreadable,
        room=over is None,
    )
    decision = rules.RELEASED[situation]
    if decision.answer is Answer.EMPTY:  # and a repeated deliver is to get it too
        custody.release(tx, held, context.limits.released_keys)
    elif decision.effect is Effect.BURY:
        custody.remove(tx, held.row)
    if decision.effect is Effect.DELIVER:
        goal.deliver(context, tx, message, contents)
    elif decision.effect is Effect.BURY:
        reason = contents.unreadable if error is None else str(error)
        _bury(context, tx, message, goal, reason)
    return decision, _Fault(error, over)


def acknowledged(context: Context, stanza: Stanza) -> Work:
    """Deliver a message before it is acknowledged (XEP QoS, "Acknowledged service")."""
    try:
        body = _embedded(stanza)
    except StanzaError as malformed:
        return _malformed(context, stanza, malformed)
    goal, to = destinations.find(context, stanza.attrs.get("to"))

    def work(tx: Transaction, sender: Sender) -> bytes:
        message = Message(sender, to, body, custody.charge("", body), 1)
        contents, over = goal.read(context, body, to), None
        standing = goal.standing(context, tx, sender, to)
        if standing.allowed and standing.error is None:
            over = goal.room_now(context, tx, message, contents)
            over = over or space.refuses(tx, message.size, context.limits)
        situation = rules.acknowledge(
            trusted=standing.allowed,
            destination=standing.error is None,
            room=over is None,
            readable=not contents.unreadable,
        )
        decision = rules.ACKNOWLEDGED[situation]
        if decision.effect is Effect.DELIVER:
            goal.deliver(context, tx, message, contents)
        elif decision.effect is Effect.BURY:
            _bury(context, tx, message, goal, contents.unreadable)
        return _answer(context, tx, stanza, sender, decision, _Fault(standing.error, over))

    return work


def not_by_get(_context: Context, _stanza: Stanza) -> bytes:
    """Refuse an iq of type get: the exchange changes what is held, so it takes a set."""
    raise StanzaError("feature-not-implemented", "quality of service takes an iq of type set")


def _msg_id(context: Context, stanza: Stanza) -> str:
    msg_id = stanza.children[0].attrs.get("msgId", "")
    limit = context.limits.msgid_bytes
    if not msg_id or len(msg_id.encode()) > limit:
        raise StanzaError("bad-request", f"msgId must have 1 to {limit} bytes")
    return msg_id


def _embedded(stanza: Stanza) -> bytes:
    payload = stanza.children[0]
    if len(payload.children) != 1 or payload.children[0].name not in _MESSAGES:
        raise StanzaError("bad-request", "exactly one embedded message is expected")
    return payload.children[0].raw


def _malformed(context: Context, stanza: Stanza, malformed: StanzaError) -> Work:
    error = malformed.with_traceback(None)  # it would keep its frames, and they this work

    def work(tx: Transaction, sender: Sender) -> bytes:
        refusals.log(context, tx, sender, "malformed")
        return _error(stanza, sender, error)

    return work


def _plan(context: Context, tx: Transaction, goal: Destination, message: Message) -> quota.Plan:
    over = goal.room_to_hold(context, tx, message)
    over = over or space.refuses(tx, message.size, context.limits)
    if over is not None:
        return quota.Plan(over)
    bare, grace = message.sender.bare, context.limits.held_grace
    source, total = custody.usage(tx, bare)
    oldest = partial(custody.oldest, tx, bare)
    return quota.plan(message.size, source, total, context.limits, oldest, grace)


def _bury(
    context: Context, tx: Transaction, message: Message, goal: Destination, reason: str
) -> None:
    sender, to, body, _size, qos, msg_id, _since = message
    recipient = goal.recipient(to)
    letter = DeadLetter(sender.full, msg_id, to.full, qos, body, reason, recipient=recipient)
    dead_letters.add(
        tx, letter, quota.Usage(context.limits.dead_messages, context.limits.dead_bytes)
    )


def _answer(
    context: Context,
    tx: Transaction,
    stanza: Stanza,
    sender: Sender,
    decision: Decision,
    fault: _Fault,
    msg_id: str = "",
) -> bytes:
    answer, rule = decision.answer, decision.rule
    over = fault.over if answer is rules.NO_ROOM else None
    if rule == rules.REPEATED:
        refusals.log_if_room(context, tx, sender, rule)
    elif rule is not None:
        refusals.log(context, tx, sender, over.rule if over else rule, over and over.figure)
    if isinstance(answer, Condition):
        text = f"{over.rule} is {over.figure}" if over else ""
        return _error(stanza, sender, StanzaError(answer.name, text, type=answer.type))
    if answer is Answer.ITS_ERROR and fault.error is not None:
        return _error(stanza, sender, fault.error)
    payload = b""
    if answer is Answer.RECEIVED:
        namespace = stanza.children[0].name[1:].partition("}")[0]
        payload = serialize.tag("received", {"msgId": msg_id}, xmlns=namespace)
    attrs = stanza.attrs
    return serialize.iq_result(attrs["id"], sender.full, attrs.get("to"), payload)


def _error(stanza: Stanza, sender: Sender, error: StanzaError) -> bytes:
    return replies.iq_error(stanza, error, to=sender.full, from_=stanza.attrs.get("to"))


_MESSAGES: Final = frozenset(clark(name, "message") for name in (CLIENT, *QOS_ALL))


def register(hooks: Hooks) -> None:
    """Register with the engine."""
    for namespace in QOS_ALL:
        for name, handler in _EXCHANGE.items():
            hooks.any_iq("set", clark(namespace, name), handler)
            hooks.any_iq("get", clark(namespace, name), not_by_get)
    hooks.advertise(*QOS_ALL)


_EXCHANGE: Final[dict[str, Handler]] = {
    "assured": assured,
    "deliver": deliver,
    "acknowledged": acknowledged,
}
