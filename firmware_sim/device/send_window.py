"""The send window: the messages in flight, their order, and the times of their transmissions.

Messages are offered in first-in, first-out order. A request that causes delivery (`deliver`, or the
offer of an acknowledged message) is sent only after the peer has received all earlier messages. An
error of type `wait` delays all later offers. But if the error answers an offer, messages that the
peer possibly holds are still released, because only that can free the peer's memory. The functions
do no I/O. The caller passes the time, and stores `changes()` before it sends stanzas.
Specification: docs/how-to/integrate-firmware.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from firmware_sim.device import sender_rules
from firmware_sim.device.sender_rules import Action, Input, Level, Message, State

if TYPE_CHECKING:
    from firmware_sim.device.limits import SendPolicy


@dataclass(slots=True)
class MessageInFlight:
    """A message in flight and its next action.

    `due` is when the action is taken or, if an answer is pending, when the wait for it times out.
    `held` is whether an error of type `wait` delays the message.
    """

    message: Message
    next_action: Action = Action.REST
    answer_pending: bool = False
    held: bool = False
    due: float | None = None


class Transmission(NamedTuple):
    """A message and the request to send for it; first, store the `changes()` of the window."""

    message: Message
    action: Action


class SendWindow:
    """The messages in flight, oldest first. All times are seconds of one monotonic clock."""

    def __init__(self, policy: SendPolicy, random_fraction: Callable[[], float]) -> None:
        self._policy = policy
        self._random_fraction = random_fraction
        self._entries: dict[int, MessageInFlight] = {}
        self._changed: dict[int, Message] = {}
        self._bytes = 0
        self.online = False

    def __len__(self) -> int:
        return len(self._entries)

    def restore(self, messages: Iterable[Message]) -> None:
        """Add the messages that were in flight when the device stopped, oldest first."""
        for message in messages:
            self._add(sender_rules.interrupted(message), Action.REST)

    def has_pending_answer(self) -> bool:
        """Return whether the answer to any request is pending."""
        return any(entry.answer_pending for entry in self._entries.values())

    def can_admit(self) -> bool:
        """Return whether another message can be put in flight now."""
        held = any(entry.held for entry in self._entries.values())
        full = len(self._entries) >= self._policy.window or self._bytes >= self._policy.window_bytes
        return self.online and not held and not full

    def admit(self, message: Message) -> bool:
        """Put a queued message in flight; return False if its bytes do not fit into the window."""
        if self._entries and self._bytes + message.size > self._policy.window_bytes:
            return False
        after, action = sender_rules.advance(message, Input.ONLINE, self._policy)
        self._add(after, action)
        self._changed[after.number] = after
        return True

    def resume(self) -> None:
        """Continue the messages in flight in a new session."""
        self.online = True
        for entry in self._entries.values():
            _, entry.next_action = sender_rules.advance(entry.message, Input.ONLINE, self._policy)

    def interrupt(self) -> None:
        """Send no requests and await no answers until `resume`, because the session is lost."""
        self.online = False
        for entry in self._entries.values():
            entry.message, entry.next_action = sender_rules.advance(
                entry.message, Input.OFFLINE, self._policy
            )
            if entry.answer_pending:
                entry.message = sender_rules.interrupted(entry.message)
                entry.answer_pending, entry.due = False, None
                entry.held = _stays_held(entry)

    def apply_input(self, number: int, input_: Input, now: float) -> Message | None:
        """Apply an answer, or a timeout, to the message with this number, if it is in flight.

        Returns the message if the input ended it.
        """
        entry = self._entries.get(number)
        if entry is None:
            return None
        after, action = sender_rules.advance(entry.message, input_, self._policy)
        moved = after.state is not entry.message.state
        entry.message = after
        if moved:
            entry.held = False
            self._changed[number] = after
        if after.state in sender_rules.ENDED:
            self._bytes -= self._entries.pop(number).message.size
            return after
        if moved or action is not Action.NONE:
            self._plan(entry, action, now)
        return None

    def expire(self, now: float) -> tuple[list[Message], bool]:
        """Apply due timeouts; return the messages that ended, and whether any timeout was due."""
        ended: list[Message] = []
        silent = False
        for number, entry in list(self._entries.items()):
            if not entry.answer_pending or entry.due is None or entry.due > now:
                continue
            silent = True
            end = self.apply_input(number, Input.TIMEOUT, now)
            if end is not None:
                ended.append(end)
        return ended, silent

    def take(self, now: float) -> list[Transmission]:
        """Return the transmissions to make now, in order, and record that they await answers."""
        if not self.online:
            return []
        sent: list[Transmission] = []
        offers, deliveries = True, True
        for entry in self._entries.values():
            delivers = (
                entry.next_action is Action.DELIVER or entry.message.level is Level.ACKNOWLEDGED
            )
            first = entry.next_action is Action.OFFER and (entry.held or not entry.message.sends)
            allowed = (offers or not first) and (deliveries or not delivers)
            if entry.next_action in (Action.OFFER, Action.DELIVER) and _is_due(entry, now):
                if allowed:
                    sent.append(self._send(entry, now))
                else:
                    entry.due = None  # it waits for earlier messages, not for a time
            offers = offers and not entry.held
            deliveries = deliveries and _allows_delivery_after(entry)
        return sent

    def changes(self) -> list[Message]:
        """Return the messages whose state or counts changed since the last call, to store these."""
        changed = list(self._changed.values())
        self._changed.clear()
        return changed

    def next_due(self) -> float | None:
        """Return the earliest due time; None if there is none, or no session."""
        dues = [f.due for f in self._entries.values() if f.due is not None]
        return min(dues) if dues and self.online else None

    def _add(self, message: Message, next_action: Action) -> None:
        self._entries[message.number] = MessageInFlight(message, next_action)
        self._bytes += message.size

    def _plan(self, entry: MessageInFlight, action: Action, now: float) -> None:
        entry.answer_pending = False
        entry.due = None
        entry.held = _stays_held(entry)
        if action is Action.HOLD:
            entry.held = True
            entry.due = now + self._delay(entry.message)
            _, action = sender_rules.advance(entry.message, Input.ONLINE, self._policy)
        entry.next_action = action

    def _send(self, entry: MessageInFlight, now: float) -> Transmission:
        action = entry.next_action
        entry.message = sender_rules.transmitted(entry.message)
        entry.next_action, entry.answer_pending = Action.NONE, True
        entry.due = now + self._delay(entry.message)
        self._changed[entry.message.number] = entry.message
        return Transmission(entry.message, action)

    def _delay(self, message: Message) -> float:
        policy = self._policy
        return sender_rules.backoff(
            message.attempts,
            policy.retry_base,
            policy.retry_cap,
            policy.jitter,
            self._random_fraction,
        )


def _is_due(entry: MessageInFlight, now: float) -> bool:
    return entry.due is None or entry.due <= now


def _stays_held(entry: MessageInFlight) -> bool:
    """Return whether a delay by an error of type `wait` persists: it does if `deliver` was sent."""
    return entry.held and entry.message.state is State.RELEASED


def _allows_delivery_after(entry: MessageInFlight) -> bool:
    """Return whether the delivery of later messages may be requested before this one ends.

    It may if this one's delivery was requested and is not delayed, or if its offer is delayed.
    """
    if entry.message.state is State.RELEASED:
        return entry.answer_pending and not entry.held
    if entry.message.level is Level.ACKNOWLEDGED:
        return entry.answer_pending
    return entry.held
