"""The `fieldpost listen` command."""

from __future__ import annotations

import json
import time
from base64 import b64encode
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from edge.cli import device_login, json_option, report_errors
from edge.cli.device_login import Login, login_options, read_login
from edge.command_errors import to_terminal
from edge.ops.data import payloads
from edge.ops.data.payloads import Payload
from edge.ops.gateway import control
from edge.ops.gateway.operator_requests import FinishItem, ItemReport, TakeItem
from edge.xmpp.payloads import payload_of, write

if TYPE_CHECKING:
    from edge.cli.network import Received
    from edge.mqtt.packets import Publish

POLL_S: Final = 1.0
"""Seconds between two attempts to take an item from an empty queue as the operator."""


class Output:
    """A printer of at most `count` messages and items (`None`: all); `what` names their source."""

    def __init__(self, what: str, count: int | None, as_json: bool) -> None:
        self.has_begun = False
        self._what = what
        self._left = count
        self._as_json = as_json

    def begin(self) -> None:
        """Report on standard error that messages or items will be printed from now on."""
        self.has_begun = True
        click.echo(to_terminal(f"listening to {self._what}"), err=True)

    def show(self, title: str, fields: dict[str, Any], payload: Payload) -> bool:
        """Print one message or item; return false if it was the last of `count`.

        People get `title` and a short form of the payload. JSON has `fields` and the payload.
        """
        if self._as_json:
            click.echo(json.dumps({**fields, **payload.fields()}))
        else:
            click.echo("\n".join(to_terminal(line) for line in _lines(title, payload.short)))
        if self._left is not None:
            self._left -= 1
        return self._left != 0

    def item(self, item: ItemReport) -> bool:
        """Print an item that was published or taken; return false if it was the last of `count`."""
        fields: dict[str, Any] = {"node": item.node, "item": item.item, "publisher": item.publisher}
        if item.redeliveries:
            fields["redeliveries"] = item.redeliveries
        payload = payloads.read(item.payload, item.content_type)
        return self.show(item.node, fields, payload)


def _lines(title: str, text: str) -> list[str]:
    return f"{title}  {text}".split("\n")


@click.command()
@click.argument("targets", metavar="[NODE|FILTER]...", nargs=-1)
@click.option(
    "--take", metavar="QUEUE", help="Take items of this queue: each is deleted once shown."
)
@click.option(
    "--count", metavar="N", type=click.IntRange(min=1), help="End after N messages or items."
)
@click.option(
    "--idle",
    metavar="SECONDS",
    type=click.FloatRange(min=0.0, min_open=True),
    help="End after this time without a message or item. Default: never.",
)
@json_option("Print one JSON object per line.")
@click.option(
    "--timeout",
    metavar="SECONDS",
    type=click.FloatRange(min=0.0, min_open=True),
    default=30.0,
    show_default=True,
    help="With --as: seconds to wait for the connection, and then for the subscription.",
)
@click.option(
    "--qos",
    type=click.IntRange(0, 2),
    default=0,
    show_default=True,
    help="With --mqtt: the highest level at which messages are received.",
)
@login_options
@report_errors
def listen(
    targets: tuple[str, ...],
    take: str | None,
    count: int | None,
    idle: float | None,
    as_json: bool,
    timeout: float,
    qos: int,
    folder: Path | None,
    **login: Any,
) -> None:
    """Print the items published to nodes, or take items of a queue.

    A filter may contain + for one level of a node's name and # for the rest; a share is
    $share:NAME:FILTER. With --as, log in over the network as that device, and without a NODE or
    FILTER print the messages to the device. Otherwise listen as the operator of the gateway in
    --dir, which must be running. With --mqtt, print topics, properties and payloads. Ends with
    Ctrl-C.
    """
    if take is not None and targets:
        raise click.UsageError("--take and a NODE or FILTER cannot be used together")
    if login["mqtt"] and not targets:
        raise click.UsageError("--mqtt needs a NODE or FILTER")
    if qos and not login["mqtt"]:
        raise click.UsageError("--qos needs --mqtt")
    found = read_login(**login)
    what = f"items of {take}" if take else ", ".join(targets) or "messages"
    output = Output(what, count, as_json)
    try:
        if found is not None and login["mqtt"]:
            _by_mqtt(found, folder, targets, qos, output, timeout, idle)
        else:
            _listen(found, folder, targets, take, output, timeout, idle)
    except KeyboardInterrupt:
        if not output.has_begun:
            raise


