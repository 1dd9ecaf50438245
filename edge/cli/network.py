"""Send and listen as a device, over the network, with the firmware library.

This is the only module of the gateway that uses the firmware library, `firmware_sim`. The library
is a client, and shares no rules with the gateway. A command imports this module only if needed,
because the import of the library takes longer than that of all other commands.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import sqlite3
import tempfile
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

from edge.cli.device_login import Login, LoginRefused, NetworkError
from edge.ops.gateway.operator_requests import ItemReport
from edge.xmpp import payloads
from firmware_sim.device import (
    Device,
    FirmwareError,
    ItemEvent,
    ItemEventKind,
    Job,
    Publisher,
    ReceivedMessage,
    ReceiveOptions,
    State,
    Worker,
    WorkLimits,
    normalize,
    with_id,
)

_Client: TypeAlias = Device | Publisher | Worker

_HIDDEN: Final = -1
"""Presence priority of a session that receives items only. It is negative, so that messages to the
account go to the device's other sessions."""

_ID_BYTES: Final = 8
"""Bytes of the random ids of items and messages."""

logging.getLogger("slixmpp").setLevel(logging.CRITICAL)  # an error of the command says it


class Received(NamedTuple):
    """A received message; if `event` is set, the message notifies of a published item."""

    message: ReceivedMessage
    event: ItemEvent | None = None


async def send(
    login: Login,
    to: str,
    messages: Iterable[str],
    qos: int,
    timeout: float,  # noqa: ASYNC109
    outbox: Path | None,
    notify: Callable[[str], None] = lambda _text: None,
) -> None:
    """Send messages, and wait until each is answered and, if it cannot be used, reported.

    Nothing answers a message at level 0, but the gateway reports one that it refuses or cannot use.

    Args:
        to: the recipient's address.
        messages: texts of `<message/>`.
        timeout: seconds for connecting, then for all answers, and then for such reports.
        outbox: file that keeps unanswered messages for the next call; with `None` they are
            forgotten.
        notify: called with a text if the recipient asks to wait.

    Raises:
        NetworkError: the login failed, or a message was refused, not answered or not used.
    """
    sent, returned = set[str](), list[str]()

    def note_error(message: Any) -> None:
        if message["id"] in sent:  # not about a message of an earlier session
            error = message["error"]
            text = f"{error['type']}/{error['condition']}: {error['text']}".rstrip(": ")
            returned.append(f"{to}: failed: {text}")

    def prepare(client: Any) -> None:
        client.add_event_handler("message_error", note_error)

    with tempfile.TemporaryDirectory(prefix="fieldpost-") as folder:
        path = Path(folder) / "outbox.db" if outbox is None else outbox
        async with _running(login, path, timeout, prepare=prepare) as device:
            for message in messages:
                text = message
                if qos == 0:
                    text, id = with_id(normalize(message), secrets.token_hex(_ID_BYTES))
                    sent.add(id)
                await device.send(text, to=to, qos=qos)
            try:
                async with _waits_reported(device, to, timeout, notify):
                    await device.flush(timeout)
            except TimeoutError:
                kept = "" if outbox is None else f", and {outbox} keeps the message for a retry"
                found = device.last_wait or "the message may have been delivered nevertheless"
                raise NetworkError(
                    f"not confirmed in {timeout:g} s: {found}{kept}"
                    f" ({device.last_error or 'the connection to the gateway is up'})"
                ) from None
            await device.confirm(timeout)
            if returned:
                raise NetworkError(returned[0])
            for record in device.records(State.FAILED, State.IN_DOUBT):
                raise NetworkError(f"{to}: {record.state.value}: {record.reason}")


async def publish(
    login: Login,
    node: str,
    messages: Iterable[str],
    options: Mapping[str, str],
    timeout: float,  # noqa: ASYNC109
    notify: Callable[[str], None] = lambda _text: None,
) -> None:
    """Publish the payload of each message as an item of a queue, with the same publish options.

    Args:
        node: the name of the queue node.
        messages: texts of `<message/>` with one element each.
        options: publish options, by registered name such as `pubsub#queue_ttl`.
        timeout: seconds for connecting, and then for each answer.
        notify: called with a text if the service asks to wait.

    Raises:
        NetworkError: the login failed, or an item was refused or not answered.
    """
    publisher = Publisher(**login._asdict())
    with _as_network_errors():
        async with publisher:
            await _first_success(_online(publisher), publisher, timeout)
            for message in messages:
                id, payload = payloads.read_item(message)
                item = id or secrets.token_hex(_ID_BYTES)
                try:
                    async with _waits_reported(publisher, node, timeout, notify):
                        request = publisher.publish(node, item, payload, options)
                        await asyncio.wait_for(request, timeout)
                except TimeoutError:
                    if publisher.last_wait:
                        text = f"not published in {timeout:g} s: {publisher.last_wait}"
                        raise NetworkError(text) from None
                    raise NetworkError(
                        f"no answer in {timeout:g} s; the item may have been published"
                        " nevertheless, and publishing it again may duplicate it"
                    ) from None


