"""Which sessions of an account may be handed a message, and how: with quality of service, or as a
plain one where the account allows that.

A message that is for one session alone goes to that or waits, and that need not be available: who
asked for it did so by its full JID (RFC 6121, section 8.5.3). What belongs to a session that has
received it goes there. What is sent when is decided in `rules.qos_sender`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from edge.engine import sessions
from edge.engine.database import Transaction
from edge.engine.hooks import Context
from edge.engine.sessions import Session
from edge.features.outbox.rules import BOUND, Input
from edge.features.outbox.store import outbox
from edge.features.outbox.store.outbox import OutboxRow

_BOUND: Final = frozenset(state.value for state in BOUND)


class Takers(NamedTuple):
    """The sessions of an account: those that are bound, and those that take something new; `plain`
    tells whether they take plain messages where they have no quality of service, and `turn` how
    messages go that are for no session in particular."""

    there: Sequence[Session]
    able: Sequence[Session]
    plain: bool
    turn: Input | None

    def unknown(self, rows: Iterable[OutboxRow]) -> list[Session]:
        """Return the sessions of which it has to be known what they take: all, if nobody is known
        to take these messages, and those that alone may have one."""
        unknown = [session for session in self.there if session.qos is None]
        if not unknown:
            return unknown
        named = {row.only_session for row in rows}
        nobody = self.turn is None
        return [
            session
            for session in unknown
            if (nobody and is_able(session)) or (session.full in named and not session.detached)
        ]

    def goal(self, row: OutboxRow) -> Session | None:
        """Return the session that a message goes to: the one that has it, if it belongs to one;
        else the one that it is for or was sent to last, or the best that takes it."""
        if row.state in _BOUND:
            return _named(self.there, row.session)
        if row.only_session is not None:
            session = _named(self.there, row.only_session)
            takes = session is not None and not session.detached and self.event(session)
            return session if takes else None
        turn = self.turn
        choice = [session for session in self.able if turn and self.event(session) is turn]
        return _named(choice, row.session) or (choice[0] if choice else None)

    def event(self, session: Session) -> Input | None:
        """Return how something new goes to a session, if it takes it."""
        if session.qos:
            return Input.SEND
        return Input.SEND_PLAIN if self.plain and session.qos is not None else None

    def reach(self, row: OutboxRow) -> bool:
        """Tell whether a message may be planned with: it is on its way, or its session is there."""
        on_its_way = row.in_flight or row.held or row.state in _BOUND
        return on_its_way or row.only_session is None or self.goal(row) is not None


def find(context: Context, tx: Transaction, account: str) -> Takers:
    """Look up the sessions of an account, by name."""
    there = sessions.of_account(tx, f"{account}@{context.domain}")
    able = [session for session in there if is_able(session)]
    plain = any(not session.qos for session in there) and outbox.is_downgrade_allowed(tx, account)
    return Takers(there, able, plain, _turn(able, plain))


def _turn(able: Sequence[Session], plain: bool) -> Input | None:
    """Return how messages go that are for no session in particular: as plain ones if all agree."""
    if any(session.qos for session in able):
        return Input.SEND
    known = all(session.qos is not None for session in able)
    return Input.SEND_PLAIN if able and known and plain else None


def is_able(session: Session) -> bool:
    """Tell whether a session may be sent something new (RFC 6121, section 8.5.2)."""
    return session.available and session.priority >= 0 and not session.detached


def _named(choice: Iterable[Session], full: str | None) -> Session | None:
    return next((session for session in choice if session.full == full), None)
