"""Send an outbox's messages over successive sessions.

All input of one iteration of the event loop shares one transaction: the loop applies the rules,
commits the changes, then sends stanzas and wakes callers. So a step is on disk before its
stanza is sent. An error of the outbox stops the loop permanently (`failure`); after a restart of
the device, a new loop continues from the outbox.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from firmware_sim.device import messages, sender_rules
from firmware_sim.device.errors import DeviceStopped, OutboxError
from firmware_sim.device.qos_sender_plugin import Answer, Outcome, Request, Returned, Step
from firmware_sim.device.send_window import SendWindow, Transmission
from firmware_sim.device.sender_rules import Action, Input, Level, Message, State

if TYPE_CHECKING:
    from firmware_sim.device.limits import SendPolicy
    from firmware_sim.device.outbox import Outbox


REMEMBERED: Final = 256
"""Number of acknowledged messages whose ids are remembered, to know them in a later error."""


class DeliveryStep(Enum):
    """A step in the delivery of a message, with which the observer is called."""

    OFFERED = "offered"
    RECEIVED = "received"
    RELEASED = "released"
    ENDED = "ended"


class RequestChannel(Protocol):
    """The part of a session that sends requests."""

    def send(self, request: Request) -> None:
        """Send a request, and accept its answer until `forget` is called."""

    def forget(self, id_: str) -> None:
        """Stop expecting the answer to the request with this id."""


class _Submission(NamedTuple):
    recipient: str
    level: Level
    body: str
    label: str
    size: int
    accepted: asyncio.Future[int]


class _Sending(NamedTuple):
    delivery_step: DeliveryStep
    number: int
    request: Request


_SUFFIX: Final = {Step.ASSURED: "a", Step.ACKNOWLEDGED: "k", Step.DELIVER: "d"}


class SenderLoop:
    """Sends an outbox's messages; calls `observe` with each `DeliveryStep` and message number."""

    def __init__(
        self,
        outbox: Outbox,
        policy: SendPolicy,
        observe: Callable[[DeliveryStep, int], None],
    ) -> None:
        self._outbox = outbox
        self._policy = policy
        self._observe = observe
        self._loop = asyncio.get_running_loop()
        self._window = SendWindow(policy, random.random)
        self._stored: dict[int, State] = {}
        self._reasons: dict[int, str] = {}
        self._returned: dict[int, Returned] = {}  # to be stored
        self._numbers: dict[str, int] = {}  # of the latest acknowledged messages, by their ids
        self._submissions: list[_Submission] = []
        self._idle: list[asyncio.Future[None]] = []
        self._channel: RequestChannel | None = None
        self._scheduled: asyncio.Handle | None = None
        self._alarm: asyncio.TimerHandle | None = None
        self._last_answer = 0.0
        self.on_silence: Callable[[], None] = lambda: None
        self.on_stop: Callable[[], None] = lambda: None
        self.on_wait: Callable[[], None] = lambda: None
        self.on_undelivered: Callable[[int], None] = lambda _number: None
        self.failure: Exception | None = None
        self.last_wait = ""
        """The text of the last answer if it was an error of type `wait`, else an empty string."""
        self._restore()

    def _restore(self) -> None:
        messages = self._outbox.in_flight()
        self._stored = {message.number: message.state for message in messages}
        self._window.restore(messages)
        self._admitted = max(self._stored, default=0)

    async def submit(self, recipient: str, level: Level, body: str, label: str) -> int:
        """Store a message in the outbox; return its number when the message is durable.

        Raises MessageRefused and OutboxFull as `Outbox.add` does, OutboxError if the disk failed,
        and DeviceStopped if the loop has stopped.
        """
        self._check()
        size = len(body.encode())
        waiting = self._submissions
        self._outbox.check(size, label, len(waiting), sum(other.size for other in waiting))
        accepted: asyncio.Future[int] = self._loop.create_future()
        waiting.append(_Submission(recipient, level, body, label, size, accepted))
        self._schedule()
        return await accepted

    async def idle(self) -> None:
        """Wait until every message is done, failed or in doubt.

        Raises OutboxError if the disk failed, and DeviceStopped if the loop stopped before that.
        """
        self._check()
        if self._outbox.live or self._submissions:
            waiter: asyncio.Future[None] = self._loop.create_future()
            self._idle.append(waiter)
            try:
                await waiter
            finally:
                if waiter in self._idle:
                    self._idle.remove(waiter)

    def online(self, channel: RequestChannel) -> None:
        """Begin or continue sending in a new session."""
        self._channel = channel
        self._last_answer = self._loop.time()
        self._window.resume()
        self._schedule()

    def offline(self) -> None:
        """Suspend sending until `online`, because the session is lost."""
        self._channel = None
        self._window.interrupt()
        self._set_alarm()

    def suspend(self) -> None:
        """Suspend sending until `resume`, because the connection of a resumable session is lost.

        The answers to requests in flight are still expected.
        """
        self._channel = None
        self._window.online = False
        self._set_alarm()

    def resume(self, channel: RequestChannel) -> None:
        """Continue sending in the resumed session."""
        self._channel = channel
        self._last_answer = self._loop.time()
        self._window.online = True
        self._schedule()

    def answer(self, answer: Answer) -> None:
        """Process the answer to a request."""
        self._last_answer = self._loop.time()
        number = int(answer.request.id.rsplit("-", 2)[1])
        reason = self.last_wait = _reason(answer)
        if self._window.apply_input(number, _input(answer), self._last_answer) is not None:
            self._reasons[number], self.last_wait = reason, ""
        if answer.outcome is Outcome.RECEIVED:
            self._observe(DeliveryStep.RECEIVED, number)
        if self.last_wait:
            self.on_wait()
        self._schedule()

    def returned(self, returned: Returned) -> None:
        """Process an error about a message that was answered; ignore one about another message."""
        before, _, number = returned.msg_id.rpartition("-")
        if before == self._outbox.id and number.isascii() and number.isdigit():
            self._returned[int(number)] = returned
        elif returned.id in self._numbers:
            self._returned[self._numbers[returned.id]] = returned
        self._schedule()

    def stop(self, failure: Exception | None = None) -> None:
        """Stop the loop; pending calls raise `failure`, or DeviceStopped. The outbox stays open."""
        if self.failure is not None:
            return
        self.failure = failure or DeviceStopped("the device is stopped")
        self._channel = None
        for handle in (self._scheduled, self._alarm):
            if handle is not None:
                handle.cancel()
        waiters: list[asyncio.Future[int] | asyncio.Future[None]] = [*self._idle]
        waiters += [submission.accepted for submission in self._submissions]
        for waiter in waiters:
            if not waiter.done():
                waiter.set_exception(self.failure)
        self._submissions, self._idle = [], []
        self.on_stop()

    def _check(self) -> None:
        if self.failure is not None:
            raise self.failure

    def _schedule(self) -> None:
        if self._scheduled is None and self.failure is None:
            self._scheduled = self._loop.call_soon(self._process)

    def _process(self) -> None:
        """Process one iteration: apply timeouts, commit, wake callers of `submit`, send stanzas."""
        self._scheduled = None
        now = self._loop.time()
        if not self._window.has_pending_answer():
            self._last_answer = now  # silence is counted from the request
        expired, unanswered = self._window.expire(now)
        for message in expired:
            self._give_up(message)
        try:
            numbers, ended, sending, returned = self._commit(now)
        except OutboxError as error:
            self.stop(error)
            return
        self._accept(numbers)
        for delivery_step, number, request in sending:
            if self._channel is not None:  # an observer may have ended the session
                self._channel.send(request)
                self._observe(delivery_step, number)
        for number in ended:
            self._observe(DeliveryStep.ENDED, number)
        for number in returned:
            self.on_undelivered(number)
        self._finish_iteration(
            silent=unanswered and now - self._last_answer >= self._policy.silence
        )

    def _commit(self, now: float) -> tuple[list[int], list[int], list[_Sending], list[int]]:
        """Commit new messages and states.

        Return the numbers of added and ended messages, requests to send, and the numbers of
        messages that failed after their answers.
        """
        with self._outbox.transaction():
            numbers = [
                self._outbox.add(each.recipient, each.level, each.body, each.label).number
                for each in self._submissions
            ]
            while self._window.can_admit() and self._admit():
                pass
            sending = [self._request(transmission) for transmission in self._window.take(now)]
            ended = [m.number for m in self._window.changes() if self._save(m)]
            returned = [number for number in list(self._returned) if self._fail(number)]
        return numbers, ended, sending, returned

    def _fail(self, number: int) -> bool:
        """Store that an answered message failed; one that has no answer yet fails with it."""
        if number in self._stored:
            return False
        found = self._returned.pop(number)
        state = State.IN_DOUBT if found.in_doubt else State.FAILED
        return self._outbox.fail_delivered(number, state, found.text)

    def _admit(self) -> bool:
        found = self._outbox.queued(self._admitted, 1)
        if not found or not self._window.admit(found[0]):
            return False
        self._admitted = found[0].number
        self._stored[self._admitted] = State.QUEUED
        return True

    def _save(self, message: Message) -> bool:
        """Store the state of one message; return whether it has ended."""
        number = message.number
        self._outbox.save(self._stored[number], message, self._reasons.pop(number, ""))
        self._stored[number] = message.state
        if message.state in sender_rules.ENDED:
            del self._stored[number]
            return True
        return False

    def _request(self, transmission: Transmission) -> _Sending:
        message, action = transmission
        recipient, body = self._outbox.envelope(message.number)
        msg_id = f"{self._outbox.id}-{message.number}"
        if action is Action.DELIVER:
            request = Request(Step.DELIVER, _id(msg_id, Step.DELIVER), recipient, msg_id)
            return _Sending(DeliveryStep.RELEASED, message.number, request)
        step = Step.ASSURED if message.level is Level.ASSURED else Step.ACKNOWLEDGED
        if step is Step.ACKNOWLEDGED:  # an error about it names nothing but the message's id
            body, id_ = messages.with_id(body, msg_id)
            self._remember(id_, message.number)
        request = Request(step, _id(msg_id, step), recipient, msg_id, body)
        return _Sending(DeliveryStep.OFFERED, message.number, request)

    def _remember(self, id_: str, number: int) -> None:
        self._numbers.pop(id_, None)
        self._numbers[id_] = number
        if len(self._numbers) > REMEMBERED:
            del self._numbers[next(iter(self._numbers))]

    def _give_up(self, message: Message) -> None:
        self._reasons[message.number] = f"no answer after {self._policy.max_attempts} attempts"
        if self._channel is not None:
            for step in Step:
                self._channel.forget(_id(f"{self._outbox.id}-{message.number}", step))

    def _accept(self, numbers: list[int]) -> None:
        submissions, self._submissions = self._submissions, []
        for submission, number in zip(submissions, numbers, strict=True):
            if not submission.accepted.done():
                submission.accepted.set_result(number)

    def _finish_iteration(self, *, silent: bool) -> None:
        if self.failure is not None:  # an observer may have stopped it
            return
        if not self._outbox.live:
            for waiter in self._idle:
                if not waiter.done():
                    waiter.set_result(None)
            self._idle = []
        self._set_alarm()
        if silent:
            self.on_silence()

    def _set_alarm(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        due = self._window.next_due()
        self._alarm = None if due is None else self._loop.call_at(due, self._schedule)


def _id(msg_id: str, step: Step) -> str:
    return f"{msg_id}-{_SUFFIX[step]}"


def _input(answer: Answer) -> Input:
    if answer.outcome is Outcome.ERROR:
        return sender_rules.refusal(answer.error_type)
    return Input.RECEIVED if answer.outcome is Outcome.RECEIVED else Input.DELIVERED


def _reason(answer: Answer) -> str:
    if answer.outcome is not Outcome.ERROR:
        return ""
    return f"{answer.error_type}/{answer.condition}: {answer.text}".rstrip(": ")
