"""Messages: to the gateway, whose event log takes them, and to accounts, whose sessions get them.

To the gateway this is quality of service level 0, at most once. Source: XEP QoS, "Unacknowledged
service"; RFC 6121, sections 5 and 8.5; RFC 6120, section 10.3.1.
"""

from __future__ import annotations

from edge.engine import access, addresses, destinations, refusals, sessions
from edge.engine.access import Relation, Sender
from edge.engine.database import Transaction
from edge.engine.hooks import Context, Hooks, Message, Work
from edge.features.accounts.store import relations
from edge.features.messages import offline, overflow_policy, relay, rules, unacked_stanzas
from edge.features.messages.message_routing import Letter, Refusal, post
from edge.features.messages.rules import MessageType
from edge.xmpp import jid, replies
from edge.xmpp.errors import StanzaError
from edge.xmpp.jid import Jid
from edge.xmpp.stanza import Stanza, stamped


def message(context: Context, stanza: Stanza) -> Work | bytes:
    """Take a message wherever it is for; a refusal is answered with a message of type error.

    One of type error is never answered, and the gateway itself has no use for it.
    """
    kind, to = rules.parse_type(stanza.attrs.get("type")), stanza.attrs.get("to")
    try:
        if addresses.classify(context.domain, to, "") in addresses.SERVICES:
            return b"" if kind is MessageType.ERROR else _to_service(context, stanza)
        if not context.has_accounts:
            raise StanzaError("service-unavailable", "nobody is reached at this address")
    except StanzaError as error:
        return (
            b"" if kind is MessageType.ERROR else _refused(context, stanza, "no_destination", error)
        )
    if _forges_delay(context, stanza):
        forged = StanzaError("not-acceptable", "only the gateway tells a delay of its own")
        return b"" if kind is MessageType.ERROR else _refused(context, stanza, "malformed", forged)
    return _to_account(context, stanza, kind, None if to is None else jid.parse(to))


def _refused(context: Context, stanza: Stanza, rule: str, error: StanzaError) -> Work:
    def work(tx: Transaction, sender: Sender) -> bytes:
        return _refuse(context, tx, stanza, sender, Refusal(rule, error))

    return work


def _to_service(context: Context, stanza: Stanza) -> Work:
    """Hand a message to what takes messages at its address, whatever their level."""
    goal, to = destinations.find(context, stanza.attrs["to"])

    def work(tx: Transaction, sender: Sender) -> bytes:
        taken = Message(sender, to, stanza.raw, stanza.size, qos=0)
        contents = goal.read(context, taken.body, to)
        standing = goal.standing(context, tx, sender, to)
        if not standing.allowed:
            refusal = Refusal("untrusted", StanzaError("not-allowed"))
        elif standing.error is not None:
            refusal = Refusal("no_destination", standing.error)
        elif contents.unreadable:
            refusal = Refusal("unreadable", StanzaError("not-acceptable", contents.unreadable))
        elif over := goal.room_now(context, tx, taken, contents):
            refusal = Refusal(over.rule, StanzaError("resource-constraint"), over.figure)
        else:
            goal.deliver(context, tx, taken, contents)
            return b""
        return _refuse(context, tx, stanza, sender, refusal)

    return work


def _to_account(context: Context, stanza: Stanza, kind: MessageType, address: Jid | None) -> Work:
    names = [child.name for child in stanza.children]
    lasting = offline.worth_storing(names)

    def work(tx: Transaction, sender: Sender) -> bytes:
        to = jid.parse(sender.bare) if address is None else address
        relation = relations.find_relation(tx, sender, to.local)
        if kind is MessageType.ERROR:
            exists = relay.answerable(context, tx, sender, to.full) is not None
        else:
            exists = access.may_reach(sender, relation, context.xmpp.trust)
        there = sessions.of(tx, to.bare) if exists else []
        route = rules.route(kind, there, to.full if to.resource else None, exists=exists)
        raw = stamped(stanza, sender.full, to.full)
        letter = Letter(raw, sender.full, to.local, kind, lasting)
        refusal = post(context, tx, letter, route)
        if refusal is not None and not exists:
            rule = "no_destination" if relation is Relation.NOBODY else "untrusted"
            refusal = refusal._replace(rule=rule)
        return b"" if refusal is None else _refuse(context, tx, stanza, sender, refusal)

    return work


def _refuse(
    context: Context, tx: Transaction, stanza: Stanza, sender: Sender, refusal: Refusal
) -> bytes:
    refusals.log(context, tx, sender, refusal.rule, refusal.figure)
    if refusal.error is None:
        return b""
    to = stanza.attrs.get("to")
    return replies.message_error(stanza, refusal.error, to=sender.full, from_=to)


def _forges_delay(context: Context, stanza: Stanza) -> bool:
    """Tell whether a message brings a delay that only this gateway may tell (XEP-0203, section 5).

    It would pass for the time at which a message was stored here.
    """
    return any(
        child.name == offline.DELAYED and child.attrs.get("from", "").lower() == context.domain
        for child in stanza.children
    )


def register(hooks: Hooks) -> None:
    """Register with the engine."""
    hooks.message(message)
    hooks.on_unacknowledged_stanzas(unacked_stanzas.take_all_back)
    hooks.on_overflow(overflow_policy.turn_back)
    hooks.on_rejected_stanza(unacked_stanzas.refuse)
