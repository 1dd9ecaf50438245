"""The life of a session as units of work: bind, detach, resume, acknowledge, end.

Each runs the hooks of the features (`Hooks.on_session_bound` and the following). When a session
ends, its rows in flight are passed to their features, and its other undelivered messages re-routed.
The begin and end of sessions of the gateway's own accounts are counted for the event log
(`event_counters`); resumptions are not counted, and neither are the ends of sessions at the
gateway's stop, which its closing event implies. Source: XEP-0198, sections 4 and 5; RFC 6120,
section 7.7.2.2.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from edge.engine.dispatch.hooks import Context, ReceiptHook, SessionHook
from edge.engine.log import event_counters
from edge.engine.rules.access import Sender
from edge.engine.rules.quota import ExceededLimit
from edge.engine.sessions import durable_sessions, sessions
from edge.engine.sessions.sessions import DEFAULT, Declaration
from edge.engine.store import in_flight
from edge.engine.store.database import Receipt, SentMessage, Transaction

UNKNOWN_REASON: Final = "unknown"
"""The end reason of a session for which no reason was given."""


class Bound(NamedTuple):
    """A session that was bound by `SessionLifecycle.bind`.

    Attributes:
        replaced: the generation of the session that was replaced, if any.
        is_resumed: whether there is a state of earlier sessions of the full address.
    """

    replaced: int | None
    is_resumed: bool = False


class SessionLifecycle:
    """Runs the features' hooks when sessions change."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._hooks = context.hooks
        self._before_end = self._hooks.on_session_lost
        self._stopping = False

    def stop(self) -> None:
        """Treat sessions that end from now on as ended by the gateway's shutdown."""
        self._before_end = self._hooks.on_shutdown
        self._stopping = True

    def bind(
        self,
        tx: Transaction,
        generation: int,
        account: str,
        bare: str,
        full: str,
        grant: int | None = None,
        declared: Declaration = DEFAULT,
    ) -> Bound | ExceededLimit:
        """Bind a session, and end the session that it replaces, if any.

        `grant` is the account's login grant (`accounts.login_grant`), if the account is the
        gateway's own. If a limit of durable sessions would be exceeded, nothing changes, and the
        limit is returned.
        """
        durable, context = declared.durable, self._context
        if durable:
            exceeded = durable_sessions.exceeded_limit(context, tx, account, full)
            if exceeded is not None:
                return exceeded
        replaced = sessions.find(tx, full)
        if replaced is not None:
            rows = self._end(tx, replaced.generation, "replaced")
            self._run_receipt_hooks(self._hooks.on_unacknowledged, tx, None, rows)
        clean = declared.clean
        is_resumed = durable_sessions.begin(context, tx, account, full, durable, clean=clean)
        sessions.bind(tx, generation, account, bare, full, grant, declared)
        if self._context.has_accounts:
            tags = sessions.protocol_tags(tx, generation)
            event_counters.count(tx, "session", "began", bare, tags=tags)
        self._run_session_hooks(tx, generation, self._hooks.on_session_bound)
        return Bound(None if replaced is None else replaced.generation, is_resumed)

    def detach(self, tx: Transaction, generation: int) -> None:
        """Record that a session lost its connection and can be resumed."""
        sessions.set_detached(tx, generation, True)
        self._run_session_hooks(tx, generation, self._hooks.on_detached)

    def resume(self, tx: Transaction, generation: int) -> bool:
        """Record that a session has a connection again; return false if the session has ended."""
        sessions.set_detached(tx, generation, False)
        return self._run_session_hooks(tx, generation, self._hooks.on_resumed)

    def acknowledge(self, tx: Transaction, generation: int, receipts: Iterable[Receipt]) -> None:
        """Record that the session's peer has received the messages of these rows."""
        sender = sessions.sender(tx, generation)
        rows = [r for r in receipts if in_flight.end(tx, r, generation)]
        self._run_receipt_hooks(self._hooks.on_acknowledged, tx, sender, rows)

    def end(
        self,
        tx: Transaction,
        generation: int,
        unacknowledged: Sequence[SentMessage],
        reason: str = UNKNOWN_REASON,
    ) -> None:
        """End a session and re-route the messages that its peer has not received.

        `unacknowledged` are the ones that are stored in no table, in order. Messages that
        earlier units of this transaction have sent to the session are re-routed after them.
        """
        rows = self._end(tx, generation, reason)
        rest = _withdraw_unstored(tx, generation)
        for hook in self._hooks.on_unacknowledged_messages:
            hook(self._context, tx, [*unacknowledged, *rest])
        self._run_receipt_hooks(self._hooks.on_unacknowledged, tx, None, rows)

    def end_without_messages(
        self, tx: Transaction, generation: int, reason: str = UNKNOWN_REASON
    ) -> list[SentMessage]:
        """End a session; re-route its stored messages, and leave the others to the caller.

        Return the messages that are stored in no table and that this transaction would have sent to
        the session. The caller re-routes or rejects them, after the older ones that it holds.
        """
        rows = self._end(tx, generation, reason)
        self._run_receipt_hooks(self._hooks.on_unacknowledged, tx, None, rows)
        return _withdraw_unstored(tx, generation)

    def reroute_overflow(
        self, tx: Transaction, generation: int, messages: Sequence[SentMessage]
    ) -> int:
        """Re-route messages for which a session has no room, in order; return their number."""
        for hook in self._hooks.on_overflow:
            hook(self._context, tx, generation, messages)
        return len(messages)

    def reject(self, tx: Transaction, messages: Iterable[SentMessage]) -> None:
        """Send errors to the senders of messages that can be neither delivered nor stored."""
        for message in messages:
            for hook in self._hooks.on_rejected_message:
                hook(tx, message)

    def _end(self, tx: Transaction, generation: int, reason: str) -> list[tuple[str, int]]:
        sender = sessions.sender(tx, generation)
        if sender is not None:
            for hook in (*self._before_end, *self._hooks.on_session_end):
                hook(self._context, tx, sender)
            tags = sessions.protocol_tags(tx, generation)
            sessions.remove(tx, generation)
            durable_sessions.leave(self._context, tx, sender.full)
            if self._context.has_accounts and not self._stopping:
                tags["reason"] = reason
                event_counters.count(tx, "session", "ended", sender.bare, tags=tags)
        return in_flight.take_unacknowledged(tx, generation)

    def _run_session_hooks(
        self, tx: Transaction, generation: int, hooks: Iterable[SessionHook]
    ) -> bool:
        sender = sessions.sender(tx, generation)
        if sender is None:
            return False
        for hook in hooks:
            hook(self._context, tx, sender)
        return True

    def _run_receipt_hooks(
        self,
        hooks: dict[str, ReceiptHook],
        tx: Transaction,
        sender: Sender | None,
        rows: Iterable[tuple[str, int]],
    ) -> None:
        by_hook: defaultdict[ReceiptHook, list[int]] = defaultdict(list)
        for kind, row in rows:  # a hook may be registered for several kinds of one table
            by_hook[hooks[kind]].append(row)
        for hook, numbers in by_hook.items():
            hook(self._context, tx, sender, numbers)


def _withdraw_unstored(tx: Transaction, generation: int) -> list[SentMessage]:
    return [send.message for send in tx.withdraw_sends(generation) if send.receipt is None]
