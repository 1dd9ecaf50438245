"""Decide which bound sessions of an account can be sent a message, and with or without QoS.

A message for one session is sent to that session or waits; the session need not be available,
because the sender addressed its full JID (RFC 6121, section 8.5.3). A message that a session has
received belongs to that session.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from edge.engine.dispatch.hooks import Context
from edge.engine.sessions import sessions
from edge.engine.sessions.sessions import SessionRow
from edge.engine.store.database import Transaction
from edge.features.outbox.rules import BOUND, Input
from edge.features.outbox.store import outbox
from edge.features.outbox.store.image import OutboxRow

_CACHE: Final = "targets"


class Targets(NamedTuple):
    """The sessions of an account as targets of its messages.

    Attributes:
        bound: all bound sessions.
        eligible: those that accept new messages for the account.
        accepts_plain: whether sessions without QoS support are sent plain messages.
        send: how messages for no particular session are sent; `None` if no session accepts them.
        unknown: the sessions whose QoS support is unknown.
        own_windows: those with limits of their own, by full address.
    """

    bound: Sequence[SessionRow]
    eligible: Sequence[SessionRow]
    accepts_plain: bool
    send: Input | None
    unknown: Sequence[SessionRow]
    own_windows: Mapping[str, SessionRow]

    def to_query(self, rows: Iterable[OutboxRow]) -> list[SessionRow]:
        """Return the sessions whose QoS support must be queried before these rows can be sent.

        These are the connected ones to which a row is addressed and, if no session is known to
        accept messages, all eligible ones.
        """
        if not self.unknown:
            return []
        addressed = {row.only_session for row in rows}
        nobody_accepts = self.send is None
        return [
            session
            for session in self.unknown
            if (nobody_accepts and is_eligible(session))
            or (session.full in addressed and not session.detached)
        ]

    def target_of(self, row: OutboxRow) -> SessionRow | None:
        """Return the session that a message is sent to, or `None` if it has to wait.

        A message that belongs to a session goes to that session, and a message for one session to
        that one. Any other message goes to the session that it was last
        sent to, if that session still accepts it, or else to the most available session.
        """
        if row.turn or row.state in BOUND:  # `is_bound` is slower
            return _by_jid(self.bound, row.session)
        if row.only_session is not None:
            session = _by_jid(self.bound, row.only_session)
            accepts = session is not None and not session.detached and self.input_for(session)
            return session if accepts else None
        send = self.send
        choice = [one for one in self.eligible if send and self.input_for(one) is send]
        return _by_jid(choice, row.session) or (choice[0] if choice else None)

    def input_for(self, session: SessionRow) -> Input | None:
        """Return how a new message is sent to a session, or `None` if it accepts none."""
        if session.qos:
            return Input.SEND
        return Input.SEND_PLAIN if self.accepts_plain and session.qos is not None else None

    def can_plan(self, row: OutboxRow) -> bool:
        """Return whether the planner considers a message that is not in flight.

        It ignores a message that was never sent, if only one session may receive it and cannot now.
        """
        was_sent = row.deferred or row.is_bound
        return was_sent or row.only_session is None or self.target_of(row) is not None


def find_targets(context: Context, tx: Transaction, account: str) -> Targets:
    """Return the sessions of an account as targets of its messages.

    The result is cached across transactions until one of these sessions or any account changes.
    """
    bound = sessions.of_account(tx, f"{account}@{context.domain}")
    cached: dict[str, Targets] = tx.cache.setdefault(_CACHE, {})
    found = cached.get(account)
    if found is None or found.bound is not bound:
        if len(cached) >= sessions.MAX_CACHED:
            cached.clear()
        found = cached[account] = _targets(tx, account, bound)
    return found


def _targets(tx: Transaction, account: str, bound: Sequence[SessionRow]) -> Targets:
    eligible = [session for session in bound if is_eligible(session)]
    lacks_qos = any(not session.qos for session in bound)
    accepts_plain = lacks_qos and outbox.is_downgrade_allowed(tx, account)
    unknown = [session for session in bound if session.qos is None]
    send = _send(eligible, accepts_plain)
    own_windows = {one.full: one for one in bound if one.has_own_window}
    return Targets(bound, eligible, accepts_plain, send, unknown, own_windows)


def _send(eligible: Sequence[SessionRow], accepts_plain: bool) -> Input | None:
    """Return how messages for no particular session are sent: plain only if no session has QoS."""
    if any(session.qos for session in eligible):
        return Input.SEND
    known = all(session.qos is not None for session in eligible)
    return Input.SEND_PLAIN if eligible and known and accepts_plain else None


def is_eligible(session: SessionRow) -> bool:
    """Return whether a session accepts new messages for its account and is connected."""
    return session.accepts and not session.detached


def _by_jid(choice: Iterable[SessionRow], full: str | None) -> SessionRow | None:
    return next((session for session in choice if session.full == full), None)
