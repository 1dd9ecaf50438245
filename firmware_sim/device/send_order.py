"""The messages in flight: their order, and when each may be sent.

Messages leave in first-in, first-out order within a window. A request that causes delivery
(`deliver`, or the offer of an acknowledged message) is sent only after all earlier messages were
received. An error of type `wait` delays all later messages. If it answers an offer, messages that
the peer may already hold still proceed, because only their release may free its memory. The
functions do no I/O; the caller passes the time, and stores `changes()` before it sends.
Specification: docs/how-to/integrate-firmware.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from firmware_sim.device import sender_rules
from firmware_sim.device.sender_rules import Action, Input, Level, Message, State

if TYPE_CHECKING:
    from firmware_sim.device.limits import Policy


@dataclass(slots=True)
class Flight:
    """A message in flight: its next action, whether an answer is pending, and its next due time."""

    message: Message
    wants: Action = Action.REST
    awaiting: bool = False
    held: bool = False
    due: float | None = None


class Transmission(NamedTuple):
    """A stanza to send once its step is stored."""

    message: Message
    action: Action


class Line:
    """The messages in flight, oldest first. `now` is in seconds of any one monotonic clock."""

    def __init__(self, policy: Policy, chance: Callable[[], float]) -> None:
        self._policy = policy
        self._chance = chance
        self._flights: dict[int, Flight] = {}
        self._changed: dict[int, Message] = {}
        self._bytes = 0
        self.online = False

    def __len__(self) -> int:
        return len(self._flights)

    def restore(self, messages: Iterable[Message]) -> None:
        """Add the messages that were in flight when the device stopped, oldest first."""
        for message in messages:
            self._add(sender_rules.interrupted(message), Action.REST)

    def awaits(self) -> bool:
        """Return whether any answer is pending."""
        return any(flight.awaiting for flight in self._flights.values())

    def wants_more(self) -> bool:
        """Return whether a queued message may be admitted now."""
        held = any(flight.held for flight in self._flights.values())
        full = len(self._flights) >= self._policy.window or self._bytes >= self._policy.window_bytes
        return self.online and not held and not full

    def admit(self, message: Message) -> bool:
        """Put the oldest queued message in flight; return False if its bytes do not fit now."""
        if self._flights and self._bytes + message.size > self._policy.window_bytes:
            return False
        after, action = sender_rules.advance(message, Input.ONLINE, self._policy)
        self._add(after, action)
        self._changed[after.number] = after
        return True

    def resume(self) -> None:
        """Continue the messages in flight in a new session."""
        self.online = True
        for flight in self._flights.values():
            _, flight.wants = sender_rules.advance(flight.message, Input.ONLINE, self._policy)

    def interrupt(self) -> None:
        """Suspend the messages in flight, because the session is lost."""
        self.online = False
        for flight in self._flights.values():
            flight.message, flight.wants = sender_rules.advance(
                flight.message, Input.OFFLINE, self._policy
            )
            if flight.awaiting:
                flight.message = sender_rules.interrupted(flight.message)
                flight.awaiting, flight.due = False, None
                flight.held = _stays_held(flight)

    def feed(self, number: int, given: Input, now: float) -> Message | None:
        """Apply an answer, or its absence, to a message.

        Returns:
            The message if this ended it, else None. The number of a late answer is unknown: None.
        """
        flight = self._flights.get(number)
        if flight is None:
            return None
        after, action = sender_rules.advance(flight.message, given, self._policy)
        moved = after.state is not flight.message.state
        flight.message = after
        if moved:
            flight.held = False
            self._changed[number] = after
        if after.state in sender_rules.ENDED:
            self._drop(number)
            return after
        if moved or action is not Action.NONE:
            self._plan(flight, action, now)
        return None

    def expire(self, now: float) -> tuple[list[Message], bool]:
        """Apply due timeouts; return the ended messages, and whether an answer was missing."""
        ended: list[Message] = []
        silent = False
        for number, flight in list(self._flights.items()):
            if not flight.awaiting or flight.due is None or flight.due > now:
                continue
            silent = True
            end = self.feed(number, Input.TIMEOUT, now)
            if end is not None:
                ended.append(end)
        return ended, silent

    def take(self, now: float) -> list[Transmission]:
        """Return the stanzas to send now, in order; count them and expect their answers."""
        if not self.online:
            return []
        sent: list[Transmission] = []
        offers, deliveries = True, True
        for flight in self._flights.values():
            delivers = flight.wants is Action.DELIVER or flight.message.level is Level.ACKNOWLEDGED
            first = flight.wants is Action.OFFER and (flight.held or not flight.message.sends)
            allowed = (offers or not first) and (deliveries or not delivers)
            if flight.wants in (Action.OFFER, Action.DELIVER) and _is_due(flight, now):
                if allowed:
                    sent.append(self._send(flight, now))
                else:
                    flight.due = None  # it waits for earlier messages, not for a time
            offers = offers and not flight.held
            deliveries = deliveries and _lets_deliver(flight)
        return sent

    def changes(self) -> list[Message]:
        """Return each message whose state or counts must be stored, once."""
        changed = list(self._changed.values())
        self._changed.clear()
        return changed

    def next_due(self) -> float | None:
        """Return the earliest due time, or None."""
        dues = [f.due for f in self._flights.values() if f.due is not None]
        return min(dues) if dues and self.online else None

    def _add(self, message: Message, wants: Action) -> None:
        self._flights[message.number] = Flight(message, wants)
        self._bytes += message.size

    def _drop(self, number: int) -> None:
        self._bytes -= self._flights.pop(number).message.size

    def _plan(self, flight: Flight, action: Action, now: float) -> None:
        flight.awaiting = False
        flight.due = None
        flight.held = _stays_held(flight)
        if action is Action.HOLD:
            flight.held = True
            flight.due = now + self._delay(flight.message)
            _, action = sender_rules.advance(flight.message, Input.ONLINE, self._policy)
        flight.wants = action

    def _send(self, flight: Flight, now: float) -> Transmission:
        action = flight.wants
        flight.message = sender_rules.transmitted(flight.message)
        flight.wants, flight.awaiting = Action.NONE, True
        flight.due = now + self._delay(flight.message)
        self._changed[flight.message.number] = flight.message
        return Transmission(flight.message, action)

    def _delay(self, message: Message) -> float:
        policy = self._policy
        return sender_rules.backoff(
            message.attempts, policy.retry_base, policy.retry_cap, policy.jitter, self._chance
        )


def _is_due(flight: Flight, now: float) -> bool:
    return flight.due is None or flight.due <= now


def _stays_held(flight: Flight) -> bool:
    """Return whether `wait` still applies when an answer is missing; an offer may have arrived
    since."""
    return flight.held and flight.message.state is State.RELEASED


def _lets_deliver(flight: Flight) -> bool:
    """Return whether later messages may be delivered once this one had its chance to be sent."""
    if flight.message.state is State.RELEASED:
        return flight.awaiting and not flight.held
    if flight.message.level is Level.ACKNOWLEDGED:
        return flight.awaiting
    return flight.held
