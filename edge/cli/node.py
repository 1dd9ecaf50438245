"""The `fieldpost node` commands."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click

from edge.cli import echo_found, folder_option, json_option, yes_option
from edge.command_errors import to_terminal
from edge.ops.data import nodes
from edge.ops.data.nodes import NodeSummary
from sync.common.text import columns

_name = click.argument("name", metavar="NODE")
_set = click.option(
    "--set",
    "options",
    metavar="OPTION=VALUE",
    multiple=True,
    help="Set an option, such as access_model=whitelist. Repeatable; repeat a list option for each"
    " of its values.",
)


@click.group()
def node() -> None:
    """List, create, configure and delete publish-subscribe nodes, including queues."""


@node.command()
@_name
@folder_option
@click.option("--queue", is_flag=True, help="Make it a queue: each item goes to one worker.")
@click.option(
    "--owner", metavar="DEVICE", help="Device that owns the node. Default: the gateway itself."
)
@_set
def create(
    name: str, folder: Path, queue: bool, owner: str | None, options: tuple[str, ...]
) -> None:
    """Create a node on the running gateway.

    Only owners and publishers may publish to it unless you set publish_model=open.
    """
    values = {"queueing": ["1"]} if queue else {}
    nodes.create(folder, name, {**values, **_values(options)}, owner)
    click.echo(to_terminal(f"{name} is created"))


@node.command("list")
@folder_option
@json_option("Print one JSON object per line.")
def list_(folder: Path, as_json: bool) -> None:
    """List all nodes with the number and size of their items."""
    found = nodes.list_all(folder)
    echo_found((one._asdict() for one in found), _lines(found), as_json=as_json)


@node.command()
@_name
@folder_option
@_set
def configure(name: str, folder: Path, options: tuple[str, ...]) -> None:
    """Change options of a node on the running gateway; without --set, print them."""
    if options:
        nodes.configure(folder, name, _values(options))
        click.echo(to_terminal(f"{name} is configured"))
        return
    for option, values in nodes.options(folder, name).items():
        for value in values or [""]:
            click.echo(to_terminal(f"{option}={value}"))


@node.command()
@_name
@folder_option
@yes_option
def delete(name: str, folder: Path, yes: bool) -> None:
    """Delete a node on the running gateway, with its items and subscriptions."""
    if not yes:
        click.confirm(f"Delete {name} with its items and subscriptions?", abort=True, err=True)
    nodes.delete(folder, name)
    click.echo(to_terminal(f"{name} is deleted"))


def _lines(found: Iterator[NodeSummary]) -> Iterator[str]:
    header = ("node", "kind", "owner", "items", "bytes", "subscribers")
    rows = [
        (
            one.name,
            "queue" if one.queue else "node",
            one.owner,
            *map(str, (one.items, one.bytes, one.subscribers)),
        )
        for one in found
    ]
    yield from columns([header, *rows], right=range(3, len(header)))


def _values(options: tuple[str, ...]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for text in options:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise click.UsageError(f"{text!r} is not OPTION=VALUE")
        found.setdefault(name, []).append(value)
    return found
