"""Apply the receiver's rules to incoming stanzas, store the result, and answer.

All stanzas of one iteration of the event loop share one commit: apply the rules, call the
application, commit, then answer. So nothing uncommitted is acknowledged. An error of the inbox
stops the loop for good and calls `on_failure`; a restart continues from the disk.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from firmware_sim.device import receiver_rules
from firmware_sim.device.errors import InboxError
from firmware_sim.device.inbox import HANDED_OVER, Inbox, Key, Tally
from firmware_sim.device.qos_requests import Step
from firmware_sim.device.received import Received, Receiving
from firmware_sim.device.receiver_rules import Effect, Input, Move, Reply

if TYPE_CHECKING:
    from firmware_sim.device.qos_incoming import Incoming

_log = logging.getLogger(__name__)


class Window(Protocol):
    """The part of a session that sends answers."""

    @property
    def unsent(self) -> int:
        """Return the bytes in the write buffer."""

    def answer(self, text: str) -> None:
        """Send an answer."""


class _Outcome(NamedTuple):
    reply: Reply
    handed: Received | None = None


class Porter:
    """Store incoming messages in an inbox and deliver them to the application."""

    def __init__(
        self, inbox: Inbox, receiving: Receiving, on_failure: Callable[[Exception], None]
    ) -> None:
        self._inbox = inbox
        self._receiving = receiving
        self._on_failure = on_failure
        self._waiting: list[tuple[Window, Incoming]] = []
        self._turn: asyncio.Handle | None = None
        self._stopped = False

    def take(self, window: Window, incoming: Incoming) -> None:
        """Accept a stanza; answer it through `window` once its result is on disk."""
        if self._stopped:
            return
        self._waiting.append((window, incoming))
        if self._turn is None:
            self._turn = asyncio.get_running_loop().call_soon(self._work)

    def stop(self) -> None:
        """Stop; uncommitted stanzas are neither stored nor answered."""
        self._stopped = True
        self._waiting = []
        if self._turn is not None:
            self._turn.cancel()

    def serve(self, waiting: list[tuple[Window, Incoming]]) -> None:
        """Process the stanzas of one iteration: one commit, then the answers, then `afterwards`."""
        try:
            with self._inbox.transaction():
                outcomes = [self._one(incoming) for _, incoming in waiting]
        except InboxError as error:
            self.stop()
            self._on_failure(error)
            return
        for (window, incoming), outcome in zip(waiting, outcomes, strict=True):
            self._answer(window, incoming, outcome.reply)
        for (_, incoming), outcome in zip(waiting, outcomes, strict=True):
            self._tell(incoming, outcome.handed)

    def _work(self) -> None:
        self._turn = None
        waiting, self._waiting = self._waiting, []
        self.serve(waiting)

    def _answer(self, window: Window, incoming: Incoming, reply: Reply) -> None:
        if incoming.step is not None and window.unsent <= self._receiving.limits.unsent_bytes:
            window.answer(incoming.answer(reply))

    def _tell(self, incoming: Incoming, handed: Received | None) -> None:
        """Call the application after the commit, and log its errors."""
        try:
            if handed is not None and not self._stopped:
                tell = self._receiving
                (tell.on_returned if handed.type == "error" else tell.afterwards)(handed)
        except Exception:
            _log.exception("the application failed after a message from %s", incoming.sender)

    def _one(self, incoming: Incoming) -> _Outcome:
        """Apply the rules to one stanza, in the current transaction."""
        if incoming.malformed:
            outcome = _Outcome(Reply.MALFORMED)
        elif incoming.step is Step.ASSURED:
            outcome = self._offered(incoming)
        elif incoming.step is Step.DELIVER:
            outcome = self._released(incoming)
        else:
            outcome = self._at_once(incoming)
        if outcome.reply.error is not None:
            self._inbox.count(Tally.FAILED if outcome.reply is Reply.FAULT else Tally.REFUSED)
        return outcome

    def _offered(self, incoming: Incoming) -> _Outcome:
        key = Key(incoming.sender, incoming.msg_id)
        state, held = self._inbox.find(key)
        given = receiver_rules.offered(
            held,
            incoming.text,
            trusted=self._trusts(incoming),
            room=held is not None or self._inbox.has_room(key, incoming.text),
        )
        move = receiver_rules.TRANSITIONS[state, given]
        if move.effect is Effect.HOLD:
            self._inbox.hold(key, incoming.text)
        return _Outcome(move.reply)

    def _released(self, incoming: Incoming) -> _Outcome:
        key = Key(incoming.sender, incoming.msg_id)
        state, _ = self._inbox.find(key)
        move = receiver_rules.TRANSITIONS[
            state, receiver_rules.released(trusted=self._trusts(incoming))
        ]
        if move.effect is not Effect.HAND_OVER:
            return _Outcome(move.reply)
        return self._hand_over(incoming, key, move, receiver_rules.TRANSITIONS[state, Input.FAILED])

    def _at_once(self, incoming: Incoming) -> _Outcome:
        """Process an acknowledged or a plain message."""
        move = receiver_rules.ACKNOWLEDGED[
            receiver_rules.acknowledged(trusted=self._trusts(incoming))
        ]
        if move.effect is not Effect.HAND_OVER:
            return _Outcome(move.reply)
        return self._hand_over(incoming, None, move, receiver_rules.ACKNOWLEDGED[Input.FAILED])

    def _hand_over(self, incoming: Incoming, key: Key | None, move: Move, failed: Move) -> _Outcome:
        """Deliver a message to the application; undo its changes if it raises."""
        try:
            with self._inbox.attempt():
                text = incoming.text if key is None else self._inbox.release(key)
                return _Outcome(move.reply, self._give(incoming, text))
        except InboxError:
            raise
        except Exception:
            _log.exception("the application failed on a message from %s", incoming.sender)
            return _Outcome(failed.reply)

    def _give(self, incoming: Incoming, text: str) -> Received:
        qos = _LEVELS[incoming.step]
        received = Received.of(self._inbox.next_number(), incoming.sender, qos, text)
        if received.type != "error":
            self._receiving.on_message(received, self._inbox.database)
        self._inbox.count(HANDED_OVER[qos])
        return received

    def _trusts(self, incoming: Incoming) -> bool:
        try:
            return self._receiving.trusts(incoming.sender)
        except Exception:
            _log.exception("the application failed to decide whether it trusts %s", incoming.sender)
            return False


_LEVELS: Final = {None: 0, Step.ACKNOWLEDGED: 1, Step.DELIVER: 2}
