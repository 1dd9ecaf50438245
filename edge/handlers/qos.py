"""Quality of service: the acknowledged and the assured exchange, as their receiver.

What is answered and done is decided in `rules.qos_receiver`; this file reads the requests, looks up
what the rules ask for, and carries the decision out in the same transaction. Source: XEP QoS.
"""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Final, NamedTuple

from edge.handlers import delivery, destinations, refusals
from edge.handlers.feature import Feature
from edge.rules import access, qos_receiver, quota
from edge.rules.qos_receiver import Answer, Condition, Effect
from edge.store import custody, dead, due, released
from edge.store.dead import Letter
from edge.wire import serialize
from edge.wire.errors import StanzaError
from edge.wire.namespaces import CLIENT, QOS_ALL, clark

if TYPE_CHECKING:
    from edge.handlers.feature import Handler, House, Work
    from edge.rules.access import Sender
    from edge.rules.qos_receiver import Decision
    from edge.rules.quota import Over
    from edge.store.custody import Held
    from edge.store.database import Transaction
    from edge.wire.stanza import Stanza


class _Fault(NamedTuple):
    """What an answer tells beside the decision: the destination's error, the limit exceeded."""

    error: StanzaError | None = None
    over: Over | None = None


def assured(house: House, stanza: Stanza) -> Work:
    """Take a message into custody (XEP QoS, "Assured service")."""
    try:
        msg_id, body = _msg_id(house, stanza), _embedded(stanza)
    except StanzaError as malformed:
        return _malformed(house, stanza, malformed)
    destination = stanza.attrs.get("to", house.domain)
    error = destinations.error(house.domain, destination)
    digest = sha256(body).digest()
    size = custody.charge(msg_id, body)

    def work(tx: Transaction, sender: Sender) -> bytes:
        held = custody.digest(tx, sender.bare, sender.full, msg_id)
        plan = _plan(house, tx, sender, size) if held is None else quota.Plan(None)
        situation = qos_receiver.offer(
            held=held,
            digest=digest,
            trusted=access.may_use_services(sender, house.trusted_domains),
            destination=error is None,
            room=plan.over is None,
        )
        decision = qos_receiver.OFFERED[situation]
        if decision.effect is Effect.HOLD:
            for row in plan.evict:
                due.drop_held(tx, custody.remove(tx, row), "evicted", "its source is at its limit")
            custody.hold(tx, sender.bare, sender.full, msg_id, destination, body, digest)
            tx.wake_at(tx.now.service + house.limits.held_ttl)
        fault = _Fault(error, plan.over)
        return _answer(house, tx, stanza, sender, decision, fault, msg_id)

    return work


def deliver(house: House, stanza: Stanza) -> Work:
    """Deliver a message that is in custody, in one transaction with its removal."""
    try:
        msg_id = _msg_id(house, stanza)
    except StanzaError as malformed:
        return _malformed(house, stanza, malformed)

    def work(tx: Transaction, sender: Sender) -> bytes:
        held = custody.find(tx, sender.bare, sender.full, msg_id)
        if held is None:
            known = released.has(tx, sender.bare, sender.full, msg_id)
            decision = qos_receiver.RELEASED[qos_receiver.missing(released=known)]
            return _answer(house, tx, stanza, sender, decision, _Fault())
        decision, fault = _release(house, tx, sender, held)
        return _answer(house, tx, stanza, sender, decision, fault)

    return work


def _release(house: House, tx: Transaction, sender: Sender, held: Held) -> tuple[Decision, _Fault]:
    error = destinations.error(house.domain, held.destination)
    if error is None and not access.may_use_services(sender, house.trusted_domains):
        error = StanzaError("not-allowed")
    contents = delivery.read(house, held.body)
    situation = qos_receiver.release(
        destination=error is None,
        readable=not contents.unreadable,
        room=delivery.has_room(house, tx, contents),
    )
    decision = qos_receiver.RELEASED[situation]
    if decision.answer is Answer.EMPTY:  # and a repeated deliver is to get it too
        custody.release(tx, held, house.limits.released_keys)
    elif decision.effect is Effect.BURY:
        custody.remove(tx, held.row)
    if decision.effect is Effect.DELIVER:
        delivery.deliver(tx, contents, sender.full, 2, held.since)
    elif decision.effect is Effect.BURY:
        reason = contents.unreadable if error is None else str(error)
        _bury(house, tx, Letter(sender.full, held.msg_id, held.destination, 2, held.body, reason))
    return decision, _Fault(error, _log_limit(house))


