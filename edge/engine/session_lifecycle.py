"""A session's life as units of work: it enters, is detached and resumed, confirms, and leaves.

What a feature does then stands in its `Feature` (`leaves`, `settled`, `lost`); what becomes of
stanzas that nobody confirmed and that are nowhere stored is `returned`'s. That sessions of the
gateway's own accounts began and ended is counted, for the event log (`store.folded`): a resumption
is neither, and what ends since the gateway does is told by its closing event. Sockets are not known
here. Source: XEP-0198, sections 4 and 5; RFC 6120, section 7.7.2.2.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final

from edge.engine import event_counters, in_flight, sessions
from edge.engine.access import Sender
from edge.engine.database import Receipt, Transaction
from edge.engine.hooks import ReceiptHook, SessionHook
from edge.engine.router import Router

UNKNOWN_REASON: Final = "unknown"
"""Why a session ended that nobody told the reason of."""


class SessionLifecycle:
    """What happens to sessions, for the features of a router."""

    def __init__(self, router: Router) -> None:
        self._context = router.context
        self._hooks = router.context.hooks
        self._lost = self._hooks.session_lost
        self._stopping = False

    def stop(self) -> None:
        """From now on, sessions end since the gateway does: what they have stays theirs."""
        self._lost = self._hooks.shutdown
        self._stopping = True

    def enter(
        self,
        tx: Transaction,
        generation: int,
        account: str,
        bare: str,
        full: str,
        grant: int | None = None,
    ) -> int | None:
        """Bind a session; returns the one that it replaces, which has left then.

        `grant` is that of the account when it logged in, if that was here (`accounts.grant`).
        """
        replaced = sessions.find_generation(tx, full)
        if replaced is not None:
            self._end(tx, replaced, "replaced")
        sessions.bind(tx, generation, account, bare, full, grant)
        if self._context.has_accounts:
            event_counters.count(tx, "session", "began", bare)
        self._turn(tx, generation, self._hooks.session_bound)
        return replaced

    def _turn(self, tx: Transaction, generation: int, turns: Iterable[SessionHook]) -> None:
        sender = sessions.sender(tx, generation)
        if sender is not None:
            for turn in turns:
                turn(self._context, tx, sender)

    def detach(self, tx: Transaction, generation: int) -> None:
        """Note that a session lost its connection and waits to be resumed."""
        sessions.set_detached(tx, generation, True)
        self._turn(tx, generation, self._hooks.detached)

    def resume(self, tx: Transaction, generation: int) -> bool:
        """Note that a session has a connection again; false if it is over."""
        sender = sessions.sender(tx, generation)
        if sender is None:
            return False
        sessions.set_detached(tx, generation, False)
        for turn in self._hooks.resumed:
            turn(self._context, tx, sender)
        return True

    def confirm(self, tx: Transaction, generation: int, receipts: Iterable[Receipt]) -> None:
        """Note that the session's peer has the stanzas of these rows."""
        sender = sessions.sender(tx, generation)
        rows = [r for r in receipts if in_flight.end(tx, r, generation)]
        self._tell(self._hooks.acknowledged, tx, sender, rows)

    def leave(
        self,
        tx: Transaction,
        generation: int,
        unconfirmed: Sequence[bytes],
        why: str = UNKNOWN_REASON,
    ) -> None:
        """End a session; what its peer never got goes back where it came from.

        `unconfirmed` are the stanzas that have no row, in order; those that units before in this
        transaction have for it come behind them. `why` it ended is a word for the event log.
        """
        rows = self._go(tx, generation, why)
        rest = [send.stanza for send in tx.withdraw_sends(generation) if send.receipt is None]
        self.give_back(tx, [*unconfirmed, *rest])
        self._tell(self._hooks.unacknowledged, tx, None, rows)

    def part(self, tx: Transaction, generation: int, why: str = UNKNOWN_REASON) -> list[bytes]:
        """End a session, and give back only what is a row.

        Returns the stanzas without a row that units before in this transaction have for it: they
        are not handed over, and go back behind those that were.
        """
        self._end(tx, generation, why)
        return [send.stanza for send in tx.withdraw_sends(generation) if send.receipt is None]

    def give_back(self, tx: Transaction, stanzas: Iterable[bytes]) -> None:
        """Deal with stanzas that a session ended without, in order."""
        for hook in self._hooks.unacknowledged_stanzas:
            hook(self._context, tx, stanzas)

    def turn_back(self, tx: Transaction, generation: int, stanzas: Sequence[bytes]) -> int:
        """Deal with stanzas that a session has no room for, in order; returns how many."""
        for hook in self._hooks.overflow:
            hook(self._context, tx, generation, stanzas)
        return len(stanzas)

    def refuse(self, tx: Transaction, stanzas: Iterable[bytes]) -> None:
        """Tell who sent stanzas that a session ended without that there is no room for them."""
        for stanza in stanzas:
            for hook in self._hooks.rejected_stanza:
                hook(tx, stanza)

    def _end(self, tx: Transaction, generation: int, why: str) -> None:
        self._tell(self._hooks.unacknowledged, tx, None, self._go(tx, generation, why))

    def _go(self, tx: Transaction, generation: int, why: str) -> list[tuple[str, int]]:
        """End a session; returns the rows that it had and never confirmed."""
        sender = sessions.sender(tx, generation)
        if sender is not None:
            for leave in (*self._lost, *self._hooks.session_end):
                leave(self._context, tx, sender)
            sessions.remove(tx, generation)
            if self._context.has_accounts and not self._stopping:
                event_counters.count(tx, "session", "ended", sender.bare, tags={"reason": why})
        return in_flight.take_unacknowledged(tx, generation)

    def _tell(
        self,
        what: dict[str, ReceiptHook],
        tx: Transaction,
        sender: Sender | None,
        rows: Iterable[tuple[str, int]],
    ) -> None:
        kinds: defaultdict[str, list[int]] = defaultdict(list)
        for kind, row in rows:
            kinds[kind].append(row)
        for kind, numbers in kinds.items():
            what[kind](self._context, tx, sender, numbers)
