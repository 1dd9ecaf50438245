"""The `fieldpost send` command."""

from __future__ import annotations

import sys
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any, get_args

import click

from edge import content_types
from edge.cli import device_login, report_errors
from edge.cli.device_login import Login, login_options, read_login
from edge.command_errors import to_terminal
from edge.config import load
from edge.engine.dispatch.addresses import pubsub_service
from edge.ops import component_mode
from edge.ops.gateway import control
from edge.ops.gateway.operator_requests import SendMessage
from edge.xmpp import payloads
from edge.xmpp.payloads import Format


@click.command()
@click.argument("text", required=False)
@click.option("--to", metavar="ADDRESS", help="Recipient: the name or JID of a device, or any JID.")
@click.option("--node", metavar="NODE", help="Publish to this node or queue.")
@click.option(
    "--qos",
    type=click.IntRange(0, 2),
    default=1,
    show_default=True,
    help="0: at most once; 1: at least once; 2: exactly once.",
)
@click.option(
    "--format",
    "format_",
    type=click.Choice(get_args(Format)),
    default="text",
    show_default=True,
    help="How TEXT becomes the payload: a body, a JSON container, or XML as it is.",
)
@click.option(
    "--priority",
    metavar="N",
    type=int,
    help="Priority of a queue item, -1000 to 1000. The highest is taken first.",
)
@click.option(
    "--delay", metavar="SECONDS", type=float, help="Time before a queue item can be taken."
)
@click.option(
    "--ttl",
    metavar="SECONDS",
    type=float,
    help="Time after which a queue item that was not taken becomes dead.",
)
@click.option("--retain", is_flag=True, help="With --mqtt: keep the message for new subscribers.")
@click.option("--lines", is_flag=True, help="Send each line of standard input as a message.")
@click.option(
    "--outbox",
    type=click.Path(path_type=Path, dir_okay=False),
    help="With --as and a full JID: keep unanswered messages in this file for the next call.",
)
@click.option(
    "--timeout",
    metavar="SECONDS",
    type=click.FloatRange(min=0.0, min_open=True),
    default=30.0,
    show_default=True,
    help="Seconds to wait for the gateway.",
)
@login_options
@report_errors
def send(
    text: str | None,
    to: str | None,
    node: str | None,
    qos: int,
    format_: Format,
    priority: int | None,
    delay: float | None,
    ttl: float | None,
    retain: bool,
    lines: bool,
    outbox: Path | None,
    timeout: float,
    folder: Path | None,
    **login: Any,
) -> None:
    """Send a message, or publish to a node.

    TEXT is read from standard input if it is missing. With --as, the message is sent over the
    network as that device; otherwise by the operator of the gateway in --dir, which must be
    running. Prints nothing. Exit status 0 means that the gateway has accepted the message, or at
    level 0 over the network, that it was sent and no error came before the gateway's answer to a
    ping. A message that the gateway accepts but cannot use is an error, too. If the recipient asks
    to wait, this is printed on standard error, and the command ends after --timeout. With --mqtt,
    the payload is TEXT as it is, and NODE the topic.
    """
    if (to is None) == (node is None):
        raise click.UsageError("choose the recipient by either --to or --node")
    if lines and text is not None:
        raise click.UsageError("--lines reads standard input and takes no TEXT")
    options = _item_options(priority, delay, ttl)
    if options and (node is None or qos != 1 or outbox is not None):
        raise click.UsageError(
            "--priority, --delay and --ttl need a queue (--node) and --qos 1, and cannot be used"
            " with --outbox"
        )
    _check_mqtt(login["mqtt"], node, options, format_, outbox, retain)
    found = read_login(**login)
    if outbox is not None and (found is None or login["jid"] != found.jid):
        raise click.UsageError("--outbox needs --as with a full JID, such as pump1@gw.example/cli")
    texts = _texts(text, lines)
    messages = (payloads.message(one, format_) for one in texts)
    if found is not None and login["mqtt"] and node is not None:
        sending = _publish_by_mqtt(found, node, texts, qos, retain, format_, timeout)
        device_login.run(sending, found, folder)
    elif found is not None:
        from edge.cli import network  # imported late: it takes longer than all other commands

        if node is not None and options:
            sending = network.publish(found, node, messages, options, timeout, _notify)
        else:
            address = _address(found.domain, to, node)
            sending = network.send(found, address, messages, qos, timeout, outbox, _notify)
        device_login.run(sending, found, folder)
    elif folder is not None:
        address = _local_address(folder, to, node)
        for message in messages:
            control.perform(folder, SendMessage(address, message, qos, options), timeout)
    else:
        raise click.UsageError("choose a gateway by --dir, or a device by --as")


def _check_mqtt(
    mqtt: bool,
    node: str | None,
    options: dict[str, str],
    format_: Format,
    outbox: Path | None,
    retain: bool,
) -> None:
    if retain and not mqtt:
        raise click.UsageError("--retain needs --mqtt")
    if mqtt and (node is None or options or format_ == "xml" or outbox is not None):
        raise click.UsageError(
            "--mqtt needs --node, and cannot be used with --outbox, options of a queue, or XML"
        )


def _publish_by_mqtt(
    login: Login,
    topic: str,
    texts: Iterator[str],
    qos: int,
    retain: bool,
    format_: Format,
    timeout: float,
) -> Coroutine[Any, Any, None]:
    from edge.cli import mqtt_network
    from edge.mqtt.packets import Property

    properties: dict[Property, Any] = {Property.PAYLOAD_FORMAT: 1}
    if format_ == "json":
        properties[Property.CONTENT_TYPE] = content_types.JSON

    def encoded(typed: str) -> bytes:
        if format_ == "json":
            payloads.check_json(typed)
        return typed.encode()

    messages = map(encoded, texts)
    return mqtt_network.send(login, topic, messages, qos, retain, properties, timeout)


def _notify(text: str) -> None:
    click.echo(to_terminal(text), err=True)


def _local_address(folder: Path, to: str | None, node: str | None) -> str:
    """Return the address for the operator's message; raise `SetupError` if it is not offered."""
    settings = load.load(folder)
    domain = settings.gateway.domain
    if to != domain:
        component_mode.refuse(settings, f"send {'--to' if node is None else '--node'}")
    return _address(domain, to, node)


def _address(domain: str, to: str | None, node: str | None) -> str:
    service = pubsub_service(domain)
    if to is None:
        return f"{service}/{node}"
    if "@" in to or to in (domain, service) or to.startswith(f"{service}/"):
        return to
    return f"{to}@{domain}"


def _item_options(priority: int | None, delay: float | None, ttl: float | None) -> dict[str, str]:
    options = {"priority": priority, "delay": delay, "ttl": ttl}
    return {f"pubsub#queue_{name}": str(one) for name, one in options.items() if one is not None}


def _texts(text: str | None, lines: bool) -> Iterator[str]:
    if lines:
        for line in sys.stdin:
            yield line.rstrip("\r\n")
    else:
        yield sys.stdin.read().rstrip("\n") if text is None else text
