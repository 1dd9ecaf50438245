"""A device, as an integrator uses it: give it messages, and it sees them delivered.

    async with Device("pump1@gw.example/fw", password, outbox_path=..., ca_file=...) as device:
        await device.send_log("Started", "Pump started.")
        await device.flush()

`send` returns when the message is durable in the outbox; from then on it is delivered exactly once
(assured) or at least once (acknowledged), over as many sessions and restarts as that takes. The
device reconnects for ever, with growing pauses. Bind the same resource always: message ids are
unique per full JID. With `receive` it takes messages, too, each once (see `receiving`).
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Final, Self

from slixmpp.jid import JID

from firmware_sim.device import messages
from firmware_sim.device.connection import Connection, Endpoint
from firmware_sim.device.device_runtime import Desk
from firmware_sim.device.errors import ConnectionFailed, DeviceStopped, MessageRefused, NotSent
from firmware_sim.device.inbox import Inbox
from firmware_sim.device.limits import OutboxLimits, Policy, Reconnect
from firmware_sim.device.outbox import Outbox, Record
from firmware_sim.device.received import Receiving
from firmware_sim.device.sender_loop import Courier, Moment
from firmware_sim.device.sender_rules import Level, State, backoff

_DEFAULTS: Final = (Policy(), OutboxLimits(), Reconnect())


class Device:
    """A device with an outbox of its own; it runs from `start` to `close`, or in a `with`.

    Args:
        jid: its full JID; the resource must be given.
        password: of its account.
        outbox_path: the file that keeps what is not delivered; made when missing.
        ca_file: PEM certificate of the CA that vouches for the gateway.
        host: address to dial; the JID's domain if empty.
        port: TCP port.
        policy: how it retries, and how much it has in flight.
        limits: how much the outbox keeps.
        reconnect: how it comes back.
        receive: how it takes messages; None takes none, and sends no presence.
        observe: told of each moment (offered, received, released, ended) of each message's
            number; for tests and displays. It must not raise.
        prepare: given slixmpp's client of each session before it connects, for requests of the
            application's own.

    Raises:
        ValueError: the JID has no resource or no account, or the port is none.
    """

    def __init__(
        self,
        jid: str,
        password: str,
        *,
        outbox_path: Path | str,
        ca_file: Path | str,
        host: str = "",
        port: int = 5222,
        policy: Policy = _DEFAULTS[0],
        limits: OutboxLimits = _DEFAULTS[1],
        reconnect: Reconnect = _DEFAULTS[2],
        receive: Receiving | None = None,
        observe: Callable[[Moment, int], None] | None = None,
        prepare: Callable[[Any], None] | None = None,
    ) -> None:
        parsed = JID(jid)
        if not parsed.user or not parsed.resource:
            raise ValueError(f"a full JID is wanted, as in pump1@gw.example/fw, not {jid!r}")
        if not 0 < port < 65_536:
            raise ValueError(f"a TCP port is wanted, not {port}")
        self.jid = str(parsed)
        self.domain = str(parsed.domain)
        dial = host or self.domain
        self._endpoint = Endpoint(self.jid, password, dial, port, Path(ca_file))
        self._outbox_path = Path(outbox_path)
        self._policy, self._limits, self._reconnect = policy, limits, reconnect
        self._observe = observe or _unobserved
        self._receive, self._prepare = receive, prepare
        self._desk: Desk | None = None
        self._reads = True
        self._connection: Connection | None = None
        self._runner: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()
        self.sessions = 0
        """How many sessions it had since `start`."""
        self.last_error = ""
        """Why it last failed to connect, or lost its session."""

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def start(self) -> None:
        """Open its files and begin to connect; it does not wait for a session.

        Raises:
            OutboxError, InboxError: the outbox, or the inbox, cannot be opened.
        """
        desk = Desk.open(self.jid, self._outbox_path, self._limits, self._policy, self._observe)
        if self._receive is not None:
            desk.receive(self.jid, self._receive)
        desk.courier.on_silence = desk.courier.on_stop = self.cut
        self._desk = desk
        self._runner = asyncio.create_task(self._run(desk), name=f"device {self.jid}")
        self._runner.add_done_callback(self._on_end)

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
        """Send an event of the log (XEP-0337); see `messages.log` and `send`."""
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
        """Send one reading of a sensor (XEP-0323); see `messages.reading` and `send`."""
        body = messages.reading(name, value, unit=unit, node=node, timestamp=timestamp)
        return await self._submit(body, to, qos, label)

    async def send(self, message: str, *, to: str = "", qos: int = 2, label: str = "") -> int:
        """Take a message; it returns when the message is durable in the outbox.

        Args:
            message: the text of a `<message/>`.
            to: the JID it goes to; the gateway (the JID's domain) if empty.
            qos: 2, assured (exactly once), or 1, acknowledged (at least once), or 0 (at most
                once): sent now or not at all, and kept nowhere.
            label: the caller's own name for it, kept in the outbox, up to 256 bytes.

        Returns:
            Its number in the outbox, from 1; 0 at level 0.

        Raises:
            MessageRefused: it is not a message that can be sent.
            NotSent: at level 0, there is no session, or the link is behind.
            OutboxFull: the outbox is at its limit; nothing was taken.
            OutboxError: the disk failed; the device is stopped.
            DeviceStopped: it is not running.
            ValueError: another level, or not a JID.
        """
        return await self._submit(messages.checked(message), to, qos, label)

    async def flush(self, timeout: float | None = None) -> None:  # noqa: ASYNC109
        """Wait until everything that was sent has ended: delivered, failed or in doubt.

        Args:
            timeout: seconds; None waits as long as it takes.

        Raises:
            TimeoutError: it took longer.
            OutboxError, DeviceStopped: it stopped before.
        """
        await asyncio.wait_for(self._running().idle(), timeout)

    def counts(self) -> Mapping[State, int]:
        """Count the messages in each state since the outbox was made."""
        return self._open().counts()

    def delivered(self) -> Iterator[Record]:
        """Go through the messages that are delivered, oldest first, as far as they are kept."""
        return self._open().records(State.DONE)

    def records(self, *states: State) -> Iterator[Record]:
        """Go through the messages in these states; in all of them if none is named."""
        return self._open().records(*(states or tuple(State)))

    @property
    def online(self) -> bool:
        """Whether it has a session now."""
        return self._connection is not None and self._connection.bound

    async def changed(self) -> None:
        """Wait until it gains a session, loses it, or fails to get one (see `last_error`)."""
        await self._changed.wait()

    def cut(self) -> None:
        """Drop the session without a word, if there is one; the device comes back by itself."""
        if self._connection is not None:
            self._connection.abort("cut")

    def pause_reading(self) -> None:
        """Read no more of what comes, now and in later sessions, as a device that is stuck."""
        self._read(go_on=False)

    def resume_reading(self) -> None:
        """Read on."""
        self._read(go_on=True)

    @property
    def inbox(self) -> Inbox:
        """The inbox and the application's tables; `DeviceStopped` if it is not running with one."""
        if self._desk is None or self._desk.inbox is None:
            raise DeviceStopped("the inbox is not open")
        return self._desk.inbox

    async def close(self) -> None:
        """Stop in order: end the stream, close the outbox. What is not delivered waits there."""
        connection, self._connection = self._connection, None
        if self._desk is not None:
            self._desk.stop()
        if connection is not None:
            await connection.close()
        await self._end()

    async def kill(self) -> None:
        """Stop at once, as if the power had failed: what was not yet committed is gone."""
        if self._desk is not None:
            self._desk.stop()
        self.cut()
        await self._end()

    async def _end(self) -> None:
        runner, self._runner = self._runner, None
        if runner is not None:
            runner.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await runner
        desk, self._desk = self._desk, None
        if desk is not None:
            desk.close()

    async def _submit(self, body: str, to: str, qos: int, label: str) -> int:
        recipient = str(JID(to)) if to else self.domain
        if qos == 0:
            self._send_plain(recipient, body)
            await asyncio.sleep(0)  # it leaves before the next one is asked for
            return 0
        return await self._running().submit(recipient, Level(qos), body, label)

    def _send_plain(self, recipient: str, body: str) -> None:
        self._running()
        if len(body.encode()) > self._limits.message_bytes:
            raise MessageRefused(f"a message has at most {self._limits.message_bytes} bytes")
        if self._connection is None:
            raise NotSent("the device has no session")
        self._connection.send(messages.addressed(body, recipient), self._policy.unsent_bytes)

    def _running(self) -> Courier:
        return self._working("the device is not running").courier

    def _open(self) -> Outbox:
        return self._working("the outbox is not open").outbox

    def _working(self, otherwise: str) -> Desk:
        if self._desk is None:
            raise DeviceStopped(otherwise)
        return self._desk

    async def _run(self, desk: Desk) -> None:
        """Have a session, again and again; `failures` counts those that did not last."""
        failures = 0
        loop = asyncio.get_running_loop()
        while desk.courier.failure is None:
            begun = loop.time()
            self.last_error = await self._session(desk)
            self._tell()
            failures = 1 if loop.time() - begun >= self._reconnect.stable else failures + 1
            rule = self._reconnect
            await asyncio.sleep(backoff(failures, rule.base, rule.cap, rule.jitter, random.random))

    async def _session(self, desk: Desk) -> str:
        """Have one session, and say why it ended or did not come about."""
        try:
            take = None if desk.porter is None else desk.porter.take
            connection = Connection(self._endpoint, take, self._prepare)
            self._connection = connection
            await connection.open(self._reconnect.timeout)
        except ConnectionFailed as error:
            self._connection = None
            return str(error)
        try:
            self.sessions += 1
            connection.qos.on_answer = desk.courier.answer
            desk.courier.online(connection.qos)
            self._present(connection)
            self._tell()
            return await connection.lost
        finally:
            connection.qos.forget_all()
            desk.courier.offline()
            connection.abort("over")
            self._connection = None

    def _present(self, connection: Connection) -> None:
        if self._receive is not None:
            connection.announce(self._receive.priority)
        connection.read(go_on=self._reads)

    def _read(self, *, go_on: bool) -> None:
        self._reads = go_on
        if self._connection is not None:
            self._connection.read(go_on=go_on)

    def _tell(self) -> None:
        told, self._changed = self._changed, asyncio.Event()
        told.set()

    def _on_end(self, runner: asyncio.Task[None]) -> None:
        error = None if runner.cancelled() else runner.exception()
        if isinstance(error, Exception) and self._desk is not None:
            self._desk.courier.stop(error)


def _unobserved(moment: Moment, number: int) -> None:
    """Take the moments that nobody watches."""
