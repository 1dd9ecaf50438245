"""`fieldpost-fleet alerts`: tell in minutes what is wrong in the fleet."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from sync.cli.options import fleet_dir
from sync.common.errors import FleetError
from sync.common.fleet_folder import FleetFolder

if TYPE_CHECKING:
    from sync.alerts.monitor import AlertMonitor
    from sync.alerts.webhook import Webhook

URL_VARIABLE: Final = "FIELDPOST_ALERTS_WEBHOOK"
"""Names the webhook where `--webhook` does not: many a URL is a secret."""

TOKEN_VARIABLE: Final = "FIELDPOST_ALERTS_TOKEN"  # noqa: S105
"""Holds the webhook's token where `--webhook-token` names no file."""

TOKEN_BYTES: Final = 4_096
"""Bytes of a token: what is longer is another file."""


@click.command()
@fleet_dir
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Append each alert to this file, too, as a line of JSON.",
)
@click.option(
    "--webhook",
    envvar=URL_VARIABLE,
    show_envvar=True,
    metavar="URL",
    help="Send each alert there: https://, or http:// on this machine.",
)
@click.option(
    "--webhook-token",
    "token_file",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    metavar="FILE",
    help=f"A file with the bearer token for the webhook.  [else: {TOKEN_VARIABLE}]",
)
@click.option(
    "--interval",
    type=click.IntRange(min=1, max=600),
    default=15,
    show_default=True,
    metavar="SECONDS",
    help="How often to look.",
)
@click.option("--once", is_flag=True, help="Look once, and end: for a timer.")
def command(
    folder: Path,
    out: Path | None,
    webhook: str | None,
    token_file: Path | None,
    interval: int,
    *,
    once: bool,
) -> None:
    """Tell what is wrong in the fleet when it begins and when it ends, until SIGTERM.

    Each alert is a line of JSON on standard output. Needs no Java, and an ingest that goes on:
    `fieldpost-fleet ingest --continuous`. Exit status 1 with --once: some still wait for the
    webhook.
    """
    from sync.alerts.json_lines import JsonLinesOutput
    from sync.alerts.monitor import AlertMonitor
    from sync.alerts.persistence import StateStore
    from sync.common import json_log

    fleet = FleetFolder(folder)
    fleet.require()
    json_log.log_to_stderr()
    keeping = StateStore(fleet.tables)
    with keeping.alone():
        watch = AlertMonitor(fleet, keeping, JsonLinesOutput(out), _webhook(webhook, token_file))
        asyncio.run(look_once(watch) if once else _go_on(watch, interval))


def _webhook(url: str | None, token_file: Path | None) -> Webhook | None:
    from sync.alerts.webhook import Webhook, check_url

    if not url:
        if token_file is not None:
            msg = "--webhook-token goes with --webhook"
            raise click.UsageError(msg)
        return None
    token = _token(token_file)
    return Webhook(check_url(url, token), token)


def _token(file: Path | None) -> str:
    """Read the token. Raises FleetError when it is none that a header can carry."""
    text = os.environ.get(TOKEN_VARIABLE, "")
    if file is not None:
        with file.open("rb") as opened:
            text = opened.read(TOKEN_BYTES + 1).decode("utf-8", "replace")
    token = text.strip()
    if len(token) > TOKEN_BYTES or not (token.isascii() and (token.isprintable() or not token)):
        msg = "the webhook's token is no line of printable ASCII"
        raise FleetError(msg)
    return token


async def look_once(watch: AlertMonitor) -> None:
    """Look and deliver once. Raises FleetError while alerts still wait for the webhook."""
    watch.look()
    await watch.deliver()
    if watch.waiting:
        msg = f"{watch.waiting} alerts wait for the webhook"
        raise FleetError(msg)


async def _go_on(watch: AlertMonitor, interval: int) -> None:
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    await watch.run(stopping, interval)
