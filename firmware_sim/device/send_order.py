"""The order of the messages in flight: which may be sent now, which waits, and for what.

Messages leave first in, first out, within a window. What delivers (`deliver`, or the offer of an
acknowledged message) goes out in order, after what is before it was received. An error of type
`wait` holds back what is behind it; one that answers an offer lets what the peer has, or may have,
received go by, since room at the peer may come from nothing else.

It keeps no bodies and does no I/O: the time is an argument, and what changed is handed out to be
stored before it is sent. Specification: docs/how-to/firmware.md.
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
    """A message in flight: what it wants to send, is an answer awaited, when it falls due."""

    message: Message
    wants: Action = Action.REST
    awaiting: bool = False
    held: bool = False
    due: float | None = None


class Transmission(NamedTuple):
    """A stanza to send once the step is stored."""

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
        """Take up what was in flight when the device stopped, oldest first."""
        for message in messages:
            self._add(sender_rules.interrupted(message), Action.REST)

    def awaits(self) -> bool:
        """Tell whether any answer is due."""
        return any(flight.awaiting for flight in self._flights.values())

    def wants_more(self) -> bool:
        """Tell whether a queued message may be admitted now."""
        held = any(flight.held for flight in self._flights.values())
        full = len(self._flights) >= self._policy.window or self._bytes >= self._policy.window_bytes
        return self.online and not held and not full

    def admit(self, message: Message) -> bool:
        """Put the oldest queued message in flight, unless its bytes do not fit there now."""
        if self._flights and self._bytes + message.size > self._policy.window_bytes:
            return False
        after, action = sender_rules.advance(message, Input.ONLINE, self._policy)
        self._add(after, action)
        self._changed[after.number] = after
        return True

    def resume(self) -> None:
        """Note that there is a session: what is in flight wants to go on."""
        self.online = True
        for flight in self._flights.values():
            _, flight.wants = sender_rules.advance(flight.message, Input.ONLINE, self._policy)

    def interrupt(self) -> None:
        """Note that the session is lost: nothing is awaited, repeated or counted any more."""
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
        """Apply an answer, or its absence, to the message of that number.

        Returns:
            The message if this ended it, else None. An unknown number is a late answer: None.
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
        """Apply what fell due: the ends that it brought, and whether an answer was missing."""
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
        """Hand out what may be sent now, in order, counted and marked as awaiting its answer."""
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
                    flight.due = None  # ready: its turn, not the time, is what it waits for
            offers = offers and not flight.held
            deliveries = deliveries and _lets_deliver(flight)
        return sent

    def changes(self) -> list[Message]:
        """Hand out, once, every message whose step or counts must be stored."""
        changed = list(self._changed.values())
        self._changed.clear()
        return changed

    def next_due(self) -> float | None:
        """Say when the earliest of what is awaited or held falls due."""
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
    """Whether `wait` still stands once an answer is missing: an offer may have been taken since."""
    return flight.held and flight.message.state is State.RELEASED


def _lets_deliver(flight: Flight) -> bool:
    """Whether what is behind may deliver, after this one had its chance to be sent."""
    if flight.message.state is State.RELEASED:
        return flight.awaiting and not flight.held
    if flight.message.level is Level.ACKNOWLEDGED:
        return flight.awaiting
    return flight.held
