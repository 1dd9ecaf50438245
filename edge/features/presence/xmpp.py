"""Presence: what sessions show of themselves, and to whom.

A session is there for others from its first presence without an address until it says that it
goes, or is over; one that waits to be resumed is still there. Subscriptions are `subscriptions`',
what a session is shown of others is `watching`'s; presence for the gateway itself asks for nothing.
Source: RFC 6121, sections 4 and 8.5.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import TYPE_CHECKING, Final

from edge.engine import access, addresses, answers, refusals, sessions
from edge.engine.access import Relation, Sender
from edge.engine.addresses import AddressKind
from edge.engine.database import Transaction
from edge.engine.hooks import Context, Hooks, Work
from edge.engine.sessions import Session
from edge.features.accounts.store import relations
from edge.features.discovery import service as discovery
from edge.features.messages import service as messages
from edge.features.presence import presence_broadcast, presence_probe, subscriptions
from edge.features.presence.rules import presence as rules
from edge.features.presence.rules.roster import SubscriptionType
from edge.features.presence.store import presence, roster
from edge.features.presence.store.presence import Recipient
from edge.xmpp import capabilities as caps
from edge.xmpp import jid, serialize
from edge.xmpp.capabilities import Caps
from edge.xmpp.errors import StanzaError
from edge.xmpp.jid import Jid
from edge.xmpp.namespaces import CLIENT, PRE_APPROVAL, clark
from edge.xmpp.stanza import Stanza, stamped, stamper

if TYPE_CHECKING:
    Act = Callable[[Transaction, Sender], None]

_PRIORITY: Final = clark(CLIENT, "priority")
_SUBSCRIPTIONS: Final = {kind.value: kind for kind in SubscriptionType}


def handle(context: Context, stanza: Stanza) -> Work:
    """Do what a presence asks for; what is refused is answered with a presence of type `error`."""
    if len(stanza.raw) > context.limits.presence_bytes:
        return _too_large(context, stanza)
    try:
        act = _understand(context, stanza)
    except StanzaError as error:
        return _refused(stanza, error)

    def work(tx: Transaction, sender: Sender) -> bytes:
        try:
            act(tx, sender)
        except StanzaError as error:
            return _refused(stanza, error)(tx, sender)
        return b""

    return work


def _refused(stanza: Stanza, error: StanzaError) -> Work:
    def work(_tx: Transaction, sender: Sender) -> bytes:
        if stanza.attrs.get("type") == "error":
            return b""
        to, id = stanza.attrs.get("to"), stanza.attrs.get("id")
        content = serialize.stanza_error(error)
        return serialize.presence("error", to, sender.full, content, id)

    return work


def _too_large(context: Context, stanza: Stanza) -> Work:
    limit = context.limits.presence_bytes
    answer = _refused(stanza, StanzaError("not-acceptable", f"at most {limit} bytes"))

    def work(tx: Transaction, sender: Sender) -> bytes:
        if stanza.attrs.get("type") != "error":
            refusals.log(context, tx, sender, "presence_bytes", limit)
        return answer(tx, sender)

    return work


def _understand(context: Context, stanza: Stanza) -> Act:
    """Read a presence.

    Raises:
        StanzaError: nobody can do what it asks for.
    """
    raw, type_, to = stanza.raw, stanza.attrs.get("type"), stanza.attrs.get("to")
    if to is None:
        return _broadcast(context, stanza, raw, type_)
    place = answers.address_kind(context, to, "")
    if place in addresses.SERVICES and type_ != SubscriptionType.SUBSCRIBE.value:
        return lambda _tx, _sender: None
    if place in (AddressKind.SERVICE, AddressKind.NODE):
        raise StanzaError("service-unavailable", "it has no presence")
    target = jid.parse(to)
    if type_ in _SUBSCRIPTIONS:
        return _subscription(context, raw, _SUBSCRIPTIONS[type_], target)
    acts = {
        None: lambda tx, sender: _show_to(context, tx, sender, raw, target),
        "unavailable": lambda tx, sender: _hide_from(tx, sender, raw, target),
        "probe": lambda tx, sender: presence_probe.probe(tx, sender, target),
        "error": lambda tx, sender: _relay_error(context, tx, sender, raw, target),
    }
    if type_ not in acts:
        raise StanzaError("bad-request", "no such type of presence")
    return acts[type_]


def _subscription(context: Context, raw: bytes, kind: SubscriptionType, target: Jid) -> Act:
    def act(tx: Transaction, sender: Sender) -> None:
        stanza = stamped(raw, sender.bare, target.bare)
        subscriptions.send(context, tx, sender, kind, target, stanza)

    return act


# Broadcast: sections 4.2, 4.4 and 4.5


def _broadcast(context: Context, stanza: Stanza, raw: bytes, type_: str | None) -> Act:
    if type_ == "unavailable":
        return lambda tx, sender: _go(context, tx, sender, raw)
    if type_ is not None:
        raise StanzaError("bad-request", "this presence needs an address")
    priority, announced = _priority(stanza), caps.announced_by(stanza)
    return lambda tx, sender: _appear(context, tx, sender, raw, priority, announced)


def _priority(stanza: Stanza) -> int:
    """Return the priority of a presence, which is 0 if it has none (section 4.7.2.3)."""
    found = [child for child in stanza.children if child.name == _PRIORITY]
    if len(found) > 1 or any(child.children for child in found):
        raise StanzaError("bad-request", "a presence has one priority, an integer")
    number = rules.priority(found[0].tree().text if found else None)
    if number is None:
        raise StanzaError("bad-request", f"{rules.LOWEST} to {rules.HIGHEST} is a priority")
    return number


def _appear(
    context: Context,
    tx: Transaction,
    sender: Sender,
    raw: bytes,
    priority: int,
    announced: Caps | None,
) -> None:
    """Show a session to all who may see it; if it was not there before, show it what it may see."""
    before = _own(tx, sender)
    found = rules.appear(available=before.available, before=before.priority, now=priority)
    shown = stamped(raw, sender.full)
    presence.set_available(tx, sender.generation, shown, priority)
    watchers = [watcher for watcher in _watchers(tx, sender) if _may_see(tx, sender, watcher)]
    _tell(tx, sender, shown, ((watcher.generation, watcher.bare) for watcher in watchers))
    if found.initial:
        presence_probe.begin(context, tx, sender)
    known = None if announced is None else discovery.Announced(*announced)
    outdated = discovery.forget_outdated(tx, sender.generation, known)
    if found.takes or (outdated and priority >= 0):
        for turn in context.hooks.available:
            turn(context, tx, sender)


def _own(tx: Transaction, sender: Sender) -> Session:
    """Return the session of the sender; there is one, since its stanza is handled."""
    return next(
        s for s in sessions.of_account(tx, sender.bare) if s.generation == sender.generation
    )


def _watchers(tx: Transaction, sender: Sender) -> Iterator[Recipient]:
    """Name the available sessions that hear of the sender's: its account's own, and contacts'.

    Of an account that is removed, no roster is there to tell who they are: theirs are.
    """
    for session in presence_broadcast.available(tx, sender.bare):
        yield Recipient(session.generation, sender.bare, "both")
    account = roster.account_id(tx, sender.account)
    if account is None:
        yield from presence.subscribers_of_removed(tx, sender.bare)
    else:
        yield from presence.broadcast_recipients(tx, account)


def _may_see(tx: Transaction, sender: Sender, listener: Recipient) -> bool:
    watcher = sessions.sender(tx, listener.generation)
    relation = access.relation(
        own=listener.bare == sender.bare,
        exists=sender.provisioned,
        listed=True,
        subscription=listener.subscription,
    )
    return watcher is not None and access.may_see_presence(watcher, relation)


def _tell(
    tx: Transaction, sender: Sender, raw: bytes, listeners: Iterable[tuple[int, str]]
) -> None:
    """Send a presence to sessions, each by its own address; those of one account share bytes."""
    stamp = cache(stamper(raw, sender.full))
    for generation, to in listeners:
        tx.send(generation, stamp(to))


def _go(context: Context, tx: Transaction, sender: Sender, raw: bytes) -> None:
    """Tell all who saw a session that it is gone (section 4.5), itself included."""
    own = _own(tx, sender)
    who = dict(_who_saw(tx, sender, own))
    presence.set_unavailable(tx, sender.generation)
    presence.clear_directed(tx, sender.generation)
    _tell(tx, sender, raw, who.items())
    for turn in context.hooks.unavailable:
        turn(context, tx, sender)


def _who_saw(tx: Transaction, sender: Sender, own: Session) -> Iterator[tuple[int, str]]:
    """Name the sessions that saw one, and the address by which they did: directed ones first."""
    for target in presence.directed_targets(tx, sender.generation):
        for session in _reached(tx, jid.parse(target)):
            yield session.generation, target
    if own.available:
        for listener in _watchers(tx, sender):
            yield listener.generation, listener.bare


def leave(_context: Context, tx: Transaction, sender: Sender) -> None:
    """Tell all who saw a session that it is over (section 4.5.2)."""
    who = dict(_who_saw(tx, sender, _own(tx, sender)))
    who.pop(sender.generation, None)
    _tell(tx, sender, presence_broadcast.unavailable(sender.full), who.items())


# Directed presence: section 4.6


def _reached(tx: Transaction, target: Jid) -> list[Session]:
    """Return the sessions that a presence to an address reaches (8.5.2.1.2 and 8.5.3.1)."""
    if target.resource:
        session = sessions.find(tx, target.full)
        return [] if session is None else [session]
    return presence_broadcast.available(tx, target.bare)


def _show_to(context: Context, tx: Transaction, sender: Sender, raw: bytes, target: Jid) -> None:
    """Show a session to an address; it is told as well when the session goes."""
    relation = relations.find_relation(tx, sender, target.local)
    if not access.may_reach(sender, relation, context.xmpp.trust):
        rule = "no_destination" if relation is Relation.NOBODY else "untrusted"
        refusals.log(context, tx, sender, rule)
        return
    reached = _reached(tx, target)
    if not reached:
        return
    known, limit = (
        presence.directed_targets(tx, sender.generation),
        context.limits.directed_presences,
    )
    if target.full not in known and len(known) >= limit:
        refusals.log(context, tx, sender, "directed_presences", limit)
        raise StanzaError("resource-constraint", f"presence is directed to {limit} at most")
    presence.add_directed(tx, sender.generation, target.full)
    _tell(tx, sender, raw, ((session.generation, target.full) for session in reached))


def _hide_from(tx: Transaction, sender: Sender, raw: bytes, target: Jid) -> None:
    """Tell an address that a session is gone, if it may have seen it."""
    directed = target.full in presence.directed_targets(tx, sender.generation)
    watchers = {listener.generation for listener in _watchers(tx, sender)}
    presence.remove_directed(tx, sender.generation, target.full)
    for session in _reached(tx, target):
        if directed or session.generation in watchers:
            tx.send(session.generation, stamped(raw, sender.full, target.full))


def _relay_error(
    context: Context, tx: Transaction, sender: Sender, raw: bytes, target: Jid
) -> None:
    """Give an error to the session that it is for, if that one may hear from the sender."""
    session = messages.find_answerable_session(context, tx, sender, target.full)
    if session is not None:
        tx.send(session.generation, stamped(raw, sender.full, target.full))


def _pre_approval(_context: Context) -> bytes:
    """Tell on the stream that an approval may come before its request (section 3.4.1)."""
    return serialize.tag("sub", xmlns=PRE_APPROVAL)


NEEDS_ACCOUNTS: Final = True


def register(hooks: Hooks) -> None:
    """Register with the engine."""
    hooks.presence(handle)
    hooks.stream_feature(_pre_approval)
    hooks.on_session_end(leave)
