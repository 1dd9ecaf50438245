"""Write manual pages and completion scripts from the commands, which the gateway's wheel installs.

Usage: `make docs`, or `python docs/manual.py`.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click
from click.shell_completion import BashComplete, FishComplete, ShellComplete, ZshComplete

from edge import __version__
from edge.cli.commands import main as gateway
from sync.cli.main import cli as centre

FOLDER: Final = Path(__file__).parents[1] / "deploy" / "share"
"""The files that are installed below `share`."""

PROGRAMS: Final[dict[str, click.Group]] = {"fieldpost": gateway, "fieldpost-fleet": centre}

SHELLS: Final[dict[str, type[ShellComplete]]] = {
    "bash-completion/completions/{}": BashComplete,
    "zsh/site-functions/_{}": ZshComplete,
    "fish/vendor_completions.d/{}.fish": FishComplete,
}
"""The file below `share` in which each shell looks for a command's completion."""


def files() -> dict[Path, str]:
    """Return the path and the text of each file."""
    found = {}
    for name, group in PROGRAMS.items():
        found[FOLDER / "man" / "man1" / f"{name}.1"] = manual_page(name, group)
        variable = f"_{name.upper().replace('-', '_')}_COMPLETE"
        for path, shell in SHELLS.items():
            found[FOLDER / path.format(name)] = shell(group, {}, name, variable).source()
    return found


def manual_page(name: str, group: click.Group) -> str:
    """Return the manual page, man(7), of a group and of all its commands."""
    lines = [f'.TH {name.upper()} 1 "" "Fieldpost {__version__}"', ".SH NAME"]
    lines += [f"{name} \\- {_escape(group.get_short_help_str(100))}", ".SH SYNOPSIS"]
    lines += [f".B {name}", _escape("COMMAND [OPTIONS] [ARGUMENTS]..."), ".SH DESCRIPTION"]
    context = click.Context(group, info_name=name)
    lines += [*_body(context), ".SH COMMANDS"]
    for inner in commands(context):
        usage = [inner.command_path, *inner.command.collect_usage_pieces(inner)]
        lines += [f'.SS "{_escape(" ".join(usage))}"', *_body(inner)]
    return "\n".join(lines) + "\n"


def commands(context: click.Context) -> Iterator[click.Context]:
    """Yield a context of each command below that of a group, at every depth."""
    if isinstance(context.command, click.Group):
        for name in context.command.list_commands(context):
            command = context.command.get_command(context, name)
            if command is not None and not command.hidden:
                inner = click.Context(command, info_name=name, parent=context)
                yield inner
                yield from commands(inner)


def _body(context: click.Context) -> Iterator[str]:
    """Yield the lines that describe a command and its options."""
    for paragraph in re.split(r"\n{2,}", inspect.cleandoc(context.command.help or "")):
        is_table = paragraph.startswith("\b")  # click keeps its line breaks
        text = _escape(paragraph.removeprefix("\b").strip("\n"))
        yield from (".PP", ".nf", text, ".fi") if is_table else (".PP", text)
    for option in context.command.params:
        record = option.get_help_record(context)
        if record is not None and record[1]:
            yield from (".TP", f"\\fB{_escape(record[0])}\\fR", _escape(record[1]))


def _escape(text: str) -> str:
    """Return text as roff prints it: no line of it is a request."""
    return re.sub(r"(?m)^(?=[.'])", r"\\&", text.replace("\\", "\\e").replace("-", "\\-"))


if __name__ == "__main__":
    for path, text in files().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