def acknowledged(house: House, stanza: Stanza) -> Work:
    """Deliver a message before it is acknowledged (XEP QoS, "Acknowledged service")."""
    try:
        body = _embedded(stanza)
    except StanzaError as malformed:
        return _malformed(house, stanza, malformed)
    destination = stanza.attrs.get("to", house.domain)
    error = destinations.error(house.domain, destination)

    def work(tx: Transaction, sender: Sender) -> bytes:
        contents = delivery.read(house, body)
        situation = qos_receiver.acknowledge(
            trusted=access.may_use_services(sender, house.trusted_domains),
            destination=error is None,
            room=delivery.has_room(house, tx, contents),
            readable=not contents.unreadable,
        )
        decision = qos_receiver.ACKNOWLEDGED[situation]
        if decision.effect is Effect.DELIVER:
            delivery.deliver(tx, contents, sender.full, 1)
        elif decision.effect is Effect.BURY:
            reason = contents.unreadable
            _bury(house, tx, Letter(sender.full, None, destination, 1, body, reason))
        fault = _Fault(error, _log_limit(house))
        return _answer(house, tx, stanza, sender, decision, fault)

    return work


def not_by_get(_house: House, _stanza: Stanza) -> bytes:
    """Refuse an iq of type get: the exchange changes what is held, so it takes a set."""
    raise StanzaError("feature-not-implemented", "quality of service takes an iq of type set")


def _msg_id(house: House, stanza: Stanza) -> str:
    msg_id = stanza.children[0].attrs.get("msgId", "")
    limit = house.limits.msgid_bytes
    if not msg_id or len(msg_id.encode()) > limit:
        raise StanzaError("bad-request", f"msgId must have 1 to {limit} bytes")
    return msg_id


def _embedded(stanza: Stanza) -> bytes:
    payload = stanza.children[0]
    if len(payload.children) != 1 or payload.children[0].name not in _MESSAGES:
        raise StanzaError("bad-request", "exactly one embedded message is expected")
    return payload.children[0].raw


def _malformed(house: House, stanza: Stanza, error: StanzaError) -> Work:
    def work(tx: Transaction, sender: Sender) -> bytes:
        refusals.log(house, tx, sender, "malformed")
        return _error(stanza, sender, error)

    return work


def _plan(house: House, tx: Transaction, sender: Sender, size: int) -> quota.Plan:
    if not delivery.may_have_room(house, tx):
        return quota.Plan(_log_limit(house))
    source, total = custody.usage(tx, sender.bare)
    grace = house.limits.held_grace
    return quota.plan(
        size, source, total, house.quota, lambda: custody.oldest(tx, sender.bare), grace
    )


def _log_limit(house: House) -> Over:
    return quota.Over("unsealed_events", house.limits.unsealed_events)


def _bury(house: House, tx: Transaction, letter: Letter) -> None:
    limit = quota.Usage(house.limits.dead_messages, house.limits.dead_bytes)
    dead.bury(tx, letter, limit)


def _answer(
    house: House,
    tx: Transaction,
    stanza: Stanza,
    sender: Sender,
    decision: Decision,
    fault: _Fault,
    msg_id: str = "",
) -> bytes:
    answer, rule = decision.answer, decision.rule
    over = fault.over if answer is qos_receiver.NO_ROOM else None
    if rule is not None:
        refusals.log(house, tx, sender, over.rule if over else rule, over and over.figure)
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
    return serialize.iq_error(stanza, error, to=sender.full, from_=stanza.attrs.get("to"))


_MESSAGES: Final = frozenset(clark(name, "message") for name in (CLIENT, *QOS_ALL))


def _handlers() -> dict[tuple[str, str, str], Handler]:
    exchange: dict[str, Handler] = {
        "assured": assured,
        "deliver": deliver,
        "acknowledged": acknowledged,
    }
    found: dict[tuple[str, str, str], Handler] = {}
    for namespace in QOS_ALL:
        for name, handler in exchange.items():
            found["iq", "set", clark(namespace, name)] = handler
            found["iq", "get", clark(namespace, name)] = not_by_get
    return found


FEATURE = Feature(anywhere=_handlers(), advertises=QOS_ALL)
