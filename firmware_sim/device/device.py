"""A device that sends and receives messages with quality of service.

    async with Device("pump1@gw.example/fw", password, outbox_path=..., ca_file=...) as device:
        await device.send_log("Started", "Pump started.")
        await device.flush()

`send` returns when the message is durable in the outbox. The device then delivers the message
exactly once (assured) or at least once (acknowledged), across lost sessions and restarts. The
device reconnects for ever, with exponential backoff. Always use the same resource, because message
ids are unique per full JID. With `receive`, the device also receives messages (see
`receive_options`).
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any, Final, Self

from slixmpp.jid import JID

from firmware_sim.device import messages
from firmware_sim.device.connection import Connection, endpoint
from firmware_sim.device.errors import ConnectionFailed, DeviceStopped, MessageRefused, NotSent
from firmware_sim.device.inbox import Inbox
from firmware_sim.device.limits import OutboxLimits, ReconnectPolicy, SendPolicy
from firmware_sim.device.outbox import Outbox, OutboxRecord
from firmware_sim.device.receive_options import ReceivedMessage, ReceiveOptions, commit_nothing
from firmware_sim.device.receiver_loop import ReceiverLoop
from firmware_sim.device.sender_loop import DeliveryStep, SenderLoop
from firmware_sim.device.sender_rules import Level, State, backoff
from firmware_sim.device.sessions import SessionClient
from firmware_sim.device.subscriptions import Subscriptions

BACKLOG: Final = 256
"""Maximum number of messages queued for `Device.messages`; then the device stops reading."""

_DEFAULTS: Final = (SendPolicy(), OutboxLimits(), ReconnectPolicy())
_LEVELS: Final = {0: "at most once", 1: "acknowledged", 2: "assured"}


class Device(SessionClient):
    """A device with its own outbox; it runs from `start` to `close`, or in an `async with` block.

    Args:
        jid: the full JID.
        password: the account's password; empty if there is a certificate.
        certificate: PEM file of the device's certificate, for log-in by SASL EXTERNAL.
        key: PEM file of the certificate's private key.
        outbox_path: file for undelivered messages; created if missing.
        ca_file: PEM certificate of the CA that signed the gateway's certificate.
        host: host name or IP address of the gateway; the JID's domain if empty.
        port: TCP port.
        direct_tls: use direct TLS (XEP-0368, port 5223) instead of STARTTLS.
        policy: retries and the number of messages in flight.
        limits: capacity of the outbox.
        reconnect: delays between attempts to connect.
        receive: options for receiving messages; if None, the device receives none and sends no
            presence.
        observe: called with each `DeliveryStep` and the message's number, for tests and displays;
            it must not raise.
        prepare: called with slixmpp's client of each session before it connects, for the
            application's own requests.
        resume: resume the session after a lost connection (XEP-0198), to keep presence and lose no
            plain messages.
        on_undelivered: called with each message that was answered, and of which an error then said
            that it was not delivered; its state is then failed or in doubt. It must not raise.

    Raises ValueError if the JID has no resource or no account, the port is invalid, or not exactly
    one of password and certificate is given.
    """

    def __init__(
        self,
        jid: str,
        password: str = "",
        *,
        certificate: Path | str | None = None,
        key: Path | str | None = None,
        outbox_path: Path | str,
        ca_file: Path | str,
        host: str = "",
        port: int = 5222,
        direct_tls: bool = False,
        policy: SendPolicy = _DEFAULTS[0],
        limits: OutboxLimits = _DEFAULTS[1],
        reconnect: ReconnectPolicy = _DEFAULTS[2],
        receive: ReceiveOptions | None = None,
        observe: Callable[[DeliveryStep, int], None] | None = None,
        prepare: Callable[[Any], None] | None = None,
        resume: bool = False,
        on_undelivered: Callable[[OutboxRecord], None] | None = None,
    ) -> None:
        parsed = JID(jid)
        if not parsed.user or not parsed.resource:
            raise ValueError(f"{jid!r} is not a full JID, such as pump1@gw.example/fw")
        self.jid = str(parsed)
        self.domain = str(parsed.domain)
        place = endpoint(parsed, password, certificate, key, host, port, ca_file, direct_tls)
        super().__init__(place, reconnect)
        self._outbox_path = Path(outbox_path)
        self._policy, self._limits = policy, limits
        self._observe = observe or (lambda _step, _number: None)
        self._on_undelivered = on_undelivered or (lambda _record: None)
        self._receive, self._prepare, self._resumes = receive, prepare, resume
        self._delivered: asyncio.Queue[ReceivedMessage] = asyncio.Queue()
        self._subscriptions: Subscriptions | None = None
        self._runtime: Runtime | None = None
        self._reads = True
        self.resumptions = 0
        """Number of resumptions after lost connections since `start`."""

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def start(self) -> None:
        """Open the files and begin to connect, without waiting for a session.

        Raises OutboxError or InboxError if a file cannot be opened.
        """
        runtime = Runtime(self.jid, self._outbox_path, self._limits, self._policy, self._observe)
        if self._receive is not None:
            runtime.receive(self.jid, self._observe_delivery(self._receive))
            if self._receive.subscriptions:
                service, targets = f"pubsub.{self.domain}", self._receive.subscriptions
                self._subscriptions = Subscriptions(self.jid, service, targets)
        runtime.sender.on_silence = runtime.sender.on_stop = self.cut
        runtime.sender.on_wait = self._notify_changed
        runtime.sender.on_undelivered = self._report_undelivered
        self._runtime = runtime
        self._begin_to_connect().add_done_callback(self._on_end)

    async def send_log(
        self,
        event: str,
        text: str,
        *,
        type_: str = "Informational",
        tags: Mapping[str, str | int | float] | None = None,
        timestamp: datetime | None = None,
        to: str = "",
        qos: int = 2,
        label: str = "",
    ) -> int:
        """Send a log event (XEP-0337); arguments as for `messages.log` and `send`."""
        body = messages.log(event, text, type_=type_, tags=tags, timestamp=timestamp)
        return await self._submit(body, to, qos, label)

    async def send_reading(
        self,
        name: str,
        value: float | str | bool,
        *,
        unit: str = "",
        node: str = "",
        timestamp: datetime | None = None,
        to: str = "",
        qos: int = 2,
        label: str = "",
    ) -> int:
        """Send one sensor reading (XEP-0323); arguments as for `messages.reading` and `send`."""
        body = messages.reading(name, value, unit=unit, node=node, timestamp=timestamp)
        return await self._submit(body, to, qos, label)

    async def send(self, message: str, *, to: str = "", qos: int = 2, label: str = "") -> int:
        """Send a message; at levels 1 and 2, return when the message is durable in the outbox.

        Args:
            message: the text of a `<message/>`.
            to: the recipient's JID; the gateway (the JID's domain) if empty.
            qos: 2 is assured (exactly once), 1 acknowledged (at least once), 0 at most once: sent
                immediately without being stored.
            label: the caller's name for the message, at most 256 bytes, stored in the outbox.

        Returns:
            The message's number in the outbox, from 1; 0 at level 0.

        Raises:
            MessageRefused: the text is not a valid `<message/>`, or is too large.
            NotSent: at level 0, there is no session, or the write buffer is full.
            OutboxFull: the outbox is at its limit, so the message was not stored.
            OutboxError: the disk failed; the device is stopped.
            DeviceStopped: the device is not running.
            ValueError: the level or the JID is invalid.
        """
        return await self._submit(messages.normalize(message), to, qos, label)

    async def flush(self, timeout: float | None = None) -> None:  # noqa: ASYNC109
        """Wait until every message in the outbox is done, failed or in doubt.

        An error can still follow the result of a message (see `confirm`). Raises TimeoutError if
        messages are still pending after `timeout` seconds, OutboxError if the disk failed, and
        DeviceStopped if the device stopped before that.
        """
        await asyncio.wait_for(self._running().sender.idle(), timeout)

    async def confirm(self, timeout: float = 5.0) -> None:  # noqa: ASYNC109
        """Wait until the errors that follow the results of messages have come.

        The gateway answers a message at levels 1 and 2 before it reads the content. If it cannot
        use it, an error follows the result, and the message has failed (`records`). Therefore the
        device asks the gateway for one more answer, which comes after such errors. Returns also
        without an answer, after `timeout` seconds or when the session is lost.
        """
        if self._connection is not None:
            await self._connection.round_trip(timeout)
        await asyncio.sleep(0)  # let the sender's loop store what has come

    async def messages(self) -> AsyncIterator[ReceivedMessage]:
        """Iterate over received messages, for a device with `receive` and without `on_message`.

        A message counts as delivered before the iteration returns it, so messages that still wait
        for the iteration when the process ends are lost. When `BACKLOG` messages wait, the device
        stops reading, and the gateway keeps further messages.
        """
        while True:
            message = await self._delivered.get()
            if self._delivered.qsize() == BACKLOG // 2:
                self._read(go_on=True)
            yield message

    async def subscribed(self) -> None:
        """Wait until a session has made all subscriptions of `ReceiveOptions.subscriptions`.

        Raises RequestRefused if the service refused one, and DeviceStopped if the device is not
        running, or has no subscriptions.
        """
        self._running()
        if self._subscriptions is None:
            raise DeviceStopped("the device has no subscriptions (`ReceiveOptions.subscriptions`)")
        await self._subscriptions.subscribed()

    def counts(self) -> Mapping[State, int]:
        """Return the number of messages in each state since the outbox was created."""
        return self._running().outbox.counts()

    def delivered(self) -> Iterator[OutboxRecord]:
        """Iterate over the stored records of delivered messages, oldest first."""
        return self._running().outbox.records(State.DONE)

    def records(self, *states: State) -> Iterator[OutboxRecord]:
        """Iterate over the stored messages in these states, or in all states if none is given."""
        return self._running().outbox.records(*(states or tuple(State)))

    @property
    def last_wait(self) -> str:
        """Return the text of the last answer if it was an error of type `wait`, else ""."""
        return self._running().sender.last_wait

    def pause_reading(self) -> None:
        """Stop reading, in this and in later sessions, to simulate a stuck device."""
        self._read(go_on=False)

    def resume_reading(self) -> None:
        """Resume reading, after `pause_reading`."""
        self._read(go_on=True)

    @property
    def inbox(self) -> Inbox:
        """Return the inbox; its file also has the application's tables.

        Raises DeviceStopped if the device is not running, or has no inbox.
        """
        inbox = self._running().inbox
        if inbox is None:
            raise DeviceStopped("the device has no inbox; create it with the argument `receive`")
        return inbox

    async def close(self) -> None:
        """Close the stream and the files. Undelivered messages stay in the outbox."""
        connection, self._connection = self._connection, None
        if self._runtime is not None:
            self._runtime.stop()
        if connection is not None:
            await connection.close()
        await self._end()

    async def kill(self) -> None:
        """Stop abruptly, as in a power cut: uncommitted changes are lost."""
        if self._runtime is not None:
            self._runtime.stop()
        self.cut()
        await self._end()

    async def _end(self) -> None:
        runner, self._runner = self._runner, None
        if runner is not None:
            runner.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await runner
        subscriptions, self._subscriptions = self._subscriptions, None
        if subscriptions is not None:
            subscriptions.end()
        runtime, self._runtime = self._runtime, None
        if runtime is not None:
            runtime.close()

    async def _submit(self, body: str, to: str, qos: int, label: str) -> int:
        recipient = str(JID(to)) if to else self.domain
        if qos not in _LEVELS:
            levels = ", ".join(f"{level} ({meaning})" for level, meaning in _LEVELS.items())
            raise ValueError(f"qos is {qos!r}; choose one of {levels}")
        if qos == 0:
            self._send_plain(recipient, body)
            await asyncio.sleep(0)  # let slixmpp write it before the caller continues
            return 0
        return await self._running().sender.submit(recipient, Level(qos), body, label)

    def _send_plain(self, recipient: str, body: str) -> None:
        self._running()
        if len(body.encode()) > self._limits.message_bytes:
            raise MessageRefused(f"the message has more than {self._limits.message_bytes} bytes")
        if self._connection is None:
            raise NotSent("the device has no session")
        self._connection.send(messages.add_recipient(body, recipient), self._policy.unsent_bytes)

    def _running(self) -> Runtime:
        if self._runtime is None:
            raise DeviceStopped("the device is not running")
        return self._runtime

    def _goes_on(self) -> bool:
        return self._running().sender.failure is None

    def _new_connection(self) -> Connection:
        receiver = self._running().receiver
        take = None if receiver is None else receiver.take
        return Connection(self._endpoint, take, self._prepare_client, resumable=self._resumes)

    async def _use(self, connection: Connection) -> str:
        sender = self._running().sender
        try:
            connection.qos.on_answer = sender.answer
            connection.qos.on_returned = sender.returned
            sender.online(connection.qos)
            if self._receive is not None:
                connection.announce(self._receive.priority)
            connection.read(go_on=self._reads)
            self._notify_changed()
            reason = await connection.lost
            while connection.can_resume and await self._resume(connection, sender):
                reason = await connection.lost
            return reason
        finally:
            connection.qos.forget_all()
            sender.offline()

    def _prepare_client(self, client: Any) -> None:
        if self._subscriptions is not None:
            self._subscriptions.prepare(client)
        if self._prepare is not None:
            self._prepare(client)

    def _observe_delivery(self, receive: ReceiveOptions) -> ReceiveOptions:
        """Return options that deliver to the queue of `messages`, unless `on_message` is given."""
        if receive.on_message is not commit_nothing:
            return receive

        def deliver(message: ReceivedMessage) -> None:
            receive.afterwards(message)
            self._delivered.put_nowait(message)
            if self._delivered.qsize() == BACKLOG:
                self._read(go_on=False)

        return replace(receive, afterwards=deliver)

    async def _resume(self, connection: Connection, sender: SenderLoop) -> bool:
        """Reconnect until the session is resumed; return False if the server ended the session."""
        sender.suspend()
        rule, failures, resumed = self._reconnect, 0, None
        while resumed is None:
            self._notify_changed()
            failures += 1
            await asyncio.sleep(backoff(failures, rule.base, rule.cap, rule.jitter, random.random))
            try:
                resumed = await connection.resume(rule.timeout)
            except ConnectionFailed as error:
                self.last_error = str(error)
        if resumed:
            self.resumptions += 1
            sender.resume(connection.qos)
            connection.read(go_on=self._reads)
            self._notify_changed()
        return resumed

    def _report_undelivered(self, number: int) -> None:
        self._on_undelivered(self._running().outbox.record(number))
        self._notify_changed()

    def _read(self, *, go_on: bool) -> None:
        self._reads = go_on
        if self._connection is not None:
            self._connection.read(go_on=go_on)

    def _on_end(self, runner: asyncio.Task[None]) -> None:
        error = None if runner.cancelled() else runner.exception()
        if isinstance(error, Exception) and self._runtime is not None:
            self._runtime.sender.stop(error)


class Runtime:
    """The files of a running device, and its loops that send and receive.

    The arguments are those of `Device`. Raises OutboxError if the outbox cannot be opened.
    """

    def __init__(
        self,
        jid: str,
        path: Path,
        limits: OutboxLimits,
        policy: SendPolicy,
        observe: Callable[[DeliveryStep, int], None],
    ) -> None:
        self.outbox = Outbox.open(path, jid, limits)
        self.sender = SenderLoop(self.outbox, policy, observe)
        self.inbox: Inbox | None = None
        self.receiver: ReceiverLoop | None = None

    def receive(self, jid: str, options: ReceiveOptions) -> None:
        """Open the inbox and begin to receive. A later error of the inbox also stops sending.

        Raises InboxError if the inbox cannot be opened; the outbox is closed again.
        """
        try:
            path = Path(options.path)
            self.inbox = Inbox.open(path, jid, options.limits, options.schema)
        except BaseException:
            self.sender.stop()
            self.close()
            raise
        self.receiver = ReceiverLoop(self.inbox, options, self.sender.stop)

    def stop(self) -> None:
        """Stop sending and receiving; pending calls raise `DeviceStopped`."""
        if self.receiver is not None:
            self.receiver.stop()
        self.sender.stop()

    def close(self) -> None:
        """Close the outbox and the inbox."""
        self.outbox.close()
        if self.inbox is not None:
            self.inbox.close()
