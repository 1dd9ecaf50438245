"""The commands of a click program, by the words of their names."""

from __future__ import annotations

import click


def command_tree(command: click.Command, *words: str) -> dict[tuple[str, ...], click.Command]:
    """Return a command and all commands below it."""
    found = {words: command}
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            assert child is not None
            found |= command_tree(child, *words, name)
    return found


def leaves(command: click.Command) -> dict[tuple[str, ...], click.Command]:
    """Return the commands that are not groups."""
    tree = command_tree(command)
    return {words: each for words, each in tree.items() if not isinstance(each, click.Group)}