async def listen(
    login: Login,
    targets: tuple[str, ...],
    show: Callable[[Received], bool],
    begun: Callable[[], None],
    timeout: float,  # noqa: ASYNC109
    idle: float | None,
) -> None:
    """Receive items of `targets`; without targets, receive the messages to the device.

    Args:
        targets: names of nodes, filters or shares.
        show: prints what was received; returns whether to continue.
        begun: called when the device has subscribed to all targets.
        timeout: seconds for connecting, and then for subscribing.
        idle: seconds without anything received after which to return; `None` means never.

    Raises:
        NetworkError: the login failed, or a subscription was refused or not answered.
    """
    with tempfile.TemporaryDirectory(prefix="fieldpost-") as folder:
        options = ReceiveOptions(
            Path(folder) / "inbox.db", subscriptions=targets, priority=_HIDDEN if targets else 0
        )
        async with _running(login, Path(folder) / "outbox.db", timeout, options) as device:
            if targets:
                try:
                    await asyncio.wait_for(device.subscribed(), timeout)
                except TimeoutError:
                    raise NetworkError(f"not subscribed in {timeout:g} s") from None
            begun()
            received = _received(device, targets)
            with suppress(TimeoutError):
                while show(await asyncio.wait_for(anext(received), idle)):
                    pass


async def _received(device: Device, targets: tuple[str, ...]) -> AsyncIterator[Received]:
    async for message in device.messages():
        events = message.items()
        for event in events:
            if event.kind is ItemEventKind.PUBLISHED:
                yield Received(message, event)
        if not events and not targets:
            yield Received(message)


async def work(
    login: Login,
    node: str,
    show: Callable[[ItemReport], bool],
    begun: Callable[[], None],
    timeout: float,  # noqa: ASYNC109
    idle: float | None,
) -> None:
    """Take items of a queue, one at a time, and delete each after it was shown.

    `node` is the name of the queue node. All else is as in `listen`.
    """
    started = finished = 0
    more, progress = True, asyncio.Event()

    async def do(job: Job) -> None:
        nonlocal started, more
        if not more:
            await asyncio.Event().wait()  # the item goes back when the worker closes
        more = show(ItemReport(node, job.item, job.publisher, job.payload.encode(), job.times))
        started += 1

    def finish(_job: Job, _db: sqlite3.Connection) -> None:
        nonlocal finished
        finished += 1
        progress.set()

    with tempfile.TemporaryDirectory(prefix="fieldpost-") as folder, _as_network_errors():
        worker = Worker(
            node=node,
            path=Path(folder) / "jobs.db",
            work=do,
            commit=finish,
            limits=WorkLimits(requests=1),
            **login._asdict(),
        )
        async with worker:
            await _first_success(worker.subscribed(), worker, timeout)
            begun()
            with suppress(TimeoutError):
                while more or finished < started:
                    progress.clear()
                    await asyncio.wait_for(progress.wait(), idle)


@asynccontextmanager
async def _running(
    login: Login,
    outbox: Path,
    timeout: float,  # noqa: ASYNC109
    receive: ReceiveOptions | None = None,
    prepare: Callable[[Any], None] | None = None,
) -> AsyncIterator[Device]:
    with _as_network_errors():
        device = Device(outbox_path=outbox, receive=receive, prepare=prepare, **login._asdict())
        async with device:
            await _first_success(_online(device), device, timeout)
            yield device


async def _online(client: _Client) -> None:
    while not client.online:
        await client.changed()


async def _first_success(
    success: Coroutine[Any, Any, None],
    client: _Client,
    timeout: float,  # noqa: ASYNC109
) -> None:
    """Wait until `success` ends, for at most `timeout` seconds.

    Raises `NetworkError` when this time is over, or as soon as an attempt to connect fails.
    """
    succeeded, failed = asyncio.create_task(success), asyncio.create_task(_failure(client))
    try:
        tasks = {succeeded, failed}
        await asyncio.wait(tasks, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        if not succeeded.done():
            reason = client.last_error or f"not connected in {timeout:g} s"
            raise (LoginRefused if client.is_login_refused else NetworkError)(reason)
    finally:
        for task in (succeeded, failed):
            task.cancel()


async def _failure(client: _Client) -> None:
    while client.online or not client.last_error:
        await client.changed()


@asynccontextmanager
async def _waits_reported(
    client: Device | Publisher,
    to: str,
    timeout: float,  # noqa: ASYNC109
    notify: Callable[[str], None],
) -> AsyncIterator[None]:
    """Call `notify` with each different reason for which the recipient asks to wait."""

    async def report() -> None:
        reported = ""
        while True:
            if client.last_wait not in ("", reported):
                reported = client.last_wait
                notify(f"waiting up to {timeout:g} s, because {to} asks to send later: {reported}")
            await client.changed()

    reporting = asyncio.create_task(report())
    try:
        yield
    finally:
        reporting.cancel()


@contextmanager
def _as_network_errors() -> Iterator[None]:
    try:
        yield
    except FirmwareError as error:
        raise NetworkError(str(error)) from error
