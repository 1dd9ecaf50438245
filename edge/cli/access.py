"""The `fieldpost access` commands."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from edge.cli import echo_found, folder_option, json_option
from edge.features.pubsub.rules.topic_rights import Right
from edge.ops.data import access as operations


@click.group()
def access() -> None:
    """Check what devices may publish and read."""


@access.command()
@click.argument("device")
@click.argument("right", type=click.Choice([right.value for right in Right]))
@click.argument("topic")
@click.option("--client", metavar="ID", default="", help="Client identifier, for filters with %c.")
@folder_option
@json_option("Print one JSON object.")
def check(device: str, right: str, topic: str, client: str, folder: Path, as_json: bool) -> None:
    """Check whether a device may publish or subscribe to a topic.

    Prints the rule in [[access]], and the affiliation and model of the node, that allow or refuse
    it. To subscribe, TOPIC can also be a filter or a share. Exit status 1 means that it is refused.
    The rules are those in fieldpost.toml; a running gateway uses them after `fieldpost reload`.
    """
    found = operations.check(folder, device, Right(right), topic, client)
    word = "allowed" if found.allowed else "refused"
    echo_found([found._asdict()], [f"{word}: {found.reason}"], as_json=as_json)
    if not found.allowed:
        sys.exit(1)
