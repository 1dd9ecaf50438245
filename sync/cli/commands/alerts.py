"""`fieldpost-fleet alerts`: report problems in the fleet within minutes."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from sync.alerts.state import MAX_GATEWAYS
from sync.cli.options import storage_options
from sync.common.errors import FleetError
from sync.common.fleet_folder import FleetFolder
from sync.storage.locations import StorageOptions, open_storage

if TYPE_CHECKING:  # heavy imports, made where they are used
    from sync.alerts.monitor import AlertMonitor
    from sync.alerts.webhook import Webhook

URL_VARIABLE: Final = "FIELDPOST_ALERTS_WEBHOOK"
"""Environment variable that can replace `--webhook`, because the URL may contain a secret."""

TOKEN_VARIABLE: Final = "FIELDPOST_ALERTS_TOKEN"  # noqa: S105
"""Environment variable with the webhook's token, which can replace `--webhook-token`."""

TOKEN_BYTES: Final = 4_096
"""Maximum length of the webhook's token, in bytes."""


@click.command()
@storage_options
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Also append each alert to this file, as a line of JSON.",
)
@click.option(
    "--webhook",
    envvar=URL_VARIABLE,
    show_envvar=True,
    metavar="URL",
    help="POST each alert to this URL: https://, or http:// on this machine.",
)
@click.option(
    "--webhook-token",
    "token_file",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    metavar="FILE",
    help=f"File with the bearer token for the webhook.  [env var: {TOKEN_VARIABLE} (the token)]",
)
@click.option(
    "--interval",
    type=click.IntRange(min=1, max=600),
    default=15,
    show_default=True,
    metavar="SECONDS",
    help="Time between two checks of the fleet.",
)
@click.option(
    "--gateways",
    type=click.IntRange(min=1, max=100_000),
    default=MAX_GATEWAYS,
    show_default=True,
    metavar="N",
    help="Maximum number of gateways that are monitored, with some 10 kB of memory each; an alert "
    "says when there are more.",
)
@click.option("--once", is_flag=True, help="Check once and exit, for example from a timer.")
def command(
    options: StorageOptions,
    out: Path | None,
    webhook: str | None,
    token_file: Path | None,
    interval: int,
    gateways: int,
    *,
    once: bool,
) -> None:
    """Watch the fleet and report problems, until SIGTERM.

    Each problem causes an alert when it begins and when it ends, as a line of JSON on standard
    output. No Java is needed. The ingest must run all the time, for example by
    `fieldpost-fleet ingest --continuous`. With --once, exit status 1 means that the
    check failed, or that some alerts could not be delivered to the webhook yet.
    """
    from sync.alerts.json_lines import JsonLinesOutput
    from sync.alerts.monitor import AlertMonitor
    from sync.alerts.persistence import FOLDER, StateStore
    from sync.common import json_log
    from sync.receiver.gateways import GatewayRegistry

    places = options.open()
    json_log.log_to_stderr()
    store = StateStore(open_storage(places.tables.uri(FOLDER)))
    with store.locked():
        output = JsonLinesOutput(out)
        output.prepare()
        monitor = AlertMonitor(
            *(places, store, output, _webhook(webhook, token_file)),
            gateways=GatewayRegistry(FleetFolder(options.folder)) if options.folder else None,
            max_gateways=gateways,
        )
        asyncio.run(check_once(monitor) if once else _run_until_signal(monitor, interval))


def _webhook(url: str | None, token_file: Path | None) -> Webhook | None:
    from sync.alerts.webhook import Webhook, check_url

    if not url:
        if token_file is not None:
            raise click.UsageError("--webhook-token requires --webhook")
        return None
    token = _token(token_file)
    return Webhook(check_url(url, token), token)


def _token(file: Path | None) -> str:
    """Return the webhook's token, empty if there is none.

    Raises FleetError if it is too long or an HTTP header cannot carry it.
    """
    text = os.environ.get(TOKEN_VARIABLE, "")
    if file is not None:
        with file.open("rb") as opened:
            text = opened.read(TOKEN_BYTES + 1).decode("utf-8", "replace")
    token = text.strip()
    if len(token) > TOKEN_BYTES or not (token.isascii() and (token.isprintable() or not token)):
        raise FleetError(
            "the webhook's token must be one line of printable ASCII characters,"
            f" at most {TOKEN_BYTES}"
        )
    return token


async def check_once(monitor: AlertMonitor) -> None:
    """Check the fleet once and deliver alerts; raises FleetError if the webhook did not get all."""
    monitor.check()
    await monitor.deliver()
    if monitor.undelivered:
        msg = f"{monitor.undelivered} alerts wait for the webhook; the next run tries again"
        raise FleetError(msg)


async def _run_until_signal(monitor: AlertMonitor, interval: int) -> None:
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    await monitor.run(stopping, interval)
