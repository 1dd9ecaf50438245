"""Apply the receiver's rules to incoming stanzas, store the result, and answer.

All stanzas of one iteration of the event loop share one transaction: the loop applies the rules,
calls the application, commits, then answers. So nothing uncommitted is acknowledged. An error of
the inbox stops the loop permanently and calls `on_failure`; after a restart of the device, a new
loop continues from the inbox's file.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from firmware_sim.device import receiver_rules
from firmware_sim.device.errors import InboxError
from firmware_sim.device.inbox import LEVEL_COUNTERS, Inbox, InboxCounter, Key
from firmware_sim.device.qos_sender_plugin import Step
from firmware_sim.device.receive_options import ReceivedMessage, ReceiveOptions
from firmware_sim.device.receiver_rules import Effect, Input, Reply, Transition

if TYPE_CHECKING:
    from firmware_sim.device.qos_receiver_plugin import IncomingStanza

_log = logging.getLogger(__name__)


class AnswerChannel(Protocol):
    """The part of a session that sends answers to requests."""

    @property
    def unsent(self) -> int:
        """Return the bytes that wait in the connection's write buffer."""

    def answer(self, text: str) -> None:
        """Send an answer, given as XML text."""


class _Result(NamedTuple):
    reply: Reply
    message: ReceivedMessage | None = None


class ReceiverLoop:
    """Store incoming messages in an inbox and deliver them to the application."""

    def __init__(
        self, inbox: Inbox, options: ReceiveOptions, on_failure: Callable[[Exception], None]
    ) -> None:
        self._inbox = inbox
        self._options = options
        self._on_failure = on_failure
        self._pending: list[tuple[AnswerChannel, IncomingStanza]] = []
        self._scheduled: asyncio.Handle | None = None
        self._stopped = False

    def take(self, channel: AnswerChannel, incoming: IncomingStanza) -> None:
        """Accept a stanza for processing; after the commit, send its answer through `channel`."""
        if self._stopped:
            return
        self._pending.append((channel, incoming))
        if self._scheduled is None:
            self._scheduled = asyncio.get_running_loop().call_soon(self._process)

    def stop(self) -> None:
        """Stop the loop; uncommitted stanzas are neither stored nor answered."""
        self._stopped = True
        self._pending = []
        if self._scheduled is not None:
            self._scheduled.cancel()

    def serve(self, pending: list[tuple[AnswerChannel, IncomingStanza]]) -> None:
        """Process stanzas in one transaction, then send the answers, then pass on the messages."""
        try:
            with self._inbox.transaction():
                results = [self._process_one(incoming) for _, incoming in pending]
        except InboxError as error:
            self.stop()
            self._on_failure(error)
            return
        for (channel, incoming), result in zip(pending, results, strict=True):
            self._answer(channel, incoming, result.reply)
        for (_, incoming), result in zip(pending, results, strict=True):
            self._notify(incoming, result.message)

    def _process(self) -> None:
        self._scheduled = None
        pending, self._pending = self._pending, []
        self.serve(pending)

    def _answer(self, channel: AnswerChannel, incoming: IncomingStanza, reply: Reply) -> None:
        if incoming.step is not None and channel.unsent <= self._options.limits.unsent_bytes:
            channel.answer(incoming.answer(reply))

    def _notify(self, incoming: IncomingStanza, message: ReceivedMessage | None) -> None:
        """Call `afterwards` or `on_returned` with a delivered message, and log exceptions."""
        try:
            if message is not None and not self._stopped:
                options = self._options
                (options.on_returned if message.type == "error" else options.afterwards)(message)
        except Exception:
            _log.exception(
                "`afterwards` or `on_returned` raised an exception for a message from %s",
                incoming.sender,
            )

    def _process_one(self, incoming: IncomingStanza) -> _Result:
        if incoming.malformed:
            result = _Result(Reply.MALFORMED)
        elif incoming.step is Step.ASSURED:
            result = self._on_offer(incoming)
        elif incoming.step is Step.DELIVER:
            result = self._on_release(incoming)
        else:
            result = self._accept_unassured(incoming)
        if result.reply.error is not None:
            self._inbox.count(
                InboxCounter.FAILED if result.reply is Reply.FAULT else InboxCounter.REFUSED
            )
        return result

    def _on_offer(self, incoming: IncomingStanza) -> _Result:
        key = Key(incoming.sender, incoming.msg_id)
        state, held = self._inbox.find(key)
        input_ = receiver_rules.offered(
            held,
            incoming.text,
            trusted=self._trusts(incoming),
            room=held is not None or self._inbox.has_room(key, incoming.text),
        )
        move = receiver_rules.TRANSITIONS[state, input_]
        if move.effect is Effect.HOLD:
            self._inbox.hold(key, incoming.text)
        return _Result(move.reply)

    def _on_release(self, incoming: IncomingStanza) -> _Result:
        key = Key(incoming.sender, incoming.msg_id)
        state, _ = self._inbox.find(key)
        input_ = Input.DELIVER if self._trusts(incoming) else Input.UNTRUSTED
        move = receiver_rules.TRANSITIONS[state, input_]
        if move.effect is not Effect.HAND_OVER:
            return _Result(move.reply)
        return self._deliver(incoming, key, move, receiver_rules.TRANSITIONS[state, Input.FAILED])

    def _accept_unassured(self, incoming: IncomingStanza) -> _Result:
        input_ = Input.OFFER if self._trusts(incoming) else Input.UNTRUSTED
        move = receiver_rules.ACKNOWLEDGED[input_]
        if move.effect is not Effect.HAND_OVER:
            return _Result(move.reply)
        return self._deliver(incoming, None, move, receiver_rules.ACKNOWLEDGED[Input.FAILED])

    def _deliver(
        self, incoming: IncomingStanza, key: Key | None, move: Transition, failed: Transition
    ) -> _Result:
        """Deliver a message; return the reply of `move` or, if `on_message` raises, of `failed`."""
        try:
            with self._inbox.attempt():
                text = incoming.text if key is None else self._inbox.release(key)
                return _Result(move.reply, self._call_application(incoming, text))
        except InboxError:
            raise
        except Exception:
            _log.exception(
                "`on_message` raised an exception for a message from %s; its changes are undone",
                incoming.sender,
            )
            return _Result(failed.reply)

    def _call_application(self, incoming: IncomingStanza, text: str) -> ReceivedMessage:
        qos = _LEVELS[incoming.step]
        received = ReceivedMessage.of(self._inbox.next_number(), incoming.sender, qos, text)
        if received.type != "error":
            self._options.on_message(received, self._inbox.database)
        self._inbox.count(LEVEL_COUNTERS[qos])
        return received

    def _trusts(self, incoming: IncomingStanza) -> bool:
        try:
            return self._options.trusts(incoming.sender)
        except Exception:
            _log.exception(
                "`trusts` raised an exception for %s, which is therefore not trusted",
                incoming.sender,
            )
            return False


_LEVELS: Final = {None: 0, Step.ACKNOWLEDGED: 1, Step.DELIVER: 2}
