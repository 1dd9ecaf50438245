"""Plain messages for accounts that are away: stored, and sent when somebody is there (XEP-0160).

They are sent in pages, one at a time to one session of an account, in the order in which they came.
A row goes when the peer has its stanza, and only then: after a crash, or where a session ended
before it confirmed, it is sent again. What comes meanwhile waits behind (RFC 6120, section 10.1).

Where a limit refuses, the error is the one that XEP-0160 names, of type `wait`: it may be tried
again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from edge.config.options import Xmpp
from edge.engine import in_flight, quota, sessions, space
from edge.engine.access import Sender
from edge.engine.database import Receipt, Transaction
from edge.engine.hooks import Context, Hooks
from edge.engine.quota import ExceededLimit, Usage
from edge.features.messages import rules
from edge.features.messages import store as offline
from edge.xmpp import serialize
from edge.xmpp.namespaces import CHAT_STATES, CLIENT, DELAY, OFFLINE, clark
from edge.xmpp.stanza import stamped_with

PAGE: Final = 32
"""Stored messages with a session at once: what a round trip over a slow radio is worth."""

HALF: Final = 2
"""A page takes at most one part in so many of what a session may leave unacknowledged."""

RETURNED: Final = 2
"""How many times the limit of one account may be stored where a session had a message and ended
without it: who sent it may have gone by then."""

DELAYED: Final = clark(DELAY, "delay")

_CHAT_STATE: Final = f"{{{CHAT_STATES}}}"
_THREAD: Final = clark(CLIENT, "thread")


def stores_messages(xmpp: Xmpp) -> bool:
    """Tell whether messages are stored here at all."""
    return xmpp.offline == "store"


def worth_storing(names: Sequence[str]) -> bool:
    """Tell whether a message with children of these names is worth storing (XEP-0160, section 3).

    One that only tells a chat state (XEP-0085) is not: it is over by then.
    """
    states = [name for name in names if name.startswith(_CHAT_STATE)]
    return not states or any(name != _THREAD for name in names if name not in states)


def store(
    context: Context,
    tx: Transaction,
    account: str,
    stanza: bytes,
    sender: str,
    *,
    delayed: bool,
    returned: bool = False,
) -> ExceededLimit | None:
    """Store a message for an account that is there; returns the limit that it exceeds, if it does.

    Args:
        context: the gateway.
        tx: the transaction.
        account: the name of the account.
        stanza: the message, addressed and stamped with its sender.
        sender: the full JID of its sender.
        delayed: it carries the stamp of its delay already.
        returned: a session had it and ended without it: it was taken before what is stored.
    """
    if not delayed:
        stanza = stamped_with(stanza, sender, serialize.delay(context.domain, tx.now.wall))
    size = offline.stored_size(stanza, sender)
    mine, waiting = offline.usage(tx, account, sender)
    over = quota.over_waiting(quota.OFFLINE, size, mine, waiting, _limits(context, returned))
    if not returned:  # that one was admitted when it came: it may use the reserve
        over = over or space.refuses(tx, size, context.limits)
    if over is None:
        offline.add(tx, account, stanza, sender)
        tx.wake_at(tx.now.service + context.limits.offline_ttl)
    return over


def _limits(context: Context, returned: bool) -> quota.Stored:
    limits = context.limits
    times = RETURNED if returned else 1
    return quota.Stored(
        Usage(limits.offline_messages * times, limits.offline_bytes * times),
        Usage(limits.offline_messages_per_source, limits.offline_bytes_per_source),
        Usage(limits.offline_total_messages, limits.offline_total_bytes),
    )


def flush(context: Context, tx: Transaction, sender: Sender) -> None:
    """Send a session what is stored for its account, if it may have it and no session has some.

    It may if it is available with a priority that is not negative. Cheap where nothing is stored.
    """
    if not offline.has_messages(tx, sender.account) or offline.is_delivering(tx, sender.account):
        return
    session = sessions.at(tx, sender.full)
    if session is None or rules.best_session((session,)) is None:
        return
    limits = context.limits
    count = min(PAGE, limits.unacknowledged_stanzas // HALF)
    for row, stanza in offline.read_page(
        tx, sender.account, count, limits.unacknowledged_bytes // HALF
    ):
        receipt = Receipt(offline.RECEIPT, row)
        in_flight.begin(tx, receipt, session.generation)
        tx.send(session.generation, stanza, receipt)


def flush_best(context: Context, tx: Transaction, account: str) -> None:
    """Send what is stored for an account to its most available session, if there is one."""
    best = rules.best_session(sessions.of(tx, f"{account}@{context.domain}"))
    if best is None:
        return
    sender = sessions.sender(tx, best.generation)
    if sender is not None:
        flush(context, tx, sender)


def settled(context: Context, tx: Transaction, sender: Sender | None, rows: Sequence[int]) -> None:
    """Forget what a session confirmed, and send what is next: to another, if it is not there."""
    offline.remove(tx, rows)
    if sender is not None:
        flush(context, tx, sender)
        flush_best(context, tx, sender.account)


def lost(context: Context, tx: Transaction, _sender: Sender | None, rows: Sequence[int]) -> None:
    """Keep what a session ended without, for the next one: at once, if another is there."""
    tx.wake_at(tx.now.service)  # some may have fallen due while they were with the session
    for account in offline.find_accounts(tx, rows):
        flush_best(context, tx, account)


NEEDS_ACCOUNTS: Final = True


def register(hooks: Hooks) -> None:
    """Register with the engine."""
    if stores_messages(hooks.xmpp):
        hooks.advertise(OFFLINE)
    hooks.on_acknowledged(offline.RECEIPT, settled)
    hooks.on_unacknowledged(offline.RECEIPT, lost)
    hooks.on_available(flush)