def _listen(
    login: Login | None,
    folder: Path | None,
    targets: tuple[str, ...],
    take: str | None,
    output: Output,
    timeout: float,
    idle: float | None,
) -> None:
    if login is not None:
        _over_network(login, folder, targets, take, output, timeout, idle)
    elif folder is None:
        raise click.UsageError("choose a gateway by --dir, or a device by --as")
    elif take is not None:
        _take(folder, take, output, idle)
    elif not targets:
        raise click.UsageError("name a NODE or FILTER, such as '#' for all nodes")
    else:
        with control.listening(folder, list(targets), idle) as items:
            output.begin()
            for item in items:
                if not output.item(item):
                    return


def _take(folder: Path, queue: str, output: Output, idle: float | None) -> None:
    """Take items as the operator, and delete each after it was shown.

    An item that could not be deleted becomes ready again after the queue's lock timeout.
    """
    item = control.perform(folder, TakeItem(queue)).item
    output.begin()
    last = time.monotonic()
    while True:
        if item is not None:
            more = output.item(item)
            control.perform(folder, FinishItem(queue, item.item))
            if not more:
                return
            last = time.monotonic()
        elif idle is not None and time.monotonic() - last >= idle:
            return
        else:
            time.sleep(POLL_S if idle is None else min(POLL_S, idle))
        item = control.perform(folder, TakeItem(queue)).item


def _over_network(
    login: Login,
    folder: Path | None,
    targets: tuple[str, ...],
    take: str | None,
    output: Output,
    timeout: float,
    idle: float | None,
) -> None:
    from edge.cli import network  # imported late: it takes longer than all other commands

    def show(received: Received) -> bool:
        message, event = received
        if event is None:
            fields = {"from": message.sender, "qos": message.qos, "id": message.id}
            payload = payloads.read(payload_of(message.text).encode())
            return output.show(message.sender, fields, payload)
        xml = "" if event.payload is None else write(event.payload)
        return output.item(
            ItemReport(event.node, event.item, event.publisher, xml.encode(), event.redeliveries)
        )

    if take is None:
        listening = network.listen(login, targets, show, output.begin, timeout, idle)
    else:
        listening = network.work(login, take, output.item, output.begin, timeout, idle)
    device_login.run(listening, login, folder)


def _by_mqtt(
    login: Login,
    folder: Path | None,
    filters: tuple[str, ...],
    qos: int,
    output: Output,
    timeout: float,
    idle: float | None,
) -> None:
    from edge.cli import mqtt_network
    from edge.routing.mqtt import publications

    def show(packet: Publish) -> bool:
        topic, level, retain = packet.topic, packet.qos, packet.retain
        attributes = publications.attributes(level, retain, packet.properties)
        named = [
            (name, b64encode(value).decode() if isinstance(value, bytes) else value)
            for name, value in attributes.properties
        ]
        if attributes.expiry is not None:
            named.append(("message-expiry", str(attributes.expiry)))
        fields = {"topic": topic, "qos": level, "retain": retain, "properties": named}
        content = payloads.read(packet.payload, attributes.content_type)
        shown = [content.content_type, *(f"{name}={value}" for name, value in named)]
        return output.show(f"{topic} ({', '.join(shown)})", fields, content)

    listening = mqtt_network.listen(login, filters, qos, show, output.begin, timeout, idle)
    device_login.run(listening, login, folder)
